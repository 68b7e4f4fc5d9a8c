//! Deliberate mistakes, switched on one at a time to show that tests notice them.
//!
//! Each leaves out one rule of `docs/design/transactions.md`. They exist only under `cfg(test)` and
//! the feature `mutations`.

base::mutations! {
    /// T1. An aborted record is forgotten though its coordinator may still commit.
    ForgetAbortedEarly = "tx-forget-aborted-early",
    /// T1. An aborted record of a silent coordinator is forgotten without a fence.
    ForgetUnfenced = "tx-forget-unfenced",
    /// T1. A commit may be proposed by a later incarnation than the transaction's.
    CommitUnbound = "tx-commit-unbound",
    /// T1. A coordinator calls a transaction finished while it writes the commit.
    FinishedWhileDeciding = "tx-finished-while-deciding",
    /// T3. A transaction runs again after a commit of unknown outcome.
    AbortedIsLost = "tx-aborted-is-lost",
    /// T4. A commit of unknown outcome counts as aborted.
    UnknownIsAborted = "tx-unknown-is-aborted",
    /// T5. A lock of another version than the committed one is settled with the change.
    SettleAnyVersion = "tx-settle-any-version",
    /// T6. No key remembers a transaction that is safe to repeat.
    OnceNotKept = "tx-once-not-kept",
    /// T6. One that ends without a change is not remembered.
    OnceWithoutChange = "tx-once-without-change",
    /// T7. Watched keys may have changed.
    WatchIgnored = "tx-watch-ignored",
    /// T7. A watched key matches by the version that locks raise.
    WatchAnyVersion = "tx-watch-any-version",
    /// T8. States that were read one after the other count as a snapshot.
    SingleCollect = "tx-single-collect",
    /// T11. A live coordinator is pushed.
    PushLive = "tx-push-live",
    /// T11. A silent coordinator is never pushed.
    WaitForSilent = "tx-wait-for-silent",
    /// T11. Transactions of equal start have equal priority.
    NoTieBreak = "tx-no-tie-break",
    /// T11. A transaction that is attempted again loses its priority.
    PriorityLost = "tx-priority-lost",
    /// A later decision replaces the first one.
    SecondDecision = "tx-second-decision",
    /// A committed record is forgotten while keys carry its lock.
    ForgetBeforeSettled = "tx-forget-before-settled",
    /// A client hears of a commit before it is written.
    ReplyBeforeCommit = "tx-reply-before-commit",
}
