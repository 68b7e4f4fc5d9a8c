//! Values as redis-server writes them for `DUMP` and reads them for `RESTORE`.
//!
//! A dump is a type byte, the value in the form that this byte names, the version of the format
//! and a checksum. [`save`] writes the forms of Redis 7.4. [`load`] reads those of Redis 5 to 7.4.
//! Streams and modules are refused.

mod content;
mod footer;
mod intset;
mod listpack;
mod load;
mod lzf;
mod reader;
mod save;
mod ziplist;

pub use content::{Content, Elements};
pub use footer::VERSION;

use crate::DecodeError;

/// Bytes of a dump that are not a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the version is newer, or the checksum is another")]
    Footer,
    #[error("the value cannot be read")]
    Format,
    /// Elements of more than the allowed bytes.
    #[error("the value has more than {0} bytes")]
    TooLarge(usize),
}

/// The dump of a value.
///
/// # Errors
/// [`DecodeError`] when `value` is damaged, or has a type that dumps lack.
pub fn save(value: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = save::value(value)?;
    footer::append(&mut out);
    Ok(out)
}

/// A dump with this content, which is not checked.
#[must_use]
pub fn sealed(content: &[u8]) -> Vec<u8> {
    let mut out = content.to_vec();
    footer::append(&mut out);
    out
}

/// The content of a dump. Reading allocates at most about `limit` bytes, and the elements have at
/// most as many.
///
/// # Errors
/// [`LoadError`].
pub fn load(dump: &[u8], limit: usize) -> Result<Content, LoadError> {
    load::content(footer::strip(dump).ok_or(LoadError::Footer)?, limit)
}

#[cfg(test)]
mod tests;
