//! Numbers and strings of a dump.

use std::borrow::Cow;

use super::listpack::Element;
use super::{Elements, LoadError, lzf};
use crate::blobs;

/// Marks of the two high bits of a length.
const LEN_6: u8 = 0;
const LEN_14: u8 = 1;
const SPECIAL: u8 = 3;
/// First bytes of longer lengths.
const LEN_32: u8 = 0x80;
const LEN_64: u8 = 0x81;
/// Strings in a special form.
const INT_8: u8 = 0;
const INT_16: u8 = 1;
const INT_32: u8 = 2;
const LZF: u8 = 3;

/// The rest of a dump, and the bytes that may still be allocated for it.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    limit: usize,
    left: usize,
}

enum Len {
    Plain(u64),
    Special(u8),
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], limit: usize) -> Reader<'a> {
        Reader { rest: bytes, limit, left: limit }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], LoadError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(LoadError::Format)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(LoadError::Format)?;
        self.rest = rest;
        Ok(*array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, LoadError> {
        self.array().map(|[byte]| byte)
    }

    /// A length that is no special form.
    pub(super) fn len(&mut self) -> Result<u64, LoadError> {
        match self.any_len()? {
            Len::Plain(len) => Ok(len),
            Len::Special(_) => Err(LoadError::Format),
        }
    }

    /// A number of elements that follow. There is at least one.
    pub(super) fn count(&mut self) -> Result<u64, LoadError> {
        self.len().and_then(|count| if count > 0 { Ok(count) } else { Err(LoadError::Format) })
    }

    fn any_len(&mut self) -> Result<Len, LoadError> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match (first, first >> 6) {
            (_, LEN_6) => Len::Plain(low.into()),
            (_, LEN_14) => Len::Plain(u16::from_be_bytes([low, self.byte()?]).into()),
            (_, SPECIAL) => Len::Special(low),
            (LEN_32, _) => Len::Plain(u32::from_be_bytes(self.array()?).into()),
            (LEN_64, _) => Len::Plain(u64::from_be_bytes(self.array()?)),
            _ => return Err(LoadError::Format),
        })
    }

    /// A length of bytes that this platform can address.
    fn size(&mut self) -> Result<usize, LoadError> {
        usize::try_from(self.len()?).map_err(|_| LoadError::Format)
    }

    pub(super) fn string(&mut self) -> Result<Cow<'a, [u8]>, LoadError> {
        let special = match self.any_len()? {
            Len::Plain(len) => {
                let len = usize::try_from(len).map_err(|_| LoadError::Format)?;
                return self.take(len).map(Cow::Borrowed);
            }
            Len::Special(special) => special,
        };
        let number = match special {
            INT_8 => i8::from_le_bytes(self.array()?).into(),
            INT_16 => i16::from_le_bytes(self.array()?).into(),
            INT_32 => i32::from_le_bytes(self.array()?),
            LZF => return self.compressed().map(Cow::Owned),
            _ => return Err(LoadError::Format),
        };
        Ok(Cow::Owned(number.to_string().into_bytes()))
    }

    fn compressed(&mut self) -> Result<Vec<u8>, LoadError> {
        let (compressed_len, len) = (self.size()?, self.size()?);
        let compressed = self.take(compressed_len)?;
        self.allocate(len)?;
        lzf::decompress(compressed, len).ok_or(LoadError::Format)
    }

    /// Appends an element.
    pub(super) fn push(
        &mut self,
        elements: &mut Elements,
        element: &[u8],
    ) -> Result<(), LoadError> {
        self.allocate(blobs::encoded_len(element.len()))?;
        elements.push(element);
        Ok(())
    }

    /// Appends an element of a listpack or a ziplist.
    pub(super) fn push_packed(
        &mut self,
        elements: &mut Elements,
        element: Element<'_>,
    ) -> Result<(), LoadError> {
        match element {
            Element::Text(text) => self.push(elements, text),
            Element::Integer(number) => {
                self.push(elements, itoa::Buffer::new().format(number).as_bytes())
            }
        }
    }

    /// Accounts for bytes that are about to be allocated.
    pub(super) fn allocate(&mut self, len: usize) -> Result<(), LoadError> {
        self.left = self.left.checked_sub(len).ok_or(LoadError::TooLarge(self.limit))?;
        Ok(())
    }
}
