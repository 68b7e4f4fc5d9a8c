------------------------------ MODULE Countdown ------------------------------
(* What crashes cost a countdown at one node: its clock, when the clock is      *)
(* saved, and which clocks run after a crash. [docs/protocols/rmwpaxos.md 9.11] *)
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
    "tell-unmarked"}  \* the first use of the clock is told before it is saved
ASSUME Mutation \in Mutations

Symmetry == Permutations(Keys)

VARIABLES
    time,
    shown,    \* what the clock shows
    until,    \* the known countdowns are over when it shows this
    saved,    \* [shown, until]; until 0: the clock was never used
    keys,     \* key -> [held, started, crashes, accepted, told]; held: it was not over
    crashes

vars == <<time, shown, until, saved, keys, crashes>>

(* An acceptance that a crash came before may be told at any later time, as if it *)
(* had been accepted then.                                                      *)
Excused == TimeMax
Max(a, b) == IF a > b THEN a ELSE b

Init ==
    /\ time = 0
    /\ shown = 0
    /\ until = 0
    /\ saved = [shown |-> 0, until |-> 0]
    /\ keys = [k \in Keys |->
           [held |-> 0, started |-> 0, crashes |-> 0, accepted |-> FALSE, told |-> FALSE]]
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

(* Others hear of the acceptance. *)
Tell(k) ==
    /\ keys[k].accepted
    /\ saved.until > 0 \/ Mutation = "tell-unmarked"
    /\ keys' = [keys EXCEPT ![k].told = TRUE]
    /\ UNCHANGED <<time, shown, until, saved, crashes>>

Crash ==
    /\ crashes < CrashMax
    /\ crashes' = crashes + 1
    /\ shown' = saved.shown + (IF Mutation = "count-twice" THEN Interval ELSE 0)
    /\ until' = IF saved.until = 0 \/ Mutation = "saved-end" THEN saved.until
                ELSE Max(saved.until, saved.shown + Interval + Span)
    /\ keys' = [k \in Keys |->
           IF ~keys[k].accepted THEN keys[k]
           ELSE [keys[k] EXCEPT !.crashes = IF keys[k].told THEN @ + 1 ELSE Excused]]
    /\ UNCHANGED <<time, saved>>

Next ==
    \/ Tick
    \/ Save
    \/ Crash
    \/ \E k \in Keys : Accept(k) \/ Tell(k)

Spec == Init /\ [][Next]_vars

NeverEarly == \A k \in Keys : IsOver(keys[k]) => keys[k].held >= Span

(* What a crash costs is bounded, wherever it comes. *)
NotLate == \A k \in Keys :
    keys[k].told /\ ~IsOver(keys[k]) => keys[k].held < Span + keys[k].crashes * Interval
=============================================================================
