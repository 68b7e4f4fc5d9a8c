//! Mixes of commands: the distributions of a run's clients.
//!
//! Values are unique where that reveals wrong answers: a value names the operation that wrote it.

use base::Prng;
use checker::model::collection::CollectionInput;
use checker::model::kv::{Bytes, ExpiryTag, KvInput};

use crate::workload::collection;
use crate::workload::operation::Input;
use crate::workload::transactions::{Step, TransactionInput};

/// One kind of workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mix {
    /// Reads and plain writes.
    Register,
    /// Reads, plain writes and deletes whose replies do not depend on the state.
    PlainDelete,
    /// Compare and set.
    Swap,
    Counter,
    /// Appends: one read reveals the whole chain.
    List,
    /// Small changes of values so long that replicas send deltas.
    Long,
    /// Delete and create again, conditionally.
    Recreate,
    /// Values with a time to live.
    Expiry,
    /// The same with plain writes only.
    PlainExpiry,
    /// Times to live that are given to values, and taken from them.
    Lifetimes,
    /// Everything that does not expire.
    All,
    /// See [`script`](super::script), as the next two.
    Lock,
    /// Tokens for the holders of locks.
    Fence,
    Bank,
    /// The same under `ONCE`, sent again and again.
    Retries,
    /// The real commands on lists, as the next three on other collections.
    Lists,
    Sets,
    Hashes,
    SortedSets,
    /// See [`transactions`](super::transactions), as the next one. All keys of it together.
    Transactions,
    Transfers,
    /// The same lists, most of them changed by Lua scripts: see [`scripted`](super::scripted).
    Scripts,
}

impl Mix {
    /// Mixes of commands whose effects do not depend on the state.
    pub const PLAIN: &[Mix] = &[Mix::Register, Mix::PlainDelete];

    pub const EVERY: &[Mix] = &[
        Mix::Register,
        Mix::PlainDelete,
        Mix::Swap,
        Mix::Counter,
        Mix::List,
        Mix::Recreate,
        Mix::Expiry,
        Mix::All,
    ];

    pub const COLLECTIONS: &[Mix] = &[Mix::Lists, Mix::Sets, Mix::Hashes, Mix::SortedSets];

    /// For the default protocol, which sends deltas of long values.
    pub const EVERY_AND_LONG: &[Mix] = &[
        Mix::Register,
        Mix::PlainDelete,
        Mix::Swap,
        Mix::Counter,
        Mix::List,
        Mix::Long,
        Mix::Recreate,
        Mix::Expiry,
        Mix::All,
    ];

