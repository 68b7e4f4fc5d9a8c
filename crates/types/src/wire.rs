//! How words become bytes: little endian, length-prefixed, no schema compiler.
//!
//! Decoding trusts no input: a short or overlong one is [`Malformed`], never a panic or a huge
//! allocation.

use bytes::Bytes;

/// Bytes that break their format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed bytes")
    }
}

impl std::error::Error for Malformed {}

/// A type with a byte form of its own.
pub trait Wire: Sized {
    fn encode(&self, out: &mut Vec<u8>);

    /// # Errors
    /// [`Malformed`] when the bytes are not an encoding of `Self`.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// Decodes bytes that must hold exactly one `Self`.
    ///
    /// # Errors
    /// [`Malformed`] when they do not.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let it = Self::decode(&mut reader)?;
        if reader.is_empty() { Ok(it) } else { Err(Malformed) }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// Takes bytes off the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes that were not taken yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        if len > self.rest.len() {
            return Err(Malformed);
        }
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length of up to `max`, as LEB128, then as many bytes.
    pub fn blob(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let len = self.varint()?;
        if len > max as u64 {
            return Err(Malformed);
        }
        self.take(len as usize)
    }

    /// An unsigned LEB128 number.
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }
}

/// Appends an unsigned LEB128 number.
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    base::varint::put(out, value);
}

/// Appends a LEB128 length and the bytes.
pub fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

impl<T: Wire> Wire for std::sync::Arc<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_ref().encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<std::sync::Arc<T>, Malformed> {
        T::decode(reader).map(std::sync::Arc::new)
    }
}

impl Wire for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        put_blob(out, self);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Bytes, Malformed> {
        Ok(Bytes::copy_from_slice(reader.blob(crate::limits::SENT_LEN_MAX)?))
    }
}

impl Wire for crate::Key {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash().to_le_bytes());
        put_blob(out, self.bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<crate::Key, Malformed> {
        let position = reader.u64()?;
        Ok(crate::Key::at(position, reader.blob(crate::limits::KEY_LEN_MAX)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_overlong_ones_do_not() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(Reader::new(&out).varint(), Ok(value));
        }
        assert_eq!(Reader::new(&[0xff; 10]).varint(), Err(Malformed));
        assert_eq!(Reader::new(&[0x80; 3]).varint(), Err(Malformed));
    }
}
