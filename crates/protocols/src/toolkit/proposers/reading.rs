//! Reads: a majority reports its registers, and none is changed.

use base::Nanos;

use super::active::{Active, Phase};
use super::machine::{Cx, Machine, Rules};
use super::proposing::{ask_missing, is_over};
use crate::protocol::Peer;
use crate::replicas::Replicas;
use crate::toolkit::operation::answer_reads;
use crate::toolkit::report::Report;

/// How long a read waits for the remaining replicas before it proposes.
const PATIENCE: Nanos = Nanos::from_millis(2);

impl<R: Rules> Machine<R> {
    /// Asks a quorum for its registers.
    pub fn begin_read(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>) {
        self.begin(cx, active, Phase::Reading(Box::default()));
    }

    pub(super) fn on_read_report(
        &mut self,
        cx: &mut Cx<'_, R>,
        active: &mut Active<R>,
        from: Peer,
        report: R::Report,
    ) {
        let Phase::Reading(reports) = &mut active.phase else { return };
        reports.add(cx.replicas, (from.node, from.amnesia), report);
        if !cx.replicas.is_quorum(&reports.tally) {
            return;
        }
        match R::read(reports, cx.replicas) {
            Some(found) => self.end_read(cx, active, found),
            None if cx.replicas.is_all(&reports.tally) => propose_instead(active, cx.replicas),
            None => active.wake_at = active.wake_at.min(cx.now + PATIENCE),
        }
    }

    /// The phase waited long enough for the remaining replicas.
    pub(super) fn on_read_due(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>) {
        let Phase::Reading(reports) = &active.phase else { return };
        if !cx.replicas.is_quorum(&reports.tally) {
            active.wake_at = active.resend.next(cx.now);
            return ask_missing(cx, active);
        }
        match R::read(reports, cx.replicas) {
            Some(found) => self.end_read(cx, active, found),
            None => propose_instead(active, cx.replicas),
        }
    }

    fn end_read(
        &mut self,
        cx: &mut Cx<'_, R>,
        active: &mut Active<R>,
        found: <R::Report as Report>::Found,
    ) {
        let phase = std::mem::take(&mut active.phase);
        let Phase::Reading(reports) = phase else { return };
        R::on_read(cx, active, &reports, &found);
        let base = R::Report::state(&found).clone();
        self.recovered(cx, active, found);
        let id = base.as_ref().and_then(|state| state.expiry_id());
        let (over, rest) = id.map_or((0, None), |id| reports.votes(cx.replicas, id));
        if is_over(cx.replicas, over) {
            // The reads wait for the tombstone.
            active.voted = id;
            active.look_until = Some(cx.now + self.env.request_timeout);
            return;
        }
        self.end_look(cx, active, (id, rest));
        answer_reads(cx, &mut active.queue, active.since, &base, rest);
    }
}

/// Only a proposal decides.
fn propose_instead<R: Rules>(active: &mut Active<R>, replicas: Replicas<'_>) {
    let phase = std::mem::take(&mut active.phase);
    let Phase::Reading(reports) = phase else { return };
    active.help = true;
    R::on_undecided(active, &reports, replicas);
}
