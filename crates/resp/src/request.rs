//! The request parser.
//!
//! Arguments stay where they are; a request is a list of ranges. Only inline requests, whose words
//! may hold escapes, are copied. The parser remembers how far it came, so a big argument in many
//! pieces is looked at once. Every length is checked before anything is reserved for it.
//!
//! Limits, order of checks and texts are those of `processMultibulkBuffer` and
//! `processInlineBuffer`, redis-server 7.0.15. Departures: a request has at most 4 Mi arguments and
//! a greatest length, and lines are measured by where they end, not by how they arrived.

use base::decimal::parse_i64;
use smallvec::SmallVec;

use crate::encode;
use crate::inline::split_args;
use crate::scan::{BULK_LEN_MAX, LINE_LEN_MAX, LineEnd, line_end};

/// Arguments of one request. Redis 7 takes 2^31, which a request of the greatest length cannot
/// hold.
const ARGS_MAX: usize = 4 * 1024 * 1024;

/// Limits for a client that has not authenticated (Redis 6.2, CVE-2021-32675).
const UNAUTHENTICATED_ARGS_MAX: usize = 10;
const UNAUTHENTICATED_BULK_LEN_MAX: usize = 16 * 1024;

/// A parser keeps room for this many arguments, and bytes of inline words, between requests.
const KEEP_ARGS: usize = 1024;
const KEEP_WORD_BYTES: usize = 1024;

/// Limits of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of one argument (`proto-max-bulk-len`).
    pub bulk_len_max: usize,
    /// Bytes of one request, all arguments and headers; below 4 GiB (ranges have 32 bits).
    pub request_len_max: usize,
    /// False while the client must still authenticate: it may then send 10 arguments of 16 KiB.
    pub authenticated: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bulk_len_max: BULK_LEN_MAX,
            request_len_max: 2 * BULK_LEN_MAX,
            authenticated: true,
        }
    }
}

/// The client does not speak RESP, or beyond the limits. Send [`ProtocolError::encode`]'s reply and
/// close.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    #[error("Protocol error: too big mbulk count string")]
    CountLineTooBig,
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedCount,
    #[error("Protocol error: too big bulk count string")]
    BulkLineTooBig,
    /// Holds the byte that stands in the dollar's place.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0))]
    ExpectedDollar(u8),
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLen,
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLen,
    #[error("Protocol error: too big request")]
    RequestTooBig,
}

impl ProtocolError {
    /// Appends the error reply that redis-server sends before it closes the connection.
    pub fn encode(self, out: &mut Vec<u8>) {
        encode::error(out, &self.text());
    }

    /// The text of that reply.
    #[must_use]
    pub fn text(self) -> Vec<u8> {
        let mut text = b"ERR ".to_vec();
        match self {
            // The byte itself, which need not be a character.
            ProtocolError::ExpectedDollar(byte) => {
                text.extend_from_slice(b"Protocol error: expected '$', got '");
                text.extend_from_slice(&[byte, b'\'']);
            }
            other => text.extend_from_slice(other.to_string().as_bytes()),
        }
        text
    }
}

/// How far the front of a buffer could be parsed.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A request with at least one argument.
    Command(Request<'a>),
    /// An empty line or `*0`, which has no reply. Drop `consumed` bytes and continue.
    Blank { consumed: usize },
    /// Come back with the same bytes and more; fewer than `missing` more change nothing.
    NeedMore { missing: usize },
}

/// One request, borrowed from the buffer it stands in.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    bytes: &'a [u8],
    args: &'a [(u32, u32)],
    consumed: usize,
}

