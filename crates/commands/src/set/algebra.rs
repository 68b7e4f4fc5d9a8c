//! Sets of several keys, and a set that replaces the value of a key.

use types::{Change, ExpiryChange, Reply, TimeToLive};
use values::set::{Growth, Set};

use crate::space::{Halt, Space};
use crate::work;

/// The sets at `keys`.
///
/// # Errors
/// `WRONGTYPE`, [`Halt::Unloaded`] and [`Halt::TooLong`].
pub(super) fn sets<'s>(space: &'s Space, keys: &[&[u8]]) -> Result<Vec<Option<Set<'s>>>, Halt> {
    let set_at = |key: &&[u8]| Ok(space.context(key)?.set()?);
    let sets = keys.iter().map(set_at).collect::<Result<Vec<_>, Halt>>()?;
    let members: usize = sets.iter().flatten().map(Set::len).sum();
    space.charge(members as u64 * work::HASHED)?;
    Ok(sets)
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
