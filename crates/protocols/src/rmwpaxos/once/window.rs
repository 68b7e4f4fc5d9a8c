//! How long commands that are safe to repeat are remembered: counted like a time to live [corrections F4, F10].
//!
//! Every acceptor counts, in its own uptime, from the first state with an entry that it accepted. An entry is dropped by
//! an ordinary proposal once a majority finds its window over: whoever repeated the command before found the entry in
//! every quorum, and no clock needs to agree with any other. Votes are taken where reports are at hand anyway (phase 1,
//! quorum reads), and asked for where a table is full, and when the own acceptor finds enough windows over: half of
//! them, so that there are no more such votes than commands, or all of them for a tombstone, which can then be collected.

use base::Millis;
use types::wire::put_varint;
use types::{Malformed, Reader};

use crate::mutation::{self, Mutation};
use crate::replicas::{Places, Replicas};
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::core::operation::{Active, Operation, Source};
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::core::reports::Reports;
use crate::rmwpaxos::core::state::State;
use crate::rmwpaxos::expiry;
use crate::rmwpaxos::once::table::{self, EntryId};
use crate::rmwpaxos::register::Register;
use crate::uptime::Uptime;

/// When the entries of a register's state were first accepted here, in the order of its table, in uptime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starts(Vec<Millis>);

impl Starts {
    /// All entries of `state` are new here. `None`: it has none.
    #[must_use]
    pub fn anew(state: &State, uptime: &dyn Uptime) -> Option<Box<Starts>> {
        let starts = table::ids(state.once()?).map(|id| uptime.start(id.window));
        Some(Box::new(Starts(starts.collect())))
    }

    /// Those of `state`, which follows what `before` has held; entries that it had go on.
    #[must_use]
    pub fn going_on(before: &Register, state: &State, uptime: &dyn Uptime) -> Option<Box<Starts>> {
        let (Some(former), Some(starts)) =
            (before.state.as_ref().and_then(State::once), &before.once_starts)
        else {
            return Starts::anew(state, uptime);
        };
        // Both are in the order of their versions, as far as they lie on one chain: one walk finds what goes on. What
        // it misses of other branches starts anew, which is later and never earlier.
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
    fn over(&self, table: &[u8], uptime: &dyn Uptime) -> u64 {
        let is_over = |(id, start): (EntryId, &Millis)| uptime.rest(id.window, *start) == Millis(0);
        let bits = table::ids(table).zip(&self.0).map(is_over).enumerate();
        bits.fold(0, |bits, (at, over)| bits | u64::from(over) << at)
    }

    /// As many as the state has entries.
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

impl Register {
    /// This acceptor's vote: the entries whose windows are over, by their places in the table.
    #[must_use]
    pub fn windows_over(&self, uptime: &dyn Uptime) -> u64 {
        match (&self.once_starts, self.state.as_ref().and_then(State::once)) {
            (Some(starts), Some(table)) => starts.over(table, uptime),
            _ => 0,
        }
    }
}

fn chosen_of(table: &[u8], over: u64) -> impl Iterator<Item = EntryId> + '_ {
    table::ids(table).enumerate().filter(move |(at, _)| over >> at & 1 != 0).map(|(_, id)| id)
}

/// Entries of `state` that a majority of the reports finds over.
pub(crate) fn droppable(
    reports: &Reports,
    replicas: Replicas<'_>,
    state: Option<&State>,
) -> Vec<EntryId> {
    let Some(table) = state.and_then(State::once) else { return Vec::new() };
    let votes: Vec<(Places, Vec<EntryId>)> = reports
        .by_place(replicas)
        .filter(|(_, report)| report.windows_over != 0)
        .filter_map(|(at, report)| {
            let held = reports.state_of(report.accepted)?;
            Some((at, chosen_of(held.once()?, report.windows_over).collect()))
        })
        .collect();
    let is_over = |id: &EntryId| {
        let by = votes.iter().filter(|(_, vote)| vote.contains(id));
        let by = by.fold(0, |set, (at, _)| set | at);
        expiry::is_voted(replicas, by) || (by != 0 && mutation::is(Mutation::OnceDroppedByOne))
    };
    table::ids(table).filter(is_over).collect()
}

/// A vote on the windows of the tip's entries is worth a round trip: something waits for one to be dropped, and one may
/// be over.
pub(crate) fn wants_vote(cx: &Cx<'_>, active: &Active) -> bool {
    let Some(tip) = active.tip.as_ref().filter(|tip| tip.has_once()) else { return false };
    let Some(table) = tip.once() else { return false };
    let lacks_room = |operation: &Operation| {
        operation.once().is_some_and(|once| table::is_full_for(table, &once.session))
    };
    let waits = |operation: &Operation| match operation.source {
        Source::Forget => true,
        Source::Collect => tip.is_tombstone(),
        _ => lacks_room(operation),
    };
    active.droppable.is_empty() && active.queue.iter().any(waits) && may_be_over(cx, active, table)
}

/// The own acceptor finds one over, or lags and cannot tell.
fn may_be_over(cx: &Cx<'_>, active: &Active, table: &[u8]) -> bool {
    let held = replies::held(cx, &active.key);
    let own = held.and_then(|register| Some((register, register.state.as_ref()?.once()?)));
    let Some((register, held)) = own else { return true };
    let bits = register.windows_over(cx.uptime);
    let over: Vec<EntryId> = chosen_of(held, bits).collect();
    let known: Vec<EntryId> = table::ids(held).collect();
    table::ids(table).any(|id| over.contains(&id) || !known.contains(&id))
}

/// How long the newest entry is kept from now on.
pub(crate) fn newest(state: &State) -> Option<Millis> {
    table::ids(state.once()?).last().map(|id| id.window)
}

/// How long until, by the own count, a vote is worth its while. `None`: there is nothing to forget.
pub(crate) fn rest(register: &Register, uptime: &dyn Uptime) -> Option<Millis> {
    let state = register.state.as_ref()?;
    let starts = register.once_starts.as_ref()?;
    let mut rests: Vec<Millis> = table::ids(state.once()?)
        .zip(&starts.0)
        .map(|(id, start)| uptime.rest(id.window, *start))
        .collect();
    rests.sort_unstable();
    let last = rests.len().checked_sub(1)?;
    Some(rests[if state.is_tombstone() { last } else { last / 2 }])
}

#[cfg(test)]
mod tests {
    use types::{Ballot, Incarnation, Loss, NodeId, Round};

