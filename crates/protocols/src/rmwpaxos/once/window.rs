//! How long commands that are safe to repeat are remembered: counted like a time to live
//! [corrections F4, F10].
//!
//! Every acceptor counts in its own uptime, from the first state with an entry that it accepted. An
//! ordinary proposal drops an entry once a majority finds its window over. No two clocks need to
//! agree, and a command that is repeated earlier finds its entry in every quorum.
//!
//! Votes are taken wherever reports are at hand (phase 1, quorum reads). They are requested if a
//! table is full, or if this acceptor finds enough windows over. For a live key these are half of
//! them, so that votes never outnumber commands. For a tombstone these are all, so that it can then
//! be collected.

use base::Millis;

use crate::mutation::{self, Mutation};
use crate::replicas::{Places, Replicas};
use crate::rmwpaxos::expiry;
use crate::rmwpaxos::once::table::{self, EntryId};
use crate::rmwpaxos::progress::reports::Reports;
use crate::rmwpaxos::record::register::Register;
use crate::rmwpaxos::record::state::State;
use crate::uptime::Uptime;

/// The entries at these places.
pub(crate) fn chosen_of(table: &[u8], over: u64) -> impl Iterator<Item = EntryId> + '_ {
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

/// The window of the newest entry.
pub(crate) fn newest(state: &State) -> Option<Millis> {
    table::ids(state.once()?).last().map(|id| id.window)
}

/// The time until a vote is worth a round trip, by this acceptor's count. `None`: there is no
/// entry.
pub(crate) fn rest(register: &Register, uptime: &dyn Uptime) -> Option<Millis> {
    let state = register.state.as_ref()?;
    let starts = register.once_starts.as_ref()?;
    let mut rests: Vec<Millis> = table::ids(state.once()?)
        .zip(starts.all())
        .map(|(id, start)| uptime.rest(id.window, *start))
        .collect();
    rests.sort_unstable();
    let last = rests.len().checked_sub(1)?;
    Some(rests[if state.is_tombstone() { last } else { last / 2 }])
}

#[cfg(test)]
mod tests {
    use types::{AmnesiaCount, Ballot, Incarnation, NodeId, Round};

    use types::Malformed;

    use super::*;
    use crate::peers::Peers;
    use crate::replicas::ReplicaSet;
    use crate::rmwpaxos::message::Report;
    use crate::rmwpaxos::once::starts::Starts;
    use crate::rmwpaxos::once::table::tests::{birth, table, written_at_once};
    use crate::rmwpaxos::record::register::Countdown;
    use crate::rmwpaxos::record::state::{Ring, StateFields};

    const WINDOW: u64 = 1_000;

    /// Sessions named by a letter, each written by the transition of its place.
    fn remembering(sessions: &str) -> State {
        let sessions: Vec<_> = sessions.bytes().map(|name| (vec![name], 1, Vec::new())).collect();
        with_table(table(&sessions).as_deref())
    }

    fn with_table(once: Option<&[u8]>) -> State {
        let (ring, expiry, value) = (Ring::default(), None, None);
        State::new(&StateFields {
            version: 9,
            mod_version: 9,
            ring,
            expiry,
            once,
            lock: None,
            value,
        })
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
        let starts = Starts::going_on(before.starts(), &state, &Millis(uptime));
        holding(state, starts)
    }

    #[test]
    fn window_runs_in_uptime_and_never_ends_early() {
        let register = first(remembering("a"), 100);
        assert_eq!(register.windows_over(&Millis(100 + WINDOW)), 0);
        assert_eq!(register.windows_over(&Millis(101 + WINDOW)), 1);
        assert_eq!(register.windows_over(&Millis(20)), 0, "uptime fell behind");
    }

    #[test]
    fn kept_entries_keep_their_start_and_new_begin() {
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
    fn windows_of_one_transition_use_their_own_clocks() {
        for windows in [[WINDOW, 5 * WINDOW], [5 * WINDOW, WINDOW]] {
            let clocks = TwoClocks(Millis(7), Millis(9_000_000));
            let state = with_table(Some(&written_at_once(windows.map(Millis))));
            let mut register = holding(state.clone(), Starts::anew(&state, &clocks));
            for _ in 0..2 {
                let starts = Starts::going_on(register.starts(), &state, &clocks);
                register = holding(state.clone(), starts);
                assert_eq!(register.windows_over(&clocks), 0, "{windows:?}");
            }
            let later = TwoClocks(Millis(8 + WINDOW), Millis(9_000_001 + 5 * WINDOW));
            assert_eq!(register.windows_over(&later), 0b11, "{windows:?}");
        }
    }

    #[test]
    fn entry_forgotten_in_between_starts_anew() {
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
    fn majority_drops_entries_that_each_finds_over() {
        let nodes = [NodeId(1), NodeId(2), NodeId(3)];
        let set = ReplicaSet::new(types::Epoch(1), NodeId(1), &nodes);
        let peers = Peers::new(NodeId(1), Incarnation(1), AmnesiaCount(1), &nodes);
        let replicas = Replicas { set: &set, peers: &peers };
        let (older, newer) = (remembering("ab"), remembering("abc"));
        let mut reports = Reports::default();
        reports.add(replicas, NodeId(1), AmnesiaCount(1), report(birth(1).round(1), &older, 0b11));
        assert!(droppable(&reports, replicas, Some(&newer)).is_empty(), "one is no majority");
        reports.add(replicas, NodeId(2), AmnesiaCount(1), report(birth(1).round(2), &newer, 0b101));
        let over = droppable(&reports, replicas, Some(&newer));
        let ids: Vec<EntryId> = table::ids(newer.once().expect("it remembers")).collect();
        assert_eq!(over, [ids[0]], "states may differ, transitions may not");
        reports.add(replicas, NodeId(3), AmnesiaCount(1), report(birth(1).round(2), &newer, 0b010));
        assert_eq!(droppable(&reports, replicas, Some(&newer)), [ids[0], ids[1]]);
        assert!(droppable(&reports, replicas, Some(&remembering(""))).is_empty());
        assert!(droppable(&reports, replicas, None).is_empty());
    }
}
