//! Finds the end of a reply. Parses no more of it than a load generator needs.

use crate::{Error, Result};

/// Replies nest no deeper than this.
const DEPTH_MAX: usize = 8;

/// The outcome of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyStatus<'a> {
    Good,
    Integer(i64),
    /// The text behind the dash.
    Bad(&'a [u8]),
}

/// The first reply in `bytes` and its length, `None` while it is incomplete.
///
/// # Errors
/// When the bytes are no RESP.
pub(crate) fn first(bytes: &[u8]) -> Result<Option<(ReplyStatus<'_>, usize)>> {
    let Some(end) = end_of_line(bytes, 0) else { return Ok(None) };
    let line = &bytes[1..end - 2];
    match bytes[0] {
        b'+' | b'_' | b'#' | b',' | b'(' => Ok(Some((ReplyStatus::Good, end))),
        b'-' => Ok(Some((ReplyStatus::Bad(line), end))),
        b':' => Ok(Some((ReplyStatus::Integer(number(line)?), end))),
        _ => Ok(skip(bytes, 0, 0)?.map(|end| (ReplyStatus::Good, end))),
    }
}

/// The position behind the reply that starts at `at`.
fn skip(bytes: &[u8], at: usize, depth: usize) -> Result<Option<usize>> {
    if depth > DEPTH_MAX {
        return Err(Error::Protocol("a reply nests too deeply".to_string()));
    }
    let Some(end) = end_of_line(bytes, at) else { return Ok(None) };
    let line = &bytes[at + 1..end - 2];
    let elements = match bytes[at] {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => return Ok(Some(end)),
        b'$' | b'=' | b'!' => {
            // $-1: nil
            let Ok(length) = usize::try_from(number(line)?) else { return Ok(Some(end)) };
            let behind = end + length + 2;
            return Ok((behind <= bytes.len()).then_some(behind));
        }
        b'*' | b'~' | b'>' => number(line)?,
        b'%' => number(line)? * 2,
        other => return Err(Error::Protocol(format!("a reply begins with {:?}", other as char))),
    };
    let mut at = end;
    for _ in 0..elements {
        match skip(bytes, at, depth + 1)? {
            Some(behind) => at = behind,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The position behind the first CRLF at or after `at`.
fn end_of_line(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let found = rest.iter().position(|&byte| byte == b'\n')?;
    (found >= 2).then_some(at + found + 1)
}

fn number(line: &[u8]) -> Result<i64> {
    let text = std::str::from_utf8(line).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::Protocol(format!("{:?} is no number", String::from_utf8_lossy(line))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: ReplyStatus<'_>) {
        let whole = first(bytes).expect("well formed");
        assert_eq!(whole, Some((expected, bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(first(&bytes[..cut]).expect("well formed so far"), None, "cut at {cut}");
        }
    }

    #[test]
    fn replies_end_where_they_end() {
        check(b"+OK\r\n", ReplyStatus::Good);
        check(b":-12\r\n", ReplyStatus::Integer(-12));
        check(b"-UNKNOWN no quorum\r\n", ReplyStatus::Bad(b"UNKNOWN no quorum"));
        check(b"$3\r\na\r\n\r\n", ReplyStatus::Good);
        check(b"$-1\r\n", ReplyStatus::Good);
        check(b"_\r\n", ReplyStatus::Good);
        check(b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", ReplyStatus::Good);
        check(b"%1\r\n+a\r\n+b\r\n", ReplyStatus::Good);
    }

    #[test]
    fn invalid_reply_is_an_error() {
        assert!(first(b"hello\r\n").is_err());
        assert!(first(b"$x\r\n").is_err());
        assert!(first("*1\r\n".repeat(DEPTH_MAX + 3).as_bytes()).is_err());
    }
}
