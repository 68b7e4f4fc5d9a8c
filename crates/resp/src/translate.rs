//! From RESP3 to RESP2, for clients that did not say `HELLO 3`.
//!
//! One pass over the headers, no tree: an aggregate's elements translate one by one, whatever holds
//! them.

use base::decimal::parse_i64;

use crate::encode;
use crate::scan::{self, LineEnd};

/// Appends the RESP2 form of one or more whole RESP3 replies: null `_` becomes `$-1`, maps, sets
/// and pushes become arrays, doubles, big numbers and verbatim strings become bulk strings,
/// booleans become integers, attributes are dropped. RESP2 stays as it is.
///
/// Bytes that are not RESP become one error reply, so that a client never loses step.
pub fn translate_to_resp2(resp3: &[u8], out: &mut Vec<u8>) {
    // These elements hold no others: skip them whole.
    if let Some(b'+' | b'-' | b':' | b'$') = resp3.first() {
        out.extend_from_slice(resp3);
        return;
    }
    let start = out.len();
    let mut reader = Translator { rest: resp3 };
    while !reader.rest.is_empty() {
        if reader.element(Some(out)).is_none() {
            out.truncate(start);
            encode::error(out, b"ERR internal error: a reply that is not RESP3");
            return;
        }
    }
}

struct Translator<'a> {
    rest: &'a [u8],
}

impl<'a> Translator<'a> {
    /// Steps over one header and its content, written to `out` if there is one. Returns how many
    /// elements it announces, `None` for bytes that are not RESP.
    fn element(&mut self, out: Option<&mut Vec<u8>>) -> Option<u64> {
        let mut unwanted = Vec::new();
        let out = out.unwrap_or(&mut unwanted);
        let (kind, text) = self.line()?;
        match kind {
            b'+' | b'-' | b':' => {
                out.push(kind);
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            b'_' => encode::null_bulk(out),
            b'#' => encode::integer(out, i64::from(text == b"t")),
            b',' | b'(' => encode::bulk(out, text),
            b'$' => match scan::bulk_len(text).ok()? {
                Some(len) => encode::bulk(out, self.content(len)?),
                None => encode::null_bulk(out),
            },
            b'=' => {
                let len = scan::bulk_len(text).ok()??;
                encode::bulk(out, self.content(len)?.get(4..)?);
            }
            b'!' => {
                let len = scan::bulk_len(text).ok()??;
                encode::error(out, self.content(len)?);
            }
            b'*' if text == b"-1" => encode::null_array(out),
            b'*' | b'~' | b'>' => return announce(out, scan::elements(text).ok()?),
            b'%' => return announce(out, 2 * scan::elements(text).ok()?),
            b'|' => self.skip(2 * scan::elements(text).ok()?)?,
            _ => return None,
        }
        Some(0)
    }

    /// Steps over `pending` elements and all that they hold.
    fn skip(&mut self, mut pending: u64) -> Option<()> {
        while pending > 0 {
            // An attribute is skipped as two elements per pair and the element that it describes.
            pending -= 1;
            if let [b'|', ..] = self.rest {
                let (_, text) = self.line()?;
                pending = pending.checked_add(2 * scan::elements(text).ok()? + 1)?;
            } else {
                pending = pending.checked_add(self.element(None)?)?;
            }
        }
        Some(())
    }

    fn line(&mut self) -> Option<(u8, &'a [u8])> {
        let LineEnd::At(end) = scan::line_end(self.rest, 0, &mut 0) else { return None };
        let (line, rest) = (&self.rest[..end], &self.rest[end..]);
        self.rest = rest.strip_prefix(b"\r\n")?;
        let (kind, text) = line.split_first()?;
        let is_sound = match kind {
            b':' => parse_i64(text).is_some(),
            _ => true,
        };
        is_sound.then_some((*kind, text))
    }

    fn content(&mut self, len: usize) -> Option<&'a [u8]> {
        let (content, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest.strip_prefix(b"\r\n")?;
        Some(content)
    }
}

fn announce(out: &mut Vec<u8>, count: u64) -> Option<u64> {
    encode::array(out, usize::try_from(count).ok()?);
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(resp3: &str, resp2: &str) {
        let mut out = b"before".to_vec();
        translate_to_resp2(resp3.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("before{resp2}"), "{resp3:?}");
    }

    #[test]
    fn resp2_stays_as_it_is() {
        for reply in ["+OK\r\n", "-ERR x\r\n", ":1\r\n", "$1\r\na\r\n", "$-1\r\n", "*-1\r\n"] {
            check(reply, reply);
        }
        check("*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n");
    }

    #[test]
    fn each_resp3_type_has_its_older_form() {
        check("_\r\n", "$-1\r\n");
        check("#t\r\n", ":1\r\n");
        check("#f\r\n", ":0\r\n");
        check(",1.5\r\n", "$3\r\n1.5\r\n");
        check("(-12\r\n", "$3\r\n-12\r\n");
        check("=7\r\ntxt:abc\r\n", "$3\r\nabc\r\n");
        check("!5\r\nERR x\r\n", "-ERR x\r\n");
        check("%1\r\n+a\r\n_\r\n", "*2\r\n+a\r\n$-1\r\n");
        check("~2\r\n:1\r\n:2\r\n", "*2\r\n:1\r\n:2\r\n");
        check(">1\r\n+m\r\n", "*1\r\n+m\r\n");
        check("*2\r\n%1\r\n+a\r\n~1\r\n#t\r\n_\r\n", "*2\r\n*2\r\n+a\r\n*1\r\n:1\r\n$-1\r\n");
    }

    #[test]
    fn attributes_are_dropped_with_all_they_hold() {
        check("|1\r\n+k\r\n%1\r\n+a\r\n*1\r\n:1\r\n:7\r\n", ":7\r\n");
        check("*1\r\n|1\r\n+k\r\n|1\r\n+x\r\n+y\r\n+v\r\n:7\r\n", "*1\r\n:7\r\n");
    }

    #[test]
    fn bytes_that_are_not_resp_become_an_error() {
        for bytes in
            ["x\r\n", "*1", "*1\r\n$5\r\nab\r\n", "%-5\r\n", "=2\r\nab\r\n", "*1\r\n:x\r\n"]
        {
            check(bytes, "-ERR internal error: a reply that is not RESP3\r\n");
        }
    }
}
