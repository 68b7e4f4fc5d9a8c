//! Replies as bytes: once per reply, in the protocol of its session.

use resp::encode;
use types::{Double, Reply};

/// Appends a reply as RESP3 or RESP2.
pub(crate) fn put(out: &mut Vec<u8>, reply: &Reply, resp3: bool) {
    if resp3 { put3(out, reply) } else { put2(out, reply) }
}

fn put3(out: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Simple(text) => encode::simple(out, text),
        Reply::Error(text) => encode::error(out, text),
        Reply::Integer(value) => encode::integer(out, *value),
        Reply::Bulk(bytes) => encode::bulk(out, bytes),
        Reply::Null | Reply::NullArray => encode::null(out),
        Reply::Double(Double(value)) => encode::double(out, *value),
        Reply::Boolean(value) => encode::boolean(out, *value),
        Reply::BigNumber(digits) => encode::big_number(out, digits),
        Reply::Verbatim { format, text } => encode::verbatim(out, *format, text),
        Reply::Array(all) => put_all(out, encode::array, all, put3),
        Reply::Set(all) => put_all(out, encode::set, all, put3),
        Reply::Map(all) | Reply::Table(all) => {
            encode::map(out, all.len());
            put_flat(out, all, put3);
        }
        Reply::Pairs(all) => put_pairs(out, all, put3),
    }
}

fn put2(out: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Simple(text) => encode::simple(out, text),
        Reply::Error(text) => encode::error(out, text),
        Reply::Integer(value) => encode::integer(out, *value),
        Reply::Bulk(bytes) => encode::bulk(out, bytes),
        Reply::Null => encode::null_bulk(out),
        Reply::NullArray => encode::null_array(out),
        Reply::Double(Double(value)) => encode::bulk(out, encode::double_text(*value).as_bytes()),
        Reply::Boolean(value) => encode::integer(out, i64::from(*value)),
        Reply::BigNumber(text) | Reply::Verbatim { text, .. } => encode::bulk(out, text),
        Reply::Array(all) | Reply::Set(all) => put_all(out, encode::array, all, put2),
        Reply::Map(all) | Reply::Pairs(all) => {
            encode::array(out, 2 * all.len());
            put_flat(out, all, put2);
        }
        Reply::Table(all) => put_pairs(out, all, put2),
    }
}

type Put = fn(&mut Vec<u8>, &Reply);

fn put_all(out: &mut Vec<u8>, header: fn(&mut Vec<u8>, usize), all: &[Reply], put: Put) {
    header(out, all.len());
    all.iter().for_each(|reply| put(out, reply));
}

fn put_flat(out: &mut Vec<u8>, all: &[(Reply, Reply)], put: Put) {
    all.iter().flat_map(|(key, value)| [key, value]).for_each(|reply| put(out, reply));
}

fn put_pairs(out: &mut Vec<u8>, all: &[(Reply, Reply)], put: Put) {
    encode::array(out, all.len());
    for (key, value) in all {
        encode::array(out, 2);
        put(out, key);
        put(out, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reply: &Reply, resp3: &str, resp2: &str) {
        for (is_resp3, expected) in [(true, resp3), (false, resp2)] {
            let mut out = Vec::new();
            put(&mut out, reply, is_resp3);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{reply:?}");
            resp::Reply::from_bytes(&out).expect("one whole reply");
        }
    }

    #[test]
    fn each_reply_has_its_bytes_in_both_protocols() {
        let same = [
            (Reply::OK, "+OK\r\n"),
            (Reply::error("ERR a\r\n+b"), "-ERR a  +b\r\n"),
            (Reply::Integer(-7), ":-7\r\n"),
            (Reply::bulk("a\r\n"), "$3\r\na\r\n\r\n"),
            (Reply::array([Reply::Integer(1)]), "*1\r\n:1\r\n"),
        ];
        for (reply, bytes) in same {
            check(&reply, bytes, bytes);
        }
        check(&Reply::Null, "_\r\n", "$-1\r\n");
        check(&Reply::NullArray, "_\r\n", "*-1\r\n");
        check(&Reply::Double(Double(1.5)), ",1.5\r\n", "$3\r\n1.5\r\n");
        check(&Reply::Boolean(true), "#t\r\n", ":1\r\n");
        check(&Reply::BigNumber("-12".into()), "(-12\r\n", "$3\r\n-12\r\n");
        let text = Reply::Verbatim { format: *b"txt", text: "abc".into() };
        check(&text, "=7\r\ntxt:abc\r\n", "$3\r\nabc\r\n");
        check(&Reply::set([Reply::Null]), "~1\r\n_\r\n", "*1\r\n$-1\r\n");
    }

    #[test]
    fn pairs_have_three_forms() {
        let all = || vec![(Reply::bulk("m"), Reply::Double(Double(2.0)))];
        let flat2 = "*2\r\n$1\r\nm\r\n$1\r\n2\r\n";
        check(&Reply::Map(all()), "%1\r\n$1\r\nm\r\n,2\r\n", flat2);
        check(&Reply::Pairs(all()), "*1\r\n*2\r\n$1\r\nm\r\n,2\r\n", flat2);
        let nested2 = "*1\r\n*2\r\n$1\r\nm\r\n$1\r\n2\r\n";
        check(&Reply::Table(all()), "%1\r\n$1\r\nm\r\n,2\r\n", nested2);
    }
}
