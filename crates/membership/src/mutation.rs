//! Deliberate mistakes, switched on one at a time to show that tests notice them.
//!
//! Each leaves out one rule of `docs/protocols/membership.md`. They exist only under `cfg(test)`
//! and the feature `mutations`.

base::mutations! {
    /// Any node may be full.
    NoFullKept = "membership-no-full-kept",
    /// The configuration before is taken from a value that never became active.
    PreviousFromWedging = "membership-previous-from-wedging",
    /// A removed member with its old image is full again.
    RemovedIsFull = "membership-removed-is-full",
    /// A restarted full member is full whatever its image.
    RestartedIsFull = "membership-restarted-is-full",
    /// A restarted full member must have installed the last active epoch.
    RestartedNeedsJoined = "membership-restarted-needs-joined",
    /// A shadow counts as complete in any epoch after the one of its copy.
    CopiedAnyEpoch = "membership-copied-any-epoch",
    /// A shadow that installed the last epoch counts as complete.
    JoinedShadowIsFull = "membership-joined-shadow-is-full",
    /// A node joins with its old records.
    StaleJoins = "membership-stale-joins",
    /// A node joins by a report from before the last active epoch.
    OldReportJoins = "membership-old-report-joins",
    /// A wiped node keeps its image id.
    SameImage = "membership-same-image",
    /// Leases count from the receipt of the grant.
    LeaseFromReceipt = "membership-lease-from-receipt",
    /// A restarted granter agrees to a new epoch at once.
    NoQuarantine = "membership-no-quarantine",
    /// The quarantine is as long as the setting, not as the lease that was granted.
    QuarantineBySetting = "membership-quarantine-by-setting",
    /// Quorums are majorities of the group's members.
    QuorumOfMembers = "membership-quorum-of-members",
    /// A granter agrees to a new epoch without waiting for its grants.
    NoGrantWait = "membership-no-grant-wait",
    /// A seal of an earlier epoch ends the wait for a grant.
    SealOfAnyEpoch = "membership-seal-of-any-epoch",
    /// Granters allow for no difference between the rates of clocks.
    NoDrift = "membership-no-drift",
    /// The promise is not durable, and a restarted node answers before it read the register.
    VolatilePromise = "membership-volatile-promise",
    /// A node without a record answers before it read the register.
    AnswersBeforeRead = "membership-answers-before-read",
    /// Granter, install and activation ignore incarnation and image.
    NoIncarnation = "membership-no-incarnation",
    /// A configuration becomes active without the seals of its full members.
    NoSealAwaited = "membership-no-seal-awaited",
    /// A node says that it has sealed before its workers have.
    SealedEarly = "membership-sealed-early",
    /// A configuration below the promise is installed.
    InstallBelowPromise = "membership-install-below-promise",
    /// A configuration is installed before the register holds it.
    InstallBeforeActive = "membership-install-before-active",
    /// A swap of unknown outcome counts as done.
    UnknownIsDone = "membership-unknown-is-done",
    /// Grants from before a change count for the next epoch.
    GrantsKept = "membership-grants-kept",
    /// A granter counts from the clock of its last step.
    StaleGranterClock = "membership-stale-granter-clock",
    /// A grant is sent some time after the promise was checked, and after it was noted.
    GrantHeld = "membership-grant-held",
    /// A heartbeat raises the promise without sealing.
    RaiseWithoutSeal = "membership-raise-without-seal",
    /// A repeated wedge is not answered.
    RepeatedWedgeIgnored = "membership-repeated-wedge-ignored",
    /// A proposer declares a group lost.
    ProposerDeclaresLost = "membership-proposer-declares-lost",
    /// A node erases an image of which it has lost a part before it hears a full member.
    LossErases = "membership-loss-erases",
    /// An operator's order is obeyed at a node that is cut off.
    OrderCutOff = "membership-order-cut-off",
    /// A member leaves out another one that it does not hear, although others hear it.
    LeavesOutUnheard = "membership-leaves-out-unheard",
    /// An active value that was not installed is not looked for.
    NoPolling = "membership-no-polling",
    /// Heartbeats ask for leases of an epoch that is wedging.
    BeatsWhileWedging = "membership-beats-while-wedging",
    /// A member whose seal was missing is chosen again at once.
    MissingForgotten = "membership-missing-forgotten",
    /// Missing acknowledgements are no evidence.
    NoStallEvidence = "membership-no-stall-evidence",
    /// A process with any image of the node ends the wait for a grant.
    SeenAnyImage = "membership-seen-any-image",
    /// Test world: `Sealed` is reported once one worker has sealed.
    OneWorkerSealed = "membership-one-worker-sealed",
    /// Test world: clocks stand while a process is paused.
    ClockStops = "membership-clock-stops",
    /// Test world: clocks run at rates beyond the bound.
    RatesBeyondBound = "membership-rates-beyond-bound",
    /// Test world: a read compares the lease with a clock from before the request.
    ClockBeforeRequest = "membership-clock-before-request",
    /// Test world: a read takes its epoch at the end.
    EpochAtEnd = "membership-epoch-at-end",
    /// Test world: a read does not look at the clock.
    NoClock = "membership-no-clock",
    /// Test world: members take frames of other epochs.
    AnyEpochFrames = "membership-any-epoch-frames",
    /// Test world: a shadow need not acknowledge.
    ShadowNotCounted = "membership-shadow-not-counted",
    /// Test world: links drop membership frames of processes that are not listed.
    LinkFiltersMembership = "membership-link-filters",
    /// Test world: versions name the node, and leave before they are durable.
    WriterIsNode = "membership-writer-is-node",
}