    use super::*;
    use crate::peers::Peers;
    use crate::replicas::ReplicaSet;
    use crate::rmwpaxos::core::state::{Ring, StateFields};
    use crate::rmwpaxos::message::Report;
    use crate::rmwpaxos::once::table::tests::{birth, table, written_at_once};
    use crate::rmwpaxos::register::Countdown;

    const WINDOW: u64 = 1_000;

    /// Sessions named by a letter, each written by the transition of its place.
    fn remembering(sessions: &str) -> State {
        let sessions: Vec<_> = sessions.bytes().map(|name| (vec![name], 1, Vec::new())).collect();
        with_table(table(&sessions).as_deref())
    }

    fn with_table(once: Option<&[u8]>) -> State {
        let (ring, expiry, value) = (Ring::default(), None, None);
        State::new(&StateFields { version: 9, mod_version: 9, ring, expiry, once, value })
    }

    fn holding(state: State, once_starts: Option<Box<Starts>>) -> Register {
        let ballot = birth(1);
        let accepted = ballot.round(1);
        Register { accepted, state: Some(state), once_starts, ..Register::promise_only(ballot) }
    }

    fn first(state: State, uptime: u64) -> Register {
        let starts = Starts::anew(&state, &Millis(uptime));
        holding(state, starts)
    }

    /// The next state that a register takes.
    fn then(before: &Register, state: State, uptime: u64) -> Register {
        let starts = Starts::going_on(before, &state, &Millis(uptime));
        holding(state, starts)
    }

    #[test]
    fn a_window_runs_in_uptime_and_is_never_early() {
        let register = first(remembering("a"), 100);
        assert_eq!(register.windows_over(&Millis(100 + WINDOW)), 0);
        assert_eq!(register.windows_over(&Millis(101 + WINDOW)), 1);
        assert_eq!(register.windows_over(&Millis(20)), 0, "uptime fell behind");
    }

    #[test]
    fn what_is_remembered_still_goes_on_and_what_is_new_begins() {
        let register = then(&first(remembering("ab"), 100), remembering("abc"), 700);
        assert_eq!(register.windows_over(&Millis(101 + WINDOW)), 0b011);
        assert_eq!(register.windows_over(&Millis(701 + WINDOW)), 0b111);
    }

