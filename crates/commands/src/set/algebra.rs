//! Sets of several keys, and a set that replaces the value of a key.

use types::{Change, ExpiryChange, Reply, TimeToLive};
use values::set::{Growth, Set};

use crate::space::{Halt, Space};

/// The sets at `keys`.
///
/// # Errors
/// `WRONGTYPE`, and [`Halt::Unloaded`].
pub(super) fn sets<'s>(space: &'s Space, keys: &[&[u8]]) -> Result<Vec<Option<Set<'s>>>, Halt> {
    keys.iter().map(|key| Ok(space.context(key)?.set()?)).collect()
}

/// Puts the set that `compute` makes, and answers its length. Without members it deletes the key.
///
/// # Errors
/// Those of `compute`, and `value too large`.
pub(super) fn store<'a>(
    space: &mut Space,
    key: &[u8],
    compute: impl for<'s> FnOnce(&'s Space) -> Result<Growth<'s>, Halt>,
) -> Result<Reply, Halt> {
    let growth = compute(space)?;
    let cx = space.context(key)?;
    let len = growth.len();
    if len > 0 {
        cx.check_len(0, growth.encoded_len() as u64)?;
        let expiry = ExpiryChange::Set(TimeToLive::Never);
        let value = growth.encode();
        space.change(key, Change::Put { value, expiry })?;
    } else if cx.exists() {
        space.change(key, Change::Delete)?;
    }
    Ok(Reply::Integer(len as i64))
}
