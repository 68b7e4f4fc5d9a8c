//! Operations on one key as bytes: these travel between nodes, and
//! [`Interpreter`](crate::Interpreter) runs them.
//!
//! A body is one code byte and the operation's fields. Nodes of different versions exchange bodies,
//! so neither codes nor fields ever change. Decoding is strict: a body must end with its last
//! field.

use bytes::Bytes;
use types::Applied;
use types::limits::RECORD_LEN_MAX;
use types::wire::{Malformed, Reader};

use crate::context::{Context, RunResult};
use crate::errors;

/// One operation on one key. A command's file implements it beside the command's row.
pub(crate) trait Operation<'a>: Sized {
    /// First byte of a body. A code is never reused. Code 0 stays invalid, and 255 stays free for
    /// codes of two bytes.
    const CODE: u8;

    /// Tests hold every version to these bytes.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests alone read examples"))]
    const EXAMPLES: Examples;

    /// Writes all fields. The last one needs no length: see [`rest`].
    fn encode(&self, out: &mut impl Sink);

    /// Reads all fields.
    ///
    /// # Errors
    /// [`Malformed`] when this version does not write such fields.
    fn decode(fields: &mut Reader<'a>) -> Result<Self, Malformed>;

    /// Computes the change and the reply. Runs at any proposer, any number of times.
    ///
    /// # Errors
    /// The reply to a command that fails. The state stays.
    fn run(&self, cx: &Context<'_>) -> RunResult;

    /// The elements of a collection that it reads and changes. `None` if it looks at others, too.
    ///
    /// With the names, [`values::Indexed`] runs it on a part of the collection. The order and the
    /// number of all elements must not matter to it.
    fn names(&self) -> Option<Vec<&'a [u8]>> {
        None
    }

    /// The body: one allocation, none for an operation without fields.
    fn body(&self) -> Bytes {
        let mut len = Length(0);
        self.encode(&mut len);
        if len.0 == 0 {
            return Bytes::from_static(const { &[Self::CODE] });
        }
        // `Bytes` takes over a vector without spare room; it would move any other one.
        let mut body = Vec::with_capacity(1 + len.0);
        body.push(Self::CODE);
        self.encode(&mut body);
        body.into()
    }
}

/// Requests, each with the body that it becomes.
pub(crate) type Examples = &'static [(&'static str, &'static [u8])];

/// An operation without its type, as the table by codes has it.
#[derive(Clone, Copy)]
pub(crate) struct Handler {
    pub(crate) code: u8,
    /// Decodes the fields and runs the operation.
    pub(crate) run: fn(&Context<'_>, &[u8]) -> Applied,
    /// Decodes the fields and names the elements.
    pub(crate) names: for<'a> fn(&'a [u8]) -> Option<Vec<&'a [u8]>>,
    #[cfg(test)]
    pub(crate) name: &'static str,
    #[cfg(test)]
    pub(crate) examples: Examples,
    /// Decodes the fields and encodes them again.
    #[cfg(test)]
    pub(crate) recode: fn(&[u8]) -> Result<Bytes, Malformed>,
}

/// The handlers of types that implement [`Operation`].
macro_rules! handlers {
    ($($operation:ident),*) => {
        &[$(crate::operation::Handler {
            code: <$operation as crate::operation::Operation>::CODE,
            run: |cx, fields| crate::operation::run::<$operation>(cx, fields),
            names: |fields| crate::operation::decode::<$operation>(fields).ok()?.names(),
            #[cfg(test)]
            name: stringify!($operation),
            #[cfg(test)]
            examples: <$operation as crate::operation::Operation>::EXAMPLES,
            #[cfg(test)]
            recode: |fields| Ok(crate::operation::Operation::body(
                &crate::operation::decode::<$operation>(fields)?,
            )),
        }),*]
    };
}
pub(crate) use handlers;

/// Decodes the fields and runs the operation. An error changes no state.
pub(crate) fn run<'a, O: Operation<'a>>(cx: &Context<'_>, fields: &'a [u8]) -> Applied {
    match decode::<O>(fields) {
        Ok(operation) => match operation.run(cx) {
            Ok(applied) => applied,
            Err(error) => Applied::unchanged(error.into()),
        },
        Err(Malformed) => not_understood(),
    }
}

/// The result of a body that this version does not write.
pub(crate) fn not_understood() -> Applied {
    Applied::unchanged(errors::NOT_UNDERSTOOD.into())
}

/// # Errors
/// [`Malformed`] when the fields are incomplete, or bytes follow them.
pub(crate) fn decode<'a, O: Operation<'a>>(fields: &'a [u8]) -> Result<O, Malformed> {
    let mut reader = Reader::new(fields);
    let operation = O::decode(&mut reader)?;
    if reader.is_empty() { Ok(operation) } else { Err(Malformed) }
}

/// Takes the fields of an operation, one after the other.
pub(crate) trait Sink {
    fn bytes(&mut self, bytes: &[u8]);

    fn byte(&mut self, byte: u8) {
        self.bytes(&[byte]);
    }

    fn integer(&mut self, value: i64) {
        self.bytes(&value.to_le_bytes());
    }

    /// An unsigned LEB128 number.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// The last fields: see [`blobs`].
    fn blobs(&mut self, all: &[&[u8]]) {
        all.iter().for_each(|blob| self.blob(blob));
    }

    /// A length and as many bytes.
    fn blob(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.bytes(bytes);
    }
}

impl Sink for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts bytes.
struct Length(usize);

impl Sink for Length {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// A last field of any length.
pub(crate) fn rest<'a>(fields: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    fields.take(fields.rest().len())
}

/// Last fields, at least one, each behind its length.
pub(crate) fn blobs<'a>(fields: &mut Reader<'a>) -> Result<Vec<&'a [u8]>, Malformed> {
    let mut all = vec![fields.blob(RECORD_LEN_MAX)?];
    while !fields.is_empty() {
        all.push(fields.blob(RECORD_LEN_MAX)?);
    }
    Ok(all)
}

pub(crate) fn integer(fields: &mut Reader<'_>) -> Result<i64, Malformed> {
    Ok(fields.u64()?.cast_signed())
}

/// The variant whose discriminant `byte` is; `all` lists the variants in that order.
pub(crate) fn variant<T: Copy>(all: &[T], byte: u8) -> Result<T, Malformed> {
    all.get(usize::from(byte)).copied().ok_or(Malformed)
}
