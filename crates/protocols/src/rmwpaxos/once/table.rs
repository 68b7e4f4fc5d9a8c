//! The table of commands that are safe to repeat (`ONCE`): number and reply of each session's
//! newest command. [corrections F2, F4; spec 9.9]
//!
//! The table is part of the replicated state. So an entry and the effect of its command are one
//! transition: a state has both or neither. A vote decides when an entry may be dropped
//! ([`crate::rmwpaxos::once::window`]). A newer entry never evicts an older one.

use std::borrow::Cow;

use base::Millis;
use types::limits::{
    ONCE_ENTRIES_MAX, ONCE_ENTRY_LEN_MAX, ONCE_REPLY_LEN_MAX, ONCE_SESSION_LEN_MAX,
};
use types::wire::{put_blob, put_varint};
use types::{Ballot, Malformed, Once, Outcome, Reader, Refusal, Reply, Wire};

use crate::mutation::{self, Mutation};

/// Bytes of a table, at most.
pub(crate) const TABLE_LEN_MAX: usize = 1 + ONCE_ENTRIES_MAX * ONCE_ENTRY_LEN_MAX;

/// The numbers of an entry, and the lengths of its session and reply, fit the room that is counted
/// for them.
const _: () =
    assert!(ONCE_ENTRY_LEN_MAX - ONCE_SESSION_LEN_MAX - ONCE_REPLY_LEN_MAX >= 1 + 3 * 10 + 12 + 2);

/// Identifies the start of an entry's age: the transition that wrote it, and its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryId {
    pub version: u64,
    pub birth: Ballot,
    pub window: Millis,
}

/// One session's newest command.
#[derive(Clone, PartialEq, Eq, Debug)]
struct OnceEntry<'a> {
    session: Cow<'a, [u8]>,
    seq: u64,
    /// The transition that wrote it; `None`: the one being made.
    written: Option<(u64, Ballot)>,
    window: Millis,
    /// Encoded. `None`: too long.
    reply: Option<Cow<'a, [u8]>>,
}

/// The sessions that a state remembers, in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table<'a> {
    entries: Vec<OnceEntry<'a>>,
}

/// A table's verdict on a command that is about to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// It may run, and be remembered.
    New,
    /// It ran before, and this is the answer.
    Before(Outcome),
    /// It must not run.
    Refused(Refusal),
}

impl<'a> Table<'a> {
    /// The table with these bytes.
    pub(crate) fn of(bytes: Option<&'a [u8]>) -> Table<'a> {
        let entries = bytes.map(entries).into_iter().flatten();
        Table { entries: entries.collect() }
    }

    pub(crate) fn look(&self, once: &Once) -> Seen {
        match self.entries.iter().find(|entry| *entry.session == once.session[..]) {
            Some(entry) if entry.seq == once.seq => Seen::Before(entry.answer()),
            Some(entry) if entry.seq > once.seq => Seen::Refused(Refusal::Older),
            Some(_) => Seen::New,
            None if self.entries.len() < ONCE_ENTRIES_MAX => Seen::New,
            None if mutation::is(Mutation::OnceEvictsOldest) => Seen::New,
            None => Seen::Refused(Refusal::NoRoom),
        }
    }

    /// Remembers a command that [`look`](Table::look) found new, with its reply if that is short.
    pub(crate) fn remember(&mut self, once: &Once, reply: Option<&Reply>) {
        self.entries.retain(|entry| *entry.session != once.session[..]);
        if self.entries.len() == ONCE_ENTRIES_MAX && mutation::is(Mutation::OnceEvictsOldest) {
            self.entries.remove(0);
        }
        assert!(self.entries.len() < ONCE_ENTRIES_MAX, "there was room for the session");
        // The estimate spares encoding a reply that is far too long.
        let reply = reply.filter(|reply| reply.len() <= 2 * ONCE_REPLY_LEN_MAX);
        let reply = reply.map(Reply::to_bytes);
        self.entries.push(OnceEntry {
            session: Cow::Owned(once.session.to_vec()),
            seq: once.seq,
            written: None,
            window: once.window,
            reply: reply.filter(|reply| reply.len() <= ONCE_REPLY_LEN_MAX).map(Cow::Owned),
        });
    }

    /// Drops the entries whose windows a majority has found over. True where there was one.
    pub(crate) fn drop_over(&mut self, over: &[EntryId]) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.id().is_none_or(|id| !over.contains(&id)));
        self.entries.len() < before
    }

    /// The bytes of the table. New entries are written by the transition to `version`, born under
    /// `birth`. `None`: the table is empty.
    pub(crate) fn encode(&self, version: u64, birth: Ballot) -> Option<Vec<u8>> {
        if self.entries.is_empty() {
            return None;
        }
        let mut out = vec![self.entries.len() as u8];
        for entry in &self.entries {
            let (version, birth) = entry.written.unwrap_or((version, birth));
            put_blob(&mut out, &entry.session);
            put_varint(&mut out, entry.seq);
            put_varint(&mut out, version);
            birth.encode(&mut out);
            put_varint(&mut out, entry.window.0);
            put_varint(&mut out, entry.reply.as_ref().map_or(0, |reply| reply.len() as u64 + 1));
            out.extend_from_slice(entry.reply.as_deref().unwrap_or_default());
        }
        Some(out)
    }
}

