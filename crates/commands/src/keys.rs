//! Commands on keys of any type, and on the keyspace.

mod pattern;
pub(crate) mod time;

use types::{Change, ExpiryChange};

use crate::errors::{self, ErrorReply};
use crate::space::{Halt, Space};

crate::module::modules! {
    copy,
    del,
    dump,
    exists,
    expire,
    key_explain,
    keys_by_pattern,
    object,
    once,
    persist,
    randomkey,
    rename,
    restore,
    scan,
    sort,
    ttl,
    type_name,
    wait,
}

pub(crate) const NO_SUCH_KEY: ErrorReply = errors::fixed(b"ERR no such key");

/// Copies a value that exists, with its time to live, in place of the value at `to`.
///
/// # Errors
/// [`Halt::Unloaded`].
fn copy_value(space: &mut Space, from: &[u8], to: &[u8]) -> Result<(), Halt> {
    let (value, ttl) = space.value(from)?;
    let change = match value {
        Some(value) => Change::Put { value, expiry: ExpiryChange::Set(ttl) },
        None => Change::None,
    };
    space.change(to, change)
}
