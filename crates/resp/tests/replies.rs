//! Replies: each decodes to its source, in pieces too, and RESP2 means the same as RESP3.

use proptest::prelude::*;
use resp::{Reply, ReplyError, ReplyParser, Scanner, encode, translate_to_resp2};

/// The RESP2 form of a reply.
fn as_resp2(reply: Reply) -> Reply {
    match reply {
        Reply::Double(value) => {
            let mut out = Vec::new();
            encode::double(&mut out, value);
            Reply::Bulk(out[1..out.len() - 2].to_vec())
        }
        Reply::Boolean(value) => Reply::Integer(i64::from(value)),
        Reply::Verbatim { text, .. } => Reply::Bulk(text),
        Reply::BigNumber(digits) => Reply::Bulk(digits),
        Reply::Array(all) | Reply::Set(all) | Reply::Push(all) => {
            Reply::Array(all.into_iter().map(as_resp2).collect())
        }
        Reply::Map(pairs) => {
            Reply::Array(pairs.into_iter().flat_map(|(k, v)| [as_resp2(k), as_resp2(v)]).collect())
        }
        other => other,
    }
}

fn replies() -> impl Strategy<Value = Reply> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let text = || "[a-z 0-9]{0,12}".prop_map(String::into_bytes);
    let leaf = prop_oneof![
        text().prop_map(Reply::Simple),
        text().prop_map(Reply::Error),
        any::<i64>().prop_map(Reply::Integer),
        bytes().prop_map(Reply::Bulk),
        Just(Reply::Null),
        any::<f64>()
            .prop_filter("nan differs from itself", |v| !v.is_nan())
            .prop_map(Reply::Double),
        any::<bool>().prop_map(Reply::Boolean),
        bytes().prop_map(|text| Reply::Verbatim { format: *b"txt", text }),
        "-?[1-9][0-9]{0,30}".prop_map(|digits| Reply::BigNumber(digits.into_bytes())),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let all = || prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            all().prop_map(Reply::Array),
            all().prop_map(Reply::Set),
            all().prop_map(Reply::Push),
            prop::collection::vec((inner.clone(), inner), 0..3).prop_map(Reply::Map),
        ]
    })
}

#[test]
fn an_attribute_is_dropped() {
    let bytes = b"|1\r\n+ttl\r\n:3600\r\n*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n";
    assert_eq!(Reply::from_bytes(bytes), Ok(Reply::Array(vec![Reply::Integer(1)])));
}

#[test]
fn nesting_has_an_end() {
    assert_eq!(Reply::from_bytes(&b"*1\r\n".repeat(100)), Err(ReplyError::Malformed));
    let deep = [b"*1\r\n".repeat(100), b":1\r\n".to_vec()].concat();
    assert_eq!(Reply::from_bytes(&deep), Err(ReplyError::TooDeep));
}

#[test]
fn lengths_are_not_believed() {
    assert_eq!(Scanner::default().next(b"*4294967295\r\n"), Ok(None));
    assert_eq!(Scanner::default().next(b"$536870913\r\n"), Err(ReplyError::TooLong));
    assert_eq!(Scanner::default().next(b"$-2\r\n"), Err(ReplyError::Malformed));
    assert_eq!(Scanner::default().next(b"\r\n"), Err(ReplyError::Malformed));
}

proptest! {
    #[test]
    fn a_reply_comes_back(reply in replies()) {
        let mut out = Vec::new();
        reply.encode(&mut out);
        prop_assert_eq!(Reply::from_bytes(&out), Ok(reply));
    }

    #[test]
    fn a_reply_in_pieces_comes_back_once(reply in replies(), piece in 1..9_usize) {
        let mut out = Vec::new();
        reply.encode(&mut out);
        let mut parser = ReplyParser::default();
        for end in (piece..out.len()).step_by(piece) {
            prop_assert_eq!(parser.next(&out[..end]), Ok(None));
        }
        let len = out.len();
        out.extend_from_slice(b"+next\r\n");
        prop_assert_eq!(parser.next(&out), Ok(Some((reply, len))));
        prop_assert_eq!(parser.next(&out[len..]), Ok(Some((Reply::Simple(b"next".to_vec()), 7))));
    }

    #[test]
    fn the_older_form_means_the_same(reply in replies()) {
        let (mut resp3, mut resp2) = (Vec::new(), Vec::new());
        reply.encode(&mut resp3);
        translate_to_resp2(&resp3, &mut resp2);
        prop_assert_eq!(Reply::from_bytes(&resp2), Ok(as_resp2(reply)));
    }

    #[test]
    fn noise_panics_nowhere(bytes in "([-+:$*%~>|_#,(=!][0-9a-z-]{0,6}(\r\n)?){0,6}") {
        let mut out = Vec::new();
        translate_to_resp2(bytes.as_bytes(), &mut out);
        let _ = Reply::from_bytes(bytes.as_bytes());
        let _ = Scanner::default().next(bytes.as_bytes());
    }
}