impl<'a> Request<'a> {
    /// Bytes of the buffer that this request took; drop them before the next call.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.consumed
    }

    /// Arguments with the command's name, at least one.
    #[must_use]
    pub fn argc(&self) -> usize {
        self.args.len()
    }

    /// Argument `index`, the command's name being 0.
    #[must_use]
    pub fn arg(&self, index: usize) -> Option<&'a [u8]> {
        let &(start, end) = self.args.get(index)?;
        Some(&self.bytes[start as usize..end as usize])
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.args.iter().map(move |&(start, end)| &bytes[start as usize..end as usize])
    }

    /// All arguments; allocates beyond eight.
    #[must_use]
    pub fn args(&self) -> SmallVec<[&'a [u8]; 8]> {
        self.iter().collect()
    }
}

/// Takes requests off the front of a buffer that grows at its end.
///
/// ```
/// use resp::{Parser, Progress};
/// let mut parser = Parser::default();
/// let mut buf: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n*1\r\n$4";
/// let mut seen = 0;
/// loop {
///     match parser.next(buf).expect("this is RESP") {
///         Progress::Command(request) => {
///             seen += request.argc();
///             buf = &buf[request.consumed()..];
///         }
///         Progress::Blank { consumed } => buf = &buf[consumed..],
///         Progress::NeedMore { .. } => break,
///     }
/// }
/// assert_eq!((seen, buf), (3, b"*1\r\n$4".as_slice()));
/// ```
#[derive(Clone, Default, Debug)]
pub struct Parser {
    pub limits: Limits,
    /// Bytes at the front of the buffer that are understood.
    at: usize,
    /// No line end is before here.
    scanned: usize,
    /// Arguments announced and not yet complete; zero between requests.
    missing: usize,
    /// The announced length of the argument at `at`.
    bulk_len: Option<usize>,
    /// Complete arguments, as ranges of the buffer, or of `words` for an inline request.
    args: Vec<(u32, u32)>,
    words: Vec<u8>,
}

impl Parser {
    #[must_use]
    pub fn new(limits: Limits) -> Parser {
        Parser { limits, ..Parser::default() }
    }

    /// The request at the front of `buf`. After [`Progress::Command`] and [`Progress::Blank`] the
    /// caller drops the consumed bytes; after [`Progress::NeedMore`] it keeps them all and appends.
    ///
    /// # Errors
    /// [`ProtocolError`]: the connection is of no further use.
    pub fn next<'a>(&'a mut self, buf: &'a [u8]) -> Result<Progress<'a>, ProtocolError> {
        if self.missing == 0 {
            match buf.first() {
                Some(b'*') => match self.count(buf)? {
                    None => return Ok(Progress::NeedMore { missing: 1 }),
                    Some(0) => return Ok(Progress::Blank { consumed: self.start_over() }),
                    Some(count) => self.begin(count),
                },
                Some(_) => return self.inline(buf),
                None => return Ok(Progress::NeedMore { missing: 1 }),
            }
        }
        while self.missing > 0 {
            if let Some(missing) = self.argument(buf)? {
                return Ok(Progress::NeedMore { missing });
            }
        }
        let consumed = self.start_over();
        Ok(Progress::Command(Request { bytes: buf, args: &self.args, consumed }))
    }

    fn begin(&mut self, count: usize) {
        self.missing = count;
        self.args.clear();
        self.args.shrink_to(KEEP_ARGS);
        self.args.reserve(count.min(KEEP_ARGS));
    }

    /// Resets the parser for the next request. Returns the length of this one.
    fn start_over(&mut self) -> usize {
        self.scanned = 0;
        std::mem::take(&mut self.at)
    }

