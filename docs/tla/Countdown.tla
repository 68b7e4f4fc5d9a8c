------------------------------ MODULE Countdown ------------------------------
(* What crashes cost a countdown at one node: its clock, when the clock is      *)
(* saved, and which clocks run after a crash.                                   *)
(* [docs/protocols/rmwpaxos-expiry.md 9.11]                                     *)
(*                                                                             *)
(* One clock, one time to live. Time passes only while the process runs. Votes  *)
(* and cut fractions are in Expiry.tla.                                         *)

EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Keys,        \* each gets one countdown
    Span,        \* their time to live
    Interval,    \* a running clock is saved before it has run longer
    TimeMax,
    CrashMax,
    Mutation

Mutations == {"none",
    "count-twice",    \* after a crash the clock goes on beyond what was saved
    "never-rests",    \* the clock runs on, unsaved, while nothing counts
    "saves-late",     \* the clock of a running countdown is not saved in time
    "saved-end",      \* after a crash the clock runs to the saved end only
    "store-unmarked"} \* an acceptance is durable before the first use of its clock
ASSUME Mutation \in Mutations

Symmetry == Permutations(Keys)

VARIABLES
    time,
    shown,    \* what the clock shows
    until,    \* the known countdowns are over when it shows this
    saved,    \* [shown, until]; until 0: the clock was never used
    keys,     \* key -> [held, started, crashes, accepted]; held: it was not over
    crashes

vars == <<time, shown, until, saved, keys, crashes>>

New == [held |-> 0, started |-> 0, crashes |-> 0, accepted |-> FALSE]
Max(a, b) == IF a > b THEN a ELSE b

Init ==
    /\ time = 0
    /\ shown = 0
    /\ until = 0
    /\ saved = [shown |-> 0, until |-> 0]
    /\ keys = [k \in Keys |-> New]
    /\ crashes = 0

Counts == shown < until
IsOver(key) == key.accepted /\ shown - key.started >= Span

Tick ==
    /\ time < TimeMax
    /\ ~Counts \/ shown - saved.shown < Interval \/ Mutation = "saves-late"
    /\ time' = time + 1
    /\ shown' = IF Counts \/ Mutation = "never-rests" THEN shown + 1 ELSE shown
    /\ keys' = [k \in Keys |->
           IF keys[k].accepted /\ ~IsOver(keys[k])
           THEN [keys[k] EXCEPT !.held = @ + 1] ELSE keys[k]]
    /\ UNCHANGED <<until, saved, crashes>>

Accept(k) ==
    /\ ~keys[k].accepted
    /\ keys' = [keys EXCEPT ![k].accepted = TRUE, ![k].started = shown]
    /\ until' = Max(until, shown + Span)
    /\ UNCHANGED <<time, shown, saved, crashes>>

Save ==
    /\ saved' = [shown |-> shown, until |-> until]
    /\ UNCHANGED <<time, shown, until, keys, crashes>>

(* Registers are written and told of once the first use of their clock is saved. *)
IsStored(key) == key.accepted /\ (saved.until > 0 \/ Mutation = "store-unmarked")

Crash ==
    /\ crashes < CrashMax
    /\ crashes' = crashes + 1
    /\ shown' = saved.shown + (IF Mutation = "count-twice" THEN Interval ELSE 0)
    /\ until' = IF saved.until = 0 \/ Mutation = "saved-end" THEN saved.until
                ELSE Max(saved.until, saved.shown + Interval + Span)
    /\ keys' = [k \in Keys |->
           IF IsStored(keys[k]) THEN [keys[k] EXCEPT !.crashes = @ + 1] ELSE New]
    /\ UNCHANGED <<time, saved>>

Next ==
    \/ Tick
    \/ Save
    \/ Crash
    \/ \E k \in Keys : Accept(k)

Spec == Init /\ [][Next]_vars

NeverEarly == \A k \in Keys : IsOver(keys[k]) => keys[k].held >= Span

(* What a crash costs is bounded, wherever it comes. *)
NotLate == \A k \in Keys :
    keys[k].accepted /\ ~IsOver(keys[k]) =>
        keys[k].held < Span + keys[k].crashes * Interval
=============================================================================
