//! Resumed ownership: an owner that paused goes on under its ballot, without phase 1. [spec 2.4]

use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::progress::active::{Active, Phase, PhaseTwo, Tip};

/// True if this node still owns the key and goes on.
pub(crate) fn try_resume(core: &Core, cx: &mut Cx<'_>, active: &mut Active) -> bool {
    if active.has_attempts() {
        return false;
    }
    let epoch = cx.replicas.epoch();
    let Some(register) = cx.cache.get_mut(&active.key) else { return false };
    let ballot = register.accepted.ballot();
    if !register.owned || register.promised != ballot || ballot.epoch() != epoch {
        return false;
    }
    let k = register.accepted.k();
    if k == u32::MAX {
        return false;
    }
    // From here on the proposer knows the last proposal, the register no longer does.
    register.owned = false;
    let state = register.state.clone();
    let version = state.as_ref().map_or(0, |state| state.version());
    let tip = Tip { state, version, round: register.accepted };
    active.phase = Phase::Owner(PhaseTwo {
        k,
        chosen_k: k,
        in_sync: core.addressees(cx),
        base_decided: true,
        ..PhaseTwo::new(ballot, tip)
    });
    true
}