impl<'a> OnceEntry<'a> {
    fn id(&self) -> Option<EntryId> {
        self.written.map(|(version, birth)| EntryId { version, birth, window: self.window })
    }

    fn answer(&self) -> Outcome {
        match &self.reply {
            Some(reply) => Outcome::Reply(
                Reply::from_bytes(reply).expect("it was checked when the state was made"),
            ),
            None => Outcome::AlreadyDone,
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<OnceEntry<'a>, Malformed> {
        let session = reader.blob(ONCE_SESSION_LEN_MAX)?;
        let seq = reader.varint()?;
        let written = Some((reader.varint()?, Ballot::decode(reader)?));
        let window = Millis(reader.varint()?);
        let reply = match reader.varint()? {
            0 => None,
            len if len - 1 <= ONCE_REPLY_LEN_MAX as u64 => {
                Some(Cow::Borrowed(reader.take(len as usize - 1)?))
            }
            _ => return Err(Malformed),
        };
        Ok(OnceEntry { session: Cow::Borrowed(session), seq, written, window, reply })
    }
}

fn decode(table: &[u8]) -> impl Iterator<Item = Result<OnceEntry<'_>, Malformed>> {
    let mut reader = Reader::new(table);
    let count = reader.u8().unwrap_or(0);
    (0..count).map(move |_| OnceEntry::decode(&mut reader))
}

fn entries(table: &[u8]) -> impl Iterator<Item = OnceEntry<'_>> {
    decode(table).map(|entry| entry.expect("it was checked when the state was made"))
}

/// The ids of the entries, in the order of the table.
pub(crate) fn ids(table: &[u8]) -> impl Iterator<Item = EntryId> + '_ {
    entries(table).filter_map(|entry| entry.id())
}

/// Entries of a table.
pub(crate) fn len(table: &[u8]) -> usize {
    usize::from(table[0])
}

/// The table has no room for a session that it does not know.
pub(crate) fn is_full_for(table: &[u8], session: &[u8]) -> bool {
    len(table) == ONCE_ENTRIES_MAX && entries(table).all(|entry| *entry.session != *session)
}