    /// Reads `*count`; a negative count is none.
    fn count(&mut self, buf: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(number) = self.number_line(buf, ProtocolError::CountLineTooBig)? else {
            return Ok(None);
        };
        let count = number.filter(|&n| n <= ARGS_MAX as i64).ok_or(ProtocolError::InvalidCount)?;
        if !self.limits.authenticated && count > UNAUTHENTICATED_ARGS_MAX as i64 {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        Ok(Some(usize::try_from(count).unwrap_or(0)))
    }

    /// Reads one argument; `Some(bytes)` when so many are missing at least.
    fn argument(&mut self, buf: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let len = match self.bulk_len {
            Some(len) => len,
            None => match self.bulk_len(buf)? {
                Some(len) => len,
                None => return Ok(Some(1)),
            },
        };
        let end = self.at + len;
        if buf.len() < end + 2 {
            self.bulk_len = Some(len);
            return Ok(Some(end + 2 - buf.len()));
        }
        // redis-server does not look at the two bytes behind an argument either.
        self.args.push((self.at as u32, end as u32));
        self.at = end + 2;
        self.bulk_len = None;
        self.missing -= 1;
        Ok(None)
    }

    /// Reads `$len`.
    fn bulk_len(&mut self, buf: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let line_at = self.at;
        let Some(number) = self.number_line(buf, ProtocolError::BulkLineTooBig)? else {
            return Ok(None);
        };
        if buf[line_at] != b'$' {
            return Err(ProtocolError::ExpectedDollar(buf[line_at]));
        }
        let len = number
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&len| len <= self.limits.bulk_len_max)
            .ok_or(ProtocolError::InvalidBulkLen)?;
        if !self.limits.authenticated && len > UNAUTHENTICATED_BULK_LEN_MAX {
            return Err(ProtocolError::UnauthenticatedBulkLen);
        }
        if self.at + len + 2 > self.limits.request_len_max.min(u32::MAX as usize) {
            return Err(ProtocolError::RequestTooBig);
        }
        Ok(Some(len))
    }

    /// Steps over a line that is a type byte and a number. The outer `None` is an unfinished line,
    /// the inner one a line that is no number.
    fn number_line(
        &mut self,
        buf: &[u8],
        too_big: ProtocolError,
    ) -> Result<Option<Option<i64>>, ProtocolError> {
        if let Some((number, next)) = short_number(buf, self.at) {
            self.at = next;
            return Ok(Some(Some(number)));
        }
        match line_end(buf, self.at, &mut self.scanned) {
            LineEnd::At(end) => {
                // A line may be empty: `get` instead of a slice.
                let number = buf.get(self.at + 1..end).and_then(parse_i64);
                self.at = end + 2;
                Ok(Some(number))
            }
            LineEnd::NeedMore => Ok(None),
            LineEnd::TooLong => Err(too_big),
        }
    }

    fn inline<'a>(&'a mut self, buf: &'a [u8]) -> Result<Progress<'a>, ProtocolError> {
        let limit = buf.len().min(LINE_LEN_MAX + 1);
        let from = self.scanned.min(limit);
        let Some(offset) = buf[from..limit].iter().position(|&byte| byte == b'\n') else {
            if limit > LINE_LEN_MAX {
                return Err(ProtocolError::InlineTooBig);
            }
            self.scanned = limit;
            return Ok(Progress::NeedMore { missing: 1 });
        };
        let end = from + offset;
        let line = buf[..end].strip_suffix(b"\r").unwrap_or(&buf[..end]);
        self.words.clear();
        self.words.shrink_to(KEEP_WORD_BYTES);
        self.args.clear();
        split_args(line, &mut self.words, &mut self.args)
            .map_err(|_| ProtocolError::UnbalancedQuotes)?;
        self.start_over();
        let consumed = end + 1;
        if self.args.is_empty() {
            return Ok(Progress::Blank { consumed });
        }
        Ok(Progress::Command(Request { bytes: &self.words, args: &self.args, consumed }))
    }
}

/// The usual number line: one to nine digits and a whole line end. Returns the bytes behind it,
/// too.
#[inline]
fn short_number(buf: &[u8], at: usize) -> Option<(i64, usize)> {
    let digits = buf.get(at + 1..)?;
    let mut number = 0_i64;
    for (len, &byte) in digits.iter().take(10).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let is_whole = byte == b'\r' && len > 0 && len + 1 < digits.len();
            let is_canonical = digits[0] != b'0' || len == 1;
            return (is_whole && is_canonical).then_some((number, at + len + 3));
        }
        number = number * 10 + i64::from(digit);
    }
    None
}
