//! When an acceptor first accepted the entries of a table, in its own uptime.

use base::Millis;
use types::wire::put_varint;
use types::{Malformed, Reader};

use super::table::{self, EntryId};
use crate::rmwpaxos::record::state::State;
use crate::uptime::Uptime;

/// When the entries of a register's state were first accepted here, in table order and uptime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starts(Vec<Millis>);

impl Starts {
    /// All entries of `state` are new here. `None`: it has none.
    #[must_use]
    pub fn anew(state: &State, uptime: &dyn Uptime) -> Option<Box<Starts>> {
        let starts = table::ids(state.once()?).map(|id| uptime.start(id.window));
        Some(Box::new(Starts(starts.collect())))
    }

    /// The starts for `state`, which follows the state `before`. Entries of both keep their start.
    #[must_use]
    pub fn going_on(
        (before, starts): (Option<&State>, Option<&Starts>),
        state: &State,
        uptime: &dyn Uptime,
    ) -> Option<Box<Starts>> {
        let (Some(former), Some(starts)) = (before.and_then(State::once), starts) else {
            return Starts::anew(state, uptime);
        };
        // Both are in version order as far as they lie on one chain, so one pass finds the kept
        // entries. Entries of other branches that it misses start anew. Their windows end later,
        // never earlier.
        let former: Vec<(EntryId, &Millis)> = table::ids(former).zip(&starts.0).collect();
        let mut rest = &former[..];
        let mut start_of = |id: EntryId| {
            while let [(earlier, _), later @ ..] = rest
                && earlier.version < id.version
            {
                rest = later;
            }
            // One transition may write entries with windows of several lengths and clocks.
            let mut same = rest.iter().take_while(|(other, _)| other.version == id.version);
            match same.find(|(other, _)| *other == id) {
                Some((_, start)) => **start,
                None => uptime.start(id.window),
            }
        };
        let table = state.once()?;
        Some(Box::new(Starts(table::ids(table).map(&mut start_of).collect())))
    }

    /// The entries of `table` whose windows are over here, by their places.
    pub(crate) fn over(&self, table: &[u8], uptime: &dyn Uptime) -> u64 {
        let is_over = |(id, start): (EntryId, &Millis)| uptime.rest(id.window, *start) == Millis(0);
        let bits = table::ids(table).zip(&self.0).map(is_over).enumerate();
        bits.fold(0, |bits, (at, over)| bits | u64::from(over) << at)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Millis> {
        self.0.iter()
    }

    /// Appends one start per entry of the state.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|start| put_varint(out, start.0));
    }

    pub(crate) fn decode(
        state: &State,
        reader: &mut Reader<'_>,
    ) -> Result<Option<Box<Starts>>, Malformed> {
        let Some(table) = state.once() else { return Ok(None) };
        let starts = (0..table::len(table)).map(|_| reader.varint().map(Millis));
        Ok(Some(Box::new(Starts(starts.collect::<Result<_, _>>()?))))
    }
}