/// Checks bytes that are to be the table of a state.
///
/// # Errors
/// They are not those of a table.
pub(crate) fn check(table: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(table);
    let count = usize::from(reader.u8()?);
    if count == 0 || count > ONCE_ENTRIES_MAX {
        return Err(Malformed);
    }
    for _ in 0..count {
        if let Some(reply) = OnceEntry::decode(&mut reader)?.reply {
            Reply::from_bytes(&reply)?;
        }
    }
    if reader.is_empty() { Ok(()) } else { Err(Malformed) }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use types::{Epoch, Incarnation, NodeId};

    use super::*;

    pub(crate) fn birth(number: u64) -> Ballot {
        Ballot::new(Epoch(1), number, NodeId(1), Incarnation(1))
    }

    pub(crate) fn once(session: &[u8], seq: u64) -> Once {
        Once { session: Bytes::copy_from_slice(session), seq, window: Millis(1000) }
    }

    /// A table whose sessions were written one by one, each by the transition of its place.
    pub(crate) fn table(sessions: &[(Vec<u8>, u64, Vec<u8>)]) -> Option<Vec<u8>> {
        let mut made = Table::default();
        for (version, (session, seq, reply)) in (1..).zip(sessions) {
            if made.look(&once(session, *seq)) == Seen::New {
                made.remember(&once(session, *seq), Some(&Reply::copy(reply)));
                for entry in &mut made.entries {
                    entry.written.get_or_insert((version, birth(version)));
                }
            }
        }
        made.encode(0, Ballot::ZERO)
    }

    /// A table that one transition wrote, with an entry for each window.
    pub(crate) fn written_at_once(windows: [Millis; 2]) -> Vec<u8> {
        let mut made = Table::default();
        for (session, window) in (0..).zip(windows) {
            let line = Once { window, ..once(&[session], 1) };
            assert_eq!(made.look(&line), Seen::New);
            made.remember(&line, Some(&Reply::Integer(1)));
        }
        made.encode(1, birth(1)).expect("it has entries")
    }

    pub(crate) fn tables() -> impl Strategy<Value = Option<Vec<u8>>> {
        let bytes = |max| proptest::collection::vec(any::<u8>(), 0..max);
        let sessions = (proptest::collection::vec(0..3_u8, 1..4), any::<u64>(), bytes(20));
        proptest::option::of(proptest::collection::vec(sessions, 1..9))
            .prop_map(|sessions| sessions.and_then(|sessions| table(&sessions)))
    }

    fn read(bytes: &[u8]) -> Table<'_> {
        Table { entries: entries(bytes).collect() }
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in tables()) {
            let Some(bytes) = bytes else { return Ok(()) };
            prop_assert_eq!(check(&bytes), Ok(()));
            prop_assert_eq!(read(&bytes).encode(0, Ballot::ZERO), Some(bytes.clone()));
            prop_assert!(bytes.len() <= TABLE_LEN_MAX);
            prop_assert_eq!(ids(&bytes).count(), len(&bytes));
        }

        #[test]
        fn damaged_bytes_are_noticed_or_are_another_table(
            bytes in tables(),
            at in any::<prop::sample::Index>(),
            with in any::<u8>(),
        ) {
            let Some(mut bytes) = bytes else { return Ok(()) };
            let at = at.index(bytes.len());
            prop_assert_eq!(check(&bytes[..at]), Err(Malformed));
            bytes[at] = with;
            if check(&bytes).is_ok() {
                let _ = read(&bytes).encode(0, Ballot::ZERO);
            }
        }

        /// A session's newest command is remembered, whatever others do; older numbers are refused.
        #[test]
        fn a_session_is_answered_by_its_newest_command(
            lines in proptest::collection::vec((0..70_u8, 0..5_u64), 0..300),
        ) {
            let mut made = Table::default();
            let mut newest = std::collections::BTreeMap::new();
            for (session, seq) in lines {
                let line = once(&[session], seq);
                let reply = Reply::Integer(seq as i64);
                let known = newest.get(&session).copied();
                match made.look(&line) {
                    Seen::Before(told) => {
                        prop_assert_eq!(known, Some(seq));
                        prop_assert_eq!(told, Outcome::Reply(reply));
                    }
                    Seen::Refused(_) => {
                        let is_full = newest.len() == ONCE_ENTRIES_MAX;
                        prop_assert!(known.map_or(is_full, |known| known > seq));
                    }
                    Seen::New => {
                        prop_assert!(known.is_none_or(|newest| newest < seq));
                        made.remember(&line, Some(&reply));
                        newest.insert(session, seq);
                    }
                }
            }
        }
    }

    /// As many sessions as there can be, with names, numbers and replies as long as can be.
    pub(crate) fn largest() -> Vec<u8> {
        let mut made = Table::default();
        for n in 0..ONCE_ENTRIES_MAX {
            let session = Bytes::from(vec![n as u8; ONCE_SESSION_LEN_MAX]);
            let line = Once { session, seq: u64::MAX, window: Millis(u64::MAX) };
            assert_eq!(made.look(&line), Seen::New);
            // Its kind and its length take three bytes.
            made.remember(&line, Some(&Reply::bulk(vec![0; ONCE_REPLY_LEN_MAX - 3])));
        }
        made.encode(u64::MAX, Ballot::ceiling(Epoch::MAX, 1)).expect("it has entries")
    }

    #[test]
    fn largest_table_fits_its_stated_length() {
        let bytes = largest();
        assert!(bytes.len() <= TABLE_LEN_MAX);
        assert_eq!(check(&bytes), Ok(()));
        assert!(is_full_for(&bytes, b"another"));
        assert!(!is_full_for(&bytes, &[7; ONCE_SESSION_LEN_MAX]));
    }

    #[test]
    fn long_reply_is_remembered_without_its_bytes() {
        let bytes = table(&[(b"s".to_vec(), 1, vec![b'x'; ONCE_REPLY_LEN_MAX + 1])]);
        let seen = read(&bytes.expect("one entry")).look(&once(b"s", 1));
        assert_eq!(seen, Seen::Before(Outcome::AlreadyDone));
    }

    #[test]
    fn only_the_very_entry_is_dropped() {
        let sessions = [(b"a".to_vec(), 1, b"A".to_vec()), (b"b".to_vec(), 1, b"B".to_vec())];
        let bytes = table(&sessions).expect("two entries");
        let mut made = read(&bytes);
        let id = ids(&bytes).next().expect("two entries");
        let others = [
            EntryId { version: 9, ..id },
            EntryId { birth: birth(9), ..id },
            EntryId { window: Millis(9), ..id },
        ];
        assert!(!made.drop_over(&others), "of another transition, or kept for another time");
        assert!(made.drop_over(&[id]));
        assert_eq!(made.look(&once(b"a", 1)), Seen::New);
        assert_eq!(made.look(&once(b"b", 1)), Seen::Before(Outcome::Reply(Reply::bulk("B"))));
    }
}
