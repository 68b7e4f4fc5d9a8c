//! Deliberate mistakes, switched on one at a time to show that the tests would notice them.
//!
//! Each leaves out one rule of the specification. They exist only under `cfg(test)` and the feature
//! `mutations`. Elsewhere [`is`] is a constant `false` and the mistake is not compiled.

base::mutations! {
    /// A read decides by equal values instead of equal rounds.
    EqualValues = "equal-values",
    /// Ballots do not name the incarnation that minted them.
    NoIncarnation = "no-incarnation",
    /// Recovery mints ballots from a generator of its own.
    TwoMinters = "two-minters",
    /// An operation is attempted again without looking for its earlier attempts.
    NoAncestry = "no-ancestry",
    /// An attempt seen in a state that is not known to be chosen counts as success.
    EarlyOk = "early-ok",
    /// An attempt counts as dead though the chosen round is lower than its own.
    LowExclusion = "low-exclusion",
    /// A read believes any report flagged chosen, not only the highest.
    AnyChosen = "any-chosen",
    /// A read believes the chosen flag, ignoring the floor of an absent report.
    ChosenIgnoresFloor = "chosen-ignores-floor",
    /// Absent reports and tombstones together make nil.
    NilFromMixed = "nil-from-mixed",
    /// A tombstone is collected once a majority holds it.
    CollectByMajority = "collect-by-majority",
    /// Removing a register does not raise the ballot floor.
    NoBallotFloor = "no-ballot-floor",
    /// Removing a register does not raise the version floor.
    NoVersionFloor = "no-version-floor",
    /// An absent register is reported as a tombstone accepted at the floor.
    AbsentAsTombstone = "absent-as-tombstone",
    /// Phase 1 and reads trust one holder without hearing the members that may have removed it.
    OneHolderWins = "one-holder-wins",
    /// A report counts although its member is known not to have held that state.
    DenialIgnored = "denial-ignored",
    /// An absent report counts although its member is known to have held another member's state.
    WitnessIgnored = "witness-ignored",
    /// One member's claim that others held its state counts against any number of absent reports.
    WitnessAlone = "witness-alone",
    /// Members that hold the same keep different floors.
    FloorsStay = "floors-stay",
    /// Promises are neither durable nor under a ceiling.
    VolatilePromises = "volatile-promises",
    /// A register that was forgotten takes part as if it were absent.
    NoRecovery = "no-recovery",
    /// Answers given before an amnesia still count.
    NoCrashVector = "no-crash-vector",
    /// A recovering replica adopts a minority's value as its own vote.
    AdoptMinority = "adopt-minority",
    /// A no-op result is released below the operation's own attempts.
    NoOpBelowAttempt = "no-op-below-attempt",
    /// The result of a forwarded operation is forgotten while a copy of it may still arrive.
    ForgetForwarded = "forget-forwarded",
    /// A forwarded operation runs at any incarnation of the owner.
    ForwardAnyIncarnation = "forward-any-incarnation",
    /// A forwarded operation ends with the claim that it had no effect.
    NoQuorumAfterForward = "no-quorum-after-forward",
    /// After a crash a countdown resumes from beyond the saved value of its clock.
    CountTwice = "count-twice",
    /// The clocks of countdowns run on, unsaved, while no countdown uses them.
    NeverRests = "never-rests",
    /// One replica's countdown is enough to expire a key.
    ExpireByOne = "expire-by-one",
    /// A countdown is kept over a change of the deadline, as long as the key has one.
    CountdownKept = "countdown-kept",
    /// A reply leaves before the state that it reveals is durable.
    ReplyBeforeStored = "reply-before-stored",
    /// A report shows a state that is not durable yet.
    ExposeUnflushed = "expose-unflushed",
    /// An acknowledgement of a higher ballot counts for a lower one.
    AckOfHigherBallot = "ack-of-higher-ballot",
    /// An acceptor takes an accept below its promise.
    AcceptBelowPromise = "accept-below-promise",
    /// An owner answers conditional commands without a change from its own state.
    AnswerFromTip = "answer-from-tip",
    /// A delta is applied to any round, if the digest allows it.
    DeltaAnyBase = "delta-any-base",
    /// The result of a delta is accepted without comparing its digest.
    DeltaNoDigest = "delta-no-digest",
    /// A delta is applied to any held state, and its result is accepted.
    DeltaUnchecked = "delta-unchecked",
    /// An acceptor completes phase 1 though it holds another round than the base.
    FirstOnAnyBase = "first-on-any-base",
    /// An acceptor completes phase 1 for an absent register whose version it has seen removed.
    FirstBelowFloor = "first-below-floor",
    /// An acceptor completes phase 1 with a promise from before an amnesia.
    FirstFromBeforeLoss = "first-from-before-loss",
    /// A first proposal is sent again after its proposer has lost its memory.
    FirstRepeatedAfterLoss = "first-repeated-after-loss",
    /// A proposer accepts its first proposal before another acceptor completed phase 1.
    FirstAcceptedByProposer = "first-accepted-by-proposer",
    /// Asking for the whole state counts as an acknowledgement.
    NeedFullIsAck = "need-full-is-ack",
    /// A request for a proposal gets the newest state under the round that it named.
    TipUnderAskedRound = "tip-under-asked-round",
    /// A read answers with the newest report though no majority is known to hold it.
    NoWriteBack = "no-write-back",
    /// Operations do not name the start of the process that asked.
    StaleAnswers = "stale-answers",
    /// A store that is not newer overwrites all the same.
    StoreOlder = "store-older",
    /// A deletion drops the register with its version.
    DropTombstone = "drop-tombstone",
    /// An ended key is answered as absent before a majority holds its end.
    EndUnstored = "end-unstored",
    /// A value at a minority is not given to the others before its end.
    EndUncounted = "end-uncounted",
    /// A replica that missed the end of a value does not store it.
    EndMissed = "end-missed",
    /// The recovery of a shard goes on although the shard is forgotten again.
    RecoveryGoesOn = "recovery-goes-on",
    /// A recovering replica asks a majority that includes itself.
    RecoverFromSelf = "recover-from-self",
    /// A tombstone is removed once a majority holds it.
    VerifyByMajority = "abd-verify-by-majority",
    /// Tombstones are removed though operations of earlier eras count.
    BuryUnclosed = "abd-bury-unclosed",
    /// A restarted replica counts operations of closed eras.
    ForgetClosed = "abd-forget-closed",
    /// An era is closed though operations of earlier ones are in progress.
    AdvanceEarly = "abd-advance-early",
    /// A write of a later era does not lie above versions of earlier ones.
    MintBelowEra = "abd-mint-below-era",
    /// A forgotten shard is recovered without its eras.
    RecoverUndated = "abd-recover-undated",
    /// A register that is not forgotten any more takes a recovered content.
    AdoptLate = "abd-adopt-late",
    /// A write is validated once a majority has acknowledged it.
    ValidateByMajority = "validate-by-majority",
    /// A read-modify-write that started from an old value is acknowledged like a write.
    AckLosingRmw = "ack-losing-rmw",
    /// A command with a place in the total order is applied before a majority is known to hold it.
    ApplyUncommitted = "apply-uncommitted",
    /// A hint that a round is chosen is believed of any ballot.
    HintOfAnotherBallot = "hint-of-another-ballot",
    /// A hint that a round is chosen is believed of later rounds of its ballot.
    HintOfAnEarlierRound = "hint-of-an-earlier-round",
    /// A listing takes the highest report of each key, whether or not others hold it.
    ListHighest = "list-highest",
    /// Replicas never compare their states.
    NoComparison = "no-comparison",
    /// Shards without writes are never compared.
    NoPatrol = "no-patrol",
    /// A register that is older than it was counts as one that missed an accept.
    OlderIsLag = "older-is-lag",
    /// A member that says that a register was removed is believed though it is alone.
    OneDenies = "one-denies",
    /// Several members of a shard are told at once that they held more.
    AllAreTold = "all-are-told",
    /// A late accept is taken below the floor of an absent register.
    RepairBelowFloor = "repair-below-floor",
    /// A tombstone is delivered to a replica that has removed it.
    RepairRemoved = "repair-removed",
    /// A command under `ONCE` that made no change is not remembered.
    OnceForgetsNoOps = "once-forgets-no-ops",
    /// A full table forgets its oldest command for a newer one.
    OnceEvictsOldest = "once-evicts-oldest",
    /// A refusal of a command that may have run is passed on.
    OnceRefusalStays = "once-refusal-stays",
    /// A deletion forgets the commands that ran on the key.
    OnceLostOnDelete = "once-lost-on-delete",
    /// A tombstone that remembers commands is collected.
    OnceCollected = "once-collected",
    /// One replica's count is enough to forget a command.
    OnceDroppedByOne = "once-dropped-by-one",
    /// A repeated command is answered from a state that is not known to be chosen.
    OnceFromUndecided = "once-from-undecided",
    /// A member that answers again is counted for one that has not.
    AnswerCountedTwice = "answer-counted-twice",
    /// An acceptor promises before the fence of the ballot is durable.
    FenceNotDurable = "tx-fence-not-durable",
    /// A majority raises the fence, but not with its promises.
    FenceApart = "tx-fence-apart",
    /// Only the proposer's own acceptor raises the fence.
    FenceOnOne = "tx-fence-on-one",
    /// An acceptor does not answer ballots that a fence shuts out.
    FenceSilent = "tx-fence-silent",
    /// A fence need not be raised by the promises of the ballot that relies on it.
    FenceUnderAnyBallot = "tx-fence-under-any-ballot",
    /// A forgotten register is recovered without the fences of its shard.
    FenceNotRecovered = "tx-fence-not-recovered",
    /// A command of an incarnation that was shut out is proposed under a later one.
    ProposedByLaterIncarnation = "tx-proposed-by-later-incarnation",
    /// A proposer that is no replica counts itself for a silent one.
    OutsideCounts = "outside-counts",
    /// A version does not name its writer.
    BareNumber = "bare-number",
    /// A member acknowledges a write before it is durable here.
    AckBeforeDurable = "hermes-ack-before-durable",
    /// A read-modify-write counts as lost on the first newer version.
    AbortOnHigher = "hermes-abort-on-higher",
    /// Acknowledgements of an epoch count in the next one.
    AcksOutliveEpoch = "hermes-acks-outlive-epoch",
    /// A read-modify-write is replayed though its coordinator is a member.
    ReplayLiveRmw = "hermes-replay-live-rmw",
    /// A member without a register takes versions of any era.
    TakeLate = "hermes-take-late",
    /// A tombstone is removed once one member has answered.
    BuryUnraised = "hermes-bury-unraised",
    /// A member lets a tombstone be removed whatever it holds.
    RaiseAnyHeld = "hermes-raise-any-held",
    /// Tombstones are removed while a shadow copies.
    CollectBesideCopy = "hermes-collect-beside-copy",
    /// A plain write is acknowledged beside a version of a later life.
    AckEarlierLife = "hermes-ack-earlier-life",
    /// A plain write below a version of a later life counts as ordered before it.
    EndEarlierLife = "hermes-end-earlier-life",
    /// A plain write that comes too late counts as ordered before a deletion.
    StaleEndsWell = "hermes-stale-ends-well",
    /// A write is validated without the shadows.
    AcksWithoutShadows = "hermes-acks-without-shadows",
    /// A local read answers from a register that is not valid.
    ReadInvalid = "read-invalid",
    /// A register is validated whichever version it holds.
    ValidateAnyVersion = "validate-any-version",
    /// A node that lost its state joins any epoch.
    ZabForgetsPromises = "zab-forgets-promises",
    /// Histories are compared by their last entries alone.
    ZabComparesZxidsOnly = "zab-compares-zxids-only",
    /// An epoch stands before a majority has the history of its leader.
    ZabStandsAlone = "zab-stands-alone",
    /// A follower notes an epoch before it has the history of its leader.
    ZabNotesEpochEarly = "zab-notes-epoch-early",
    /// A leader whose epoch others made stand never notes it.
    ZabNeverNotes = "zab-never-notes",
    /// A follower acknowledges entries before they are durable.
    ZabAcksBeforeDurable = "zab-acks-before-durable",
    /// A leader counts entries of followers that have not joined.
    ZabCountsUnjoined = "zab-counts-unjoined",
    /// A worker reads although another has shown later entries.
    ZabReadsBehind = "zab-reads-behind",
    /// A leader takes a write each time that it comes.
    ZabTakesTwice = "zab-takes-twice",
    /// A write is sent to a new leader though the one before may have taken it.
    ZabSendsEarly = "zab-sends-early",
    /// A copied register replaces a newer one.
    ZabAdoptsOlder = "zab-adopts-older",
    /// A deletion during a copy leaves no trace.
    ZabForgetsDeletions = "zab-forgets-deletions",
    /// An entry is applied to a register that includes it.
    ZabAppliesAgain = "zab-applies-again",
    /// A write is sent again to the leader whose copied state may include it.
    ZabResendsCopied = "zab-resends-copied",
    /// A leader runs commands before the entries of earlier epochs are applied.
    ZabRunsAhead = "zab-runs-ahead",
    /// A read that asks for a place in the order gets none.
    ZabReadsUnordered = "zab-reads-unordered",
    /// A read finds no value once its node has counted the time to live.
    ZabEndsAlone = "zab-ends-alone",
    /// The count of a new time to live begins with that of the one before.
    ZabCountsOn = "zab-counts-on",
    /// A follower acknowledges entries beyond a gap.
    AckPastGap = "ack-past-gap",
    /// A local read does not wait for its session's own writes.
    ReadPastOwnWrites = "read-past-own-writes",
    /// A proposer ignores the votes that its phase 1 reports.
    IgnoreLowerVotes = "ignore-lower-votes",
    /// A proposer ignores the registry: an operation whose slot went to a state is run again.
    NoRegistry = "no-registry",
    /// A proposer computes its operation anew for a slot in which it may have been accepted.
    RecomputeAttempt = "recompute-attempt",
    /// A read ignores votes that are not known to be decided.
    ReadCommittedOnly = "read-committed-only",
    /// An acceptor commits its vote whatever its ballot.
    CommitAnyVote = "commit-any-vote",
    /// A proposer answers commands without effect that came after its promises.
    AnswerNewer = "answer-newer",
    /// Messages of an epoch that has ended still count.
    OldEpochCounts = "group-old-epoch-counts",
    /// A range of acknowledgements leaves once its first one is durable.
    RangeByFirstTicket = "hermes-range-by-first-ticket",
    /// Commits of a turn leave at its end, though their receivers may have forgotten the asks.
    CommitsLate = "hermes-commits-late",
    /// A range of acknowledgements covers numbers that did not come.
    RangesOverGaps = "hermes-ranges-over-gaps",
    /// Messages of an epoch that is not installed yet are dropped.
    DropsEarly = "group-drops-early",
    /// A message counts though its sender is another process than the configuration names.
    AnyProcessCounts = "group-any-process-counts",
    /// A read is answered from the own state whether or not the lease holds.
    ReadWithoutLease = "group-read-without-lease",
    /// A copy of a request that was passed on runs again.
    RunsCopies = "group-runs-copies",
    /// A shadow gives copies to other shadows.
    CopyFromShadow = "group-copy-from-shadow",
    /// A shadow runs requests.
    ShadowServes = "group-shadow-serves",
    /// A copy counts as complete before it is durable.
    CopiedBeforeDurable = "group-copied-before-durable",
    /// A member hands a version on before it is durable here.
    HandOnBeforeDurable = "craq-hand-on-before-durable",
    /// A read is answered by a dirty version.
    ReadDirty = "craq-read-dirty",
    /// A member acknowledges a version that came again though it is dirty here.
    UpForCopy = "craq-up-for-copy",
    /// The head takes a copy of a command that has ended for a new one.
    ForgetsEnded = "craq-forgets-ended",
    /// The tail's answer to one read answers those that came later, too.
    LaterReadsJoin = "craq-later-reads-join",
    /// The head does not look for steered commands in the register.
    NoTable = "craq-no-table",
    /// The head runs a command that its origin has given up behind a newer one.
    RunsLateSteers = "craq-runs-late-steers",
    /// A command that an earlier head may have run is answered without a version of this epoch.
    RepeatsUnseen = "craq-repeats-unseen",
    /// A register does not name a command whose reply is too long to keep.
    ForgetsLong = "craq-forgets-long",
    /// A version is committed without the shadows.
    ShadowsAreNoEnd = "craq-shadows-are-no-end",
    /// A late version of a deleted key counts though its register is removed.
    NoFloor = "craq-no-floor",
    /// The head numbers new versions without regard to the floor.
    MintBelowFloor = "craq-mint-below-floor",
    /// A floor counts while a version below is on its way.
    FloorOverPends = "craq-floor-over-pends",
    /// The register of a deleted key is removed though a command in it may come again.
    BuryNames = "craq-bury-names",
    /// A member with a clean key acknowledges a copy, and does not ask those behind.
    CleanEndsHere = "craq-clean-ends-here",
    /// A granted ballot is used again.
    GrantUsedTwice = "caspaxos-grant-used-twice",
    /// A granted ballot is used though the replicas are others than those that promised it.
    GrantOutlivesEpoch = "caspaxos-grant-outlives-epoch",
    /// A key with a time to live is changed without asking whether that is over.
    GrantSkipsDeadline = "caspaxos-grant-skips-deadline",
    TombstoneCovers = "caspaxos-tombstone-covers",
    /// A vote does not promise the proposer's next ballot.
    VoteIsNoPromise = "caspaxos-vote-is-no-promise",
    /// A command without effect is answered by a state that is not known to be chosen.
    AnswersUnchosen = "caspaxos-answers-unchosen",
    /// A recovered register forgets the promises of its quorum.
    RecoversNoPromise = "caspaxos-recovers-no-promise",
}
