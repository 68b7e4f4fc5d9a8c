//! Finding where things end: a line, and a whole reply, without building anything.

use base::decimal::parse_i64;

use crate::reply::ReplyError;

/// Longest line: a length, a simple string, an error, an inline request (`PROTO_INLINE_MAX_SIZE`,
/// Redis 7).
pub(crate) const LINE_LEN_MAX: usize = 64 * 1024;

/// Longest bulk string (the largest `proto-max-bulk-len` of Redis 7 by default).
pub(crate) const BULK_LEN_MAX: usize = 512 * 1024 * 1024;

/// Where a line ends.
pub(crate) enum LineEnd {
    /// Index of its last byte's successor, the carriage return.
    At(usize),
    NeedMore,
    TooLong,
}

/// Looks for the `\r` that ends the line which starts at `at`, with one more byte behind it.
/// `scanned` remembers how far earlier calls have looked, so that a line in pieces costs its length
/// once.
pub(crate) fn line_end(buf: &[u8], at: usize, scanned: &mut usize) -> LineEnd {
    let limit = buf.len().min(at + LINE_LEN_MAX + 1);
    let from = at.max(*scanned).min(limit);
    match buf[from..limit].iter().position(|&byte| byte == b'\r') {
        Some(offset) if from + offset + 1 < buf.len() => LineEnd::At(from + offset),
        Some(offset) => {
            *scanned = from + offset;
            LineEnd::NeedMore
        }
        None if limit - at > LINE_LEN_MAX => LineEnd::TooLong,
        None => {
            *scanned = limit;
            LineEnd::NeedMore
        }
    }
}

/// Finds the end of one reply that arrives in pieces, in time proportional to its length.
#[derive(Clone, Debug)]
pub struct Scanner {
    at: usize,
    scanned: usize,
    /// Elements that must still begin; the reply is whole when it is zero.
    pending: u64,
}

impl Default for Scanner {
    fn default() -> Scanner {
        Scanner { at: 0, scanned: 0, pending: 1 }
    }
}

/// Most elements of an aggregate in a reply.
const PENDING_MAX: u64 = 1 << 40;

impl Scanner {
    /// The length of the reply at the front of `buf`, `None` while it is incomplete: call again
    /// with the same bytes and more. After a length the scanner stands before the next reply.
    ///
    /// # Errors
    /// [`ReplyError`] when this is no RESP; the connection is then of no further use.
    pub fn next(&mut self, buf: &[u8]) -> Result<Option<usize>, ReplyError> {
        while self.pending > 0 {
            if !self.element(buf)? {
                return Ok(None);
            }
        }
        let len = self.at;
        *self = Scanner::default();
        Ok(Some(len))
    }

    /// Steps over one element's line and content; false when it is not all here.
    fn element(&mut self, buf: &[u8]) -> Result<bool, ReplyError> {
        let end = match line_end(buf, self.at, &mut self.scanned) {
            LineEnd::At(end) => end,
            LineEnd::NeedMore => return Ok(false),
            LineEnd::TooLong => return Err(ReplyError::TooLong),
        };
        if buf[end + 1] != b'\n' || end == self.at {
            return Err(ReplyError::Malformed);
        }
        let text = &buf[self.at + 1..end];
        let (content, more) = match buf[self.at] {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => (0, 0),
            b'$' | b'=' | b'!' => (bulk_len(text)?.map_or(0, |len| len + 2), 0),
            b'*' | b'~' | b'>' => (0, elements(text)?),
            b'%' => (0, 2 * elements(text)?),
            // An attribute stands before the element that it describes and does not count as one.
            b'|' => (0, 2 * elements(text)? + 1),
            _ => return Err(ReplyError::Malformed),
        };
        let next = end + 2 + content;
        if next > buf.len() {
            self.scanned = end;
            return Ok(false);
        }
        self.at = next;
        self.scanned = next;
        self.pending = self.pending - 1 + more;
        if self.pending > PENDING_MAX { Err(ReplyError::TooLong) } else { Ok(true) }
    }
}

/// `None` is RESP2's null.
pub(crate) fn bulk_len(text: &[u8]) -> Result<Option<usize>, ReplyError> {
    match parse_i64(text).ok_or(ReplyError::Malformed)? {
        -1 => Ok(None),
        len if (0..=BULK_LEN_MAX as i64).contains(&len) => Ok(Some(len as usize)),
        len if len < 0 => Err(ReplyError::Malformed),
        _ => Err(ReplyError::TooLong),
    }
}

/// Elements of an aggregate; RESP2's null array has none.
pub(crate) fn elements(text: &[u8]) -> Result<u64, ReplyError> {
    match parse_i64(text).ok_or(ReplyError::Malformed)? {
        -1 => Ok(0),
        count if (0..=i64::from(u32::MAX)).contains(&count) => Ok(count as u64),
        count if count < 0 => Err(ReplyError::Malformed),
        _ => Err(ReplyError::TooLong),
    }
}
