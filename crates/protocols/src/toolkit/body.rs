//! The messages of a protocol about one register, apart from those that all have.

use std::fmt::Debug;

use types::{Malformed, Reader};

/// The first kind of a protocol's own messages.
pub const BODY_KINDS: u8 = 8;

/// A protocol's own message about one register.
pub trait Body: Sized + Clone + PartialEq + Eq + Debug + Send + 'static {
    /// The first byte of its bytes, from [`BODY_KINDS`] on.
    fn kind(&self) -> u8;
    /// True if the receiver must store the content.
    fn is_write(&self) -> bool;
    /// Appends the other bytes.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads the bytes of [`Body::put`].
    ///
    /// # Errors
    /// [`Malformed`] when they are none.
    fn take(kind: u8, reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Reads a byte that is 0 or 1.
///
/// # Errors
/// [`Malformed`] when it is another one.
pub fn take_bool(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}