    /// Windows up to a length are counted on one clock, longer ones on another.
    #[derive(Debug)]
    struct TwoClocks(Millis, Millis);

    impl Uptime for TwoClocks {
        fn now(&self, span: Millis) -> Millis {
            if span.0 <= WINDOW { self.0 } else { self.1 }
        }

        fn start(&self, span: Millis) -> Millis {
            self.now(span)
        }

        fn keep(&self, _span: Millis, _start: Millis) {}
    }

    #[test]
    fn windows_of_one_transition_are_counted_on_their_own_clocks() {
        for windows in [[WINDOW, 5 * WINDOW], [5 * WINDOW, WINDOW]] {
            let clocks = TwoClocks(Millis(7), Millis(9_000_000));
            let state = with_table(Some(&written_at_once(windows.map(Millis))));
            let mut register = holding(state.clone(), Starts::anew(&state, &clocks));
            for _ in 0..2 {
                let starts = Starts::going_on(&register, &state, &clocks);
                register = holding(state.clone(), starts);
                assert_eq!(register.windows_over(&clocks), 0, "{windows:?}");
            }
            let later = TwoClocks(Millis(8 + WINDOW), Millis(9_000_001 + 5 * WINDOW));
            assert_eq!(register.windows_over(&later), 0b11, "{windows:?}");
        }
    }

    #[test]
    fn what_was_forgotten_between_begins_anew() {
        let register = then(&first(remembering("ab"), 100), remembering("x"), 500);
        // Written by the same transition number, under the same ballot: the same transition.
        assert_eq!(register.windows_over(&Millis(101 + WINDOW)), 1);
        let register = then(&register, remembering("ab"), 900);
        assert_eq!(register.windows_over(&Millis(101 + WINDOW)), 0b01);
        assert_eq!(register.windows_over(&Millis(901 + WINDOW)), 0b11);
    }

    #[test]
    fn starts_come_back_from_their_bytes() {
        let register = then(&first(remembering("ab"), 100), remembering("abc"), 700);
        use types::Wire;
        assert_eq!(Register::from_bytes(&register.to_bytes()), Ok(register.clone()));
        let bytes = register.to_bytes();
        assert_eq!(Register::from_bytes(&bytes[..bytes.len() - 1]), Err(Malformed));
        let without = first(remembering(""), 100);
        assert_eq!(without.once_starts, None);
        assert_eq!(Register::from_bytes(&without.to_bytes()), Ok(without));
    }

    fn report(round: Round, state: &State, windows_over: u64) -> Report {
        Report {
            accepted: round,
            state: Some(state.clone()),
            chosen: false,
            floor_ballot: Ballot::ZERO,
            floor_version: 0,
            countdown: Countdown::None,
            windows_over,
            denies: false,
            witnessed: 0,
        }
    }

    #[test]
    fn a_majority_drops_what_each_of_it_finds_over() {
        let nodes = [NodeId(1), NodeId(2), NodeId(3)];
        let set = ReplicaSet::new(types::Epoch(1), NodeId(1), &nodes);
        let peers = Peers::new(NodeId(1), Incarnation(1), Loss(1), &nodes);
        let replicas = Replicas { set: &set, peers: &peers };
        let (older, newer) = (remembering("ab"), remembering("abc"));
        let mut reports = Reports::default();
        reports.add(replicas, NodeId(1), Loss(1), report(birth(1).round(1), &older, 0b11));
        assert!(droppable(&reports, replicas, Some(&newer)).is_empty(), "one is no majority");
        reports.add(replicas, NodeId(2), Loss(1), report(birth(1).round(2), &newer, 0b101));
        let over = droppable(&reports, replicas, Some(&newer));
        let ids: Vec<EntryId> = table::ids(newer.once().expect("it remembers")).collect();
        assert_eq!(over, [ids[0]], "states may differ, transitions may not");
        reports.add(replicas, NodeId(3), Loss(1), report(birth(1).round(2), &newer, 0b010));
        assert_eq!(droppable(&reports, replicas, Some(&newer)), [ids[0], ids[1]]);
        assert!(droppable(&reports, replicas, Some(&remembering(""))).is_empty());
        assert!(droppable(&reports, replicas, None).is_empty());
    }
}
