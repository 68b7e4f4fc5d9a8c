//! Decodes replies, RESP2 and RESP3, for tests and benchmarks.

use base::decimal::parse_i64;

use crate::encode;
use crate::scan::{self, Scanner};

/// One reply.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Simple(Vec<u8>),
    /// Starts with its code: `ERR …`.
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    /// RESP3's null and both of RESP2's.
    Null,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    /// Out of band: belongs to no request.
    Push(Vec<Reply>),
    Double(f64),
    Boolean(bool),
    Verbatim {
        format: [u8; 3],
        text: Vec<u8>,
    },
    BigNumber(Vec<u8>),
}

impl Reply {
    /// Appends the reply as RESP3.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let all_of = |out: &mut Vec<u8>, header: fn(&mut Vec<u8>, usize), all: &[Reply]| {
            header(out, all.len());
            all.iter().for_each(|reply| reply.encode(out));
        };
        match self {
            Reply::Simple(text) => encode::simple(out, text),
            Reply::Error(text) => encode::error(out, text),
            Reply::Integer(value) => encode::integer(out, *value),
            Reply::Bulk(bytes) => encode::bulk(out, bytes),
            Reply::Null => encode::null(out),
            Reply::Double(value) => encode::double(out, *value),
            Reply::Boolean(value) => encode::boolean(out, *value),
            Reply::Verbatim { format, text } => encode::verbatim(out, *format, text),
            Reply::BigNumber(digits) => encode::big_number(out, digits),
            Reply::Array(all) => all_of(out, encode::array, all),
            Reply::Set(all) => all_of(out, encode::set, all),
            Reply::Push(all) => all_of(out, encode::push, all),
            Reply::Map(pairs) => {
                encode::map(out, pairs.len());
                for reply in pairs.iter().flat_map(|(key, value)| [key, value]) {
                    reply.encode(out);
                }
            }
        }
    }
}

/// The peer does not speak RESP, or beyond the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplyError {
    #[error("malformed reply")]
    Malformed,
    #[error("reply too long")]
    TooLong,
    #[error("reply nested too deeply")]
    TooDeep,
}

/// Aggregates within aggregates; `COMMAND DOCS`, the deepest of Redis, needs about a dozen.
const DEPTH_MAX: usize = 64;

/// Decodes replies from a buffer that grows. Attributes are dropped.
#[derive(Clone, Default, Debug)]
pub struct ReplyParser {
    scanner: Scanner,
}

impl ReplyParser {
    /// The reply at the front of `buf` and its length in bytes, `None` while it is incomplete: call
    /// again with the same bytes and more.
    ///
    /// # Errors
    /// [`ReplyError`] when this is no RESP; close the connection.
    pub fn next(&mut self, buf: &[u8]) -> Result<Option<(Reply, usize)>, ReplyError> {
        let Some(len) = self.scanner.next(buf)? else { return Ok(None) };
        let mut decoder = Decoder { rest: &buf[..len] };
        Ok(Some((decoder.element(0)?, len)))
    }
}

impl Reply {
    /// Decodes bytes that hold exactly one reply.
    ///
    /// # Errors
    /// [`ReplyError`] when they do not.
    pub fn from_bytes(bytes: &[u8]) -> Result<Reply, ReplyError> {
        match ReplyParser::default().next(bytes)? {
            Some((reply, len)) if len == bytes.len() => Ok(reply),
            _ => Err(ReplyError::Malformed),
        }
    }
}

struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    fn element(&mut self, depth: usize) -> Result<Reply, ReplyError> {
        if depth > DEPTH_MAX {
            return Err(ReplyError::TooDeep);
        }
        let (kind, text) = self.line()?;
        Ok(match kind {
            b'+' => Reply::Simple(text.to_vec()),
            b'-' => Reply::Error(text.to_vec()),
            b':' => Reply::Integer(parse_i64(text).ok_or(ReplyError::Malformed)?),
            b'_' => Reply::Null,
            b'#' => Reply::Boolean(match text {
                b"t" => true,
                b"f" => false,
                _ => return Err(ReplyError::Malformed),
            }),
            b',' => Reply::Double(double(text)?),
            b'(' => Reply::BigNumber(text.to_vec()),
            b'$' => self.content(text)?.map_or(Reply::Null, |bytes| Reply::Bulk(bytes.to_vec())),
            b'!' => self.content(text)?.map_or(Reply::Null, |bytes| Reply::Error(bytes.to_vec())),
            b'=' => verbatim(self.content(text)?.ok_or(ReplyError::Malformed)?)?,
            b'*' if text == b"-1" => Reply::Null,
            b'*' => Reply::Array(self.elements(text, depth)?),
            b'~' => Reply::Set(self.elements(text, depth)?),
            b'>' => Reply::Push(self.elements(text, depth)?),
            b'%' => Reply::Map(self.pairs(text, depth)?),
            b'|' => {
                self.pairs(text, depth)?;
                self.element(depth + 1)?
            }
            _ => return Err(ReplyError::Malformed),
        })
    }

    fn line(&mut self) -> Result<(u8, &'a [u8]), ReplyError> {
        let end = self.rest.iter().position(|&byte| byte == b'\r').ok_or(ReplyError::Malformed)?;
        let line = self.take(end)?;
        self.take(2)?;
        match line {
            [kind, text @ ..] => Ok((*kind, text)),
            [] => Err(ReplyError::Malformed),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ReplyError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(ReplyError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn content(&mut self, text: &[u8]) -> Result<Option<&'a [u8]>, ReplyError> {
        let Some(len) = scan::bulk_len(text)? else { return Ok(None) };
        let bytes = self.take(len)?;
        if self.take(2)? != b"\r\n" {
            return Err(ReplyError::Malformed);
        }
        Ok(Some(bytes))
    }

    fn elements(&mut self, text: &[u8], depth: usize) -> Result<Vec<Reply>, ReplyError> {
        let count = scan::elements(text)? as usize;
        // The smallest element has three bytes: the bytes that arrived bound the allocation.
        let mut all = Vec::with_capacity(count.min(self.rest.len() / 3));
        for _ in 0..count {
            all.push(self.element(depth + 1)?);
        }
        Ok(all)
    }

    fn pairs(&mut self, text: &[u8], depth: usize) -> Result<Vec<(Reply, Reply)>, ReplyError> {
        let count = scan::elements(text)? as usize;
        let mut all = Vec::with_capacity(count.min(self.rest.len() / 6));
        for _ in 0..count {
            all.push((self.element(depth + 1)?, self.element(depth + 1)?));
        }
        Ok(all)
    }
}

fn double(text: &[u8]) -> Result<f64, ReplyError> {
    let text = std::str::from_utf8(text).map_err(|_| ReplyError::Malformed)?;
    text.parse().map_err(|_| ReplyError::Malformed)
}

fn verbatim(content: &[u8]) -> Result<Reply, ReplyError> {
    match content {
        [a, b, c, b':', text @ ..] => {
            Ok(Reply::Verbatim { format: [*a, *b, *c], text: text.to_vec() })
        }
        _ => Err(ReplyError::Malformed),
    }
}
