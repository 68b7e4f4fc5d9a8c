//! Hashes: the commands on them, and how an operation reads and replaces one.

mod names;

use types::{Applied, Change, ExpiryChange, Reply};
use values::Hash;
use values::hash::Draft;

use crate::context::{Context, RunResult, deleted, unchanged};
use crate::errors::ErrorReply;

crate::module::modules! {
    hdel,
    hexpire,
    hget,
    hgetall,
    hincrby,
    hincrbyfloat,
    hmget,
    hpersist,
    hrandfield,
    hscan,
    hset,
    httl,
}

/// The reply for a field that does not exist, of commands on ends of fields.
const NO_FIELD: i64 = -2;
/// The reply for a field without an end.
const NO_END: i64 = -1;

impl<'a> Context<'a> {
    /// The hash at the key, without a field if there is no key.
    ///
    /// # Errors
    /// `WRONGTYPE` if the key holds another type.
    fn hash(&self) -> Result<Hash<'a>, ErrorReply> {
        Ok(self.view.value.map_or(Ok(Hash::EMPTY), Hash::decode)?)
    }

    /// The hash at the key, for changes of the fields called `names`.
    ///
    /// # Errors
    /// `WRONGTYPE` if the key holds another type.
    fn draft<'n>(&self, names: &[&'n [u8]]) -> Result<Draft<'n>, ErrorReply>
    where
        'a: 'n,
    {
        Ok(Draft::new(self.hash()?, names.iter().copied(), self.clock.seed))
    }

    /// Puts the changed hash. The key is deleted with its last field.
    ///
    /// # Errors
    /// `value too large`.
    fn change_hash(&self, draft: &Draft<'_>, reply: Reply) -> RunResult {
        if draft.is_changed() { self.put_hash(draft, reply) } else { unchanged(reply) }
    }

    /// The same, also without a change of a field.
    fn put_hash(&self, draft: &Draft<'_>, reply: Reply) -> RunResult {
        let Some(value) = draft.finish() else { return deleted(reply) };
        let old_len = self.view.value.map_or(0, <[u8]>::len);
        self.check_len(old_len, value.len() as u64)?;
        Ok(Applied { change: Change::Put { value, expiry: ExpiryChange::Keep }, reply })
    }
}