    /// All of them.
    pub const NAMED: &[(Mix, &str)] = &[
        (Mix::Register, "register"),
        (Mix::PlainDelete, "plain-delete"),
        (Mix::Swap, "swap"),
        (Mix::Counter, "counter"),
        (Mix::List, "list"),
        (Mix::Long, "long"),
        (Mix::Recreate, "recreate"),
        (Mix::Expiry, "expiry"),
        (Mix::PlainExpiry, "plain-expiry"),
        (Mix::Lifetimes, "lifetimes"),
        (Mix::All, "all"),
        (Mix::Retries, "retries"),
        (Mix::Lists, "lists"),
        (Mix::Sets, "sets"),
        (Mix::Hashes, "hashes"),
        (Mix::SortedSets, "sorted-sets"),
        (Mix::Transactions, "transactions"),
        (Mix::Transfers, "transfers"),
        (Mix::Scripts, "scripts"),
    ];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Mix::NAMED.iter().find(|(mix, _)| *mix == self).map_or("", |(_, name)| name)
    }

    /// That of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Mix> {
        Mix::NAMED.iter().find(|(_, known)| *known == name).map(|(mix, _)| *mix)
    }

    #[must_use]
    pub fn is_collection(self) -> bool {
        Mix::COLLECTIONS.contains(&self)
    }

    /// Operations are on several keys.
    #[must_use]
    pub fn is_of_several_keys(self) -> bool {
        matches!(self, Mix::Transactions | Mix::Transfers | Mix::Scripts)
    }

    /// Operations are on lists, and on the strings beside them.
    #[must_use]
    pub fn is_of_lists(self) -> bool {
        matches!(self, Mix::Transactions | Mix::Scripts)
    }

    /// The command that reveals all of a key, which is the one with this index.
    #[must_use]
    pub fn read(self, key: usize) -> Input {
        match self {
            Mix::Transactions | Mix::Scripts => {
                TransactionInput::alone(Step::Range { list: key }).into()
            }
            Mix::Transfers => TransactionInput::alone(Step::Balance { account: key }).into(),
            Mix::Lists => CollectionInput::Range.into(),
            Mix::Sets => CollectionInput::Members.into(),
            Mix::Hashes => CollectionInput::Fields.into(),
            Mix::SortedSets => CollectionInput::Scores.into(),
            _ => KvInput::Get.into(),
        }
    }

    /// Draws a command. `id` names it uniquely in its run.
    #[must_use]
    pub fn draw(self, rng: &mut Prng, id: u64) -> Input {
        match self {
            Mix::Lists => collection::on_list(rng, id).into(),
            Mix::Sets => collection::on_set(rng).into(),
            Mix::Hashes => collection::on_hash(rng, id).into(),
            Mix::SortedSets => collection::on_sorted_set(rng).into(),
            _ => self.draw_text(rng, id).into(),
        }
    }

    fn draw_text(self, rng: &mut Prng, id: u64) -> KvInput {
        let value = || Bytes::from(format!("v{id}").as_bytes());
        let below = |rng: &mut Prng, n| rng.below(n);
        match self {
            Mix::Register => match below(rng, 10) {
                0..5 => KvInput::Get,
                5 => KvInput::StrLen,
                _ => KvInput::Set(value()),
            },
            Mix::PlainDelete => match below(rng, 10) {
                0..4 => KvInput::Get,
                4 => KvInput::Exists,
                5..8 => KvInput::Set(value()),
                _ => KvInput::Expire(None),
            },
            Mix::Swap => match below(rng, 10) {
                0..3 => KvInput::Get,
                3 => KvInput::Set(small(rng)),
                4 => KvInput::GetSet(small(rng)),
                5 => KvInput::SetIfAbsent(small(rng)),
                _ => KvInput::SetIfEqual { expected: small(rng), new: small(rng) },
            },
            Mix::Counter => match below(rng, 10) {
                0..3 => KvInput::Get,
                3 if below(rng, 8) == 0 => KvInput::Del,
                _ => KvInput::IncrBy(1),
            },
            Mix::List => match below(rng, 10) {
                0..4 => KvInput::Get,
                _ => KvInput::Append(Bytes::from(format!("{id},").as_bytes())),
            },
            Mix::Long => match below(rng, 16) {
                0..4 => KvInput::Get,
                4 => KvInput::StrLen,
                5..7 => KvInput::Set(long(rng, id)),
                7 if below(rng, 4) == 0 => KvInput::Del,
                _ => KvInput::Append(Bytes::from(format!("{id},").as_bytes())),
            },
            Mix::Recreate => match below(rng, 10) {
                0..2 => KvInput::Get,
                2 => KvInput::Exists,
                3 => KvInput::GetDel,
                4..7 => KvInput::Del,
                7..9 => KvInput::SetIfAbsent(value()),
                _ => KvInput::Set(value()),
            },
            Mix::PlainExpiry => match below(rng, 12) {
                0..5 => KvInput::Get,
                5 => KvInput::Exists,
                6..9 => expiring(id),
                9..11 => KvInput::Set(value()),
                _ => KvInput::Expire(None),
            },
            Mix::Expiry => match below(rng, 12) {
                0..5 => KvInput::Get,
                5..8 => expiring(id),
                8 => KvInput::Set(value()),
                9 => KvInput::SetIfAbsent(value()),
                10 => KvInput::Append(Bytes::from("+")),
                _ => KvInput::Del,
            },
            Mix::Lifetimes => match below(rng, 12) {
                0..4 => KvInput::Get,
                4 => KvInput::Set(value()),
                5 => KvInput::SetExpiring(value(), ExpiryTag(id)),
                6..8 => KvInput::ExpireIn(ExpiryTag(id)),
                8 | 9 => KvInput::Persist,
                10 => KvInput::Append(Bytes::from("+")),
                _ => KvInput::SetIfAbsent(value()),
            },
            // Commands of other clients on the keys of scripts.
            Mix::Lock | Mix::Fence | Mix::Bank => KvInput::Get,
            Mix::Lists | Mix::Sets | Mix::Hashes | Mix::SortedSets => KvInput::Get,
            Mix::Transactions | Mix::Transfers | Mix::Scripts => KvInput::Get,
            Mix::All => match below(rng, 12) {
                0..3 => KvInput::Get,
                3 => KvInput::Set(small(rng)),
                4 => KvInput::GetSet(value()),
                5 => KvInput::GetDel,
                6 => KvInput::Del,
                7 => KvInput::SetIfAbsent(small(rng)),
                8 => KvInput::SetIfEqual { expected: small(rng), new: value() },
                9 => KvInput::IncrBy(1),
                10 => KvInput::Append(small(rng)),
                _ => KvInput::StrLen,
            },
            Mix::Retries => match below(rng, 12) {
                0..2 => KvInput::Get,
                2..5 => KvInput::IncrBy(1),
                5..7 => KvInput::Append(small(rng)),
                7 => KvInput::SetIfAbsent(small(rng)),
                8..10 => KvInput::SetIfEqual { expected: small(rng), new: small(rng) },
                10 => KvInput::Set(small(rng)),
                _ => KvInput::Del,
            },
        }
    }
}

/// A value with a time to live.
fn expiring(id: u64) -> KvInput {
    KvInput::SetExpiring(Bytes::from(format!("t{id}").as_bytes()), ExpiryTag(id))
}

/// A value that names the operation at its start, just above or below the length for deltas.
fn long(rng: &mut Prng, id: u64) -> Bytes {
    let len = *rng.pick(&[900, 1_100, 3_000]);
    let mut value = format!("v{id},").into_bytes();
    value.resize(len, b'.');
    Bytes::from(value.as_slice())
}

/// One of few values, so that comparisons succeed now and then.
fn small(rng: &mut Prng) -> Bytes {
    Bytes::from([b'0' + rng.below(3) as u8].as_slice())
}
