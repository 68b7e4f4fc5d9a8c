//! Lists: the commands on them, and how an operation reads and replaces one.

mod encoding;
mod position;

use types::{Applied, Change, ExpiryChange, Reply};
use values::list::{self, Encoding};
use values::{Blobs, List, blobs};

use crate::context::{Context, RunResult};
use crate::errors::{self, ErrorReply};
use crate::operation;

crate::module::modules! {
    lindex,
    linsert,
    llen,
    lmove,
    lmpop,
    lpos,
    lrange,
    lrem,
    lset,
    ltrim,
    pop,
    push,
}

const OUT_OF_RANGE: ErrorReply = errors::fixed(
    b"ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);

/// An end of a list. Variants stand in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Left,
    Right,
}

const SIDES: [Side; 2] = [Side::Left, Side::Right];

impl Side {
    /// # Errors
    /// A syntax error unless `word` is `LEFT` or `RIGHT`.
    fn parse(word: &[u8]) -> Result<Side, ErrorReply> {
        match word {
            word if word.eq_ignore_ascii_case(b"left") => Ok(Side::Left),
            word if word.eq_ignore_ascii_case(b"right") => Ok(Side::Right),
            _ => Err(errors::SYNTAX),
        }
    }

    fn decode(byte: u8) -> Result<Side, types::Malformed> {
        operation::variant(&SIDES, byte)
    }
}

impl<'a> Context<'a> {
    /// The list at the key, `None` if there is no key.
    ///
    /// # Errors
    /// `WRONGTYPE` if the key holds another type.
    fn list(&self) -> Result<Option<List<'a>>, ErrorReply> {
        Ok(self.view.value.map(list::decode).transpose()?)
    }

    /// Puts the list of the encoded elements that `parts` make up.
    ///
    /// # Errors
    /// `value too large`.
    fn put_list(&self, encoding: Encoding, parts: &[&[u8]], reply: Reply) -> RunResult {
        Ok(Applied { change: self.change_list(encoding, parts)?, reply })
    }

    /// Deletes the key if no element is left.
    ///
    /// # Errors
    /// `value too large`.
    fn change_list(&self, encoding: Encoding, parts: &[&[u8]]) -> Result<Change, ErrorReply> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 {
            return Ok(Change::Delete);
        }
        let old_len = self.view.value.map_or(0, <[u8]>::len);
        self.check_len(old_len, (list::OVERHEAD + len) as u64)?;
        let value = list::encode_parts(encoding, parts);
        Ok(Change::Put { value, expiry: ExpiryChange::Keep })
    }
}

/// The encoding of a list that consists of these encoded elements from the start.
pub(crate) fn encoding_of(elements: &[u8]) -> Encoding {
    encoding::of_new(elements)
}

/// The encoded element.
fn encode(element: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(blobs::encoded_len(element.len()));
    blobs::put(&mut encoded, element);
    encoded
}

/// Takes at most `count` elements off one side: them and the rest.
fn split_off<'a>(list: List<'a>, side: Side, count: usize) -> (Blobs<'a>, Blobs<'a>) {
    match side {
        Side::Left => list.elements.split_at(count),
        Side::Right => {
            let (rest, taken) = list.elements.split_at(list.elements.len().saturating_sub(count));
            (taken, rest)
        }
    }
}

/// Elements in the order in which they leave one side.
fn popped(taken: Blobs<'_>, side: Side) -> Reply {
    let mut replies: Vec<Reply> = taken.iter().map(Reply::copy).collect();
    if side == Side::Right {
        replies.reverse();
    }
    Reply::Array(replies)
}

/// Encoded elements that come to `old` at one side.
fn joined<'a>(old: Blobs<'a>, side: Side, new: &'a [u8]) -> [&'a [u8]; 2] {
    match side {
        Side::Left => [new, old.bytes()],
        Side::Right => [old.bytes(), new],
    }
}
