----------------------------- MODULE Tombstones -----------------------------
(* Collection of tombstones: one key, durable acceptors, any order of messages. *)
(* [docs/protocols/rmwpaxos.md 0.5, 9.3 to 9.5; rmwpaxos-expiry.md 7.5]         *)
(*                                                                             *)
(* Nothing that was sent ever leaves the network: what may be lost is simply    *)
(* not received, what may be late or twice is received at any time. A crash of  *)
(* a proposer is a proposer that does nothing more.                            *)
(*                                                                             *)
(* Not here: recovery (Recovery), P0 (JointPhases), deltas.                    *)

EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Acceptors,
    BallotMax,  \* ballots are 1..BallotMax; each is used by one proposer only
    PlaceMax,   \* proposals under one ballot
    Sets,       \* operations that leave a value
    Deletes,    \* operations that leave a tombstone
    Reads,      \* whether somebody reads
    Mutation

Mutations == {"none",
    "collect-by-majority",   \* Remove after a majority holds the tombstone
    "no-ballot-floor",       \* Remove forgets what was promised
    "no-version-floor",      \* Remove forgets the version
    "remove-another-round",  \* Remove drops whatever is held
    "floor-without-promise", \* the floor is the tombstone's ballot only
    "read-ignores-floor"}    \* a chosen mark outvotes a later removal
ASSUME Mutation \in Mutations

Ballots == 1..BallotMax
Rounds == Ballots \X (1..PlaceMax)
Ops == Sets \union Deletes
None == <<>>
NoRound == <<0, 0>>
Majority == Cardinality(Acceptors) \div 2 + 1
Quorums == {Q \in SUBSET Acceptors : Cardinality(Q) = Majority}
Symmetry == Permutations(Acceptors)

Below(r, s) == r[1] < s[1] \/ (r[1] = s[1] /\ r[2] < s[2])
Max(i, j) == IF i > j THEN i ELSE j
IsPrefix(s, t) == Len(s) <= Len(t) /\ \A i \in DOMAIN s : s[i] = t[i]
Comparable(s, t) == IsPrefix(s, t) \/ IsPrefix(t, s)

VARIABLES
    record,    \* acceptor -> None, or [promised, round, marked]
    floor,     \* acceptor -> [ballot, version, past]
    promises,  \* ballot -> acceptor -> None, or what it reported
    proposals, \* round -> None, or a state
    acks,      \* {<<acceptor, round>>}: this round was acknowledged
    attempts,  \* operation -> {<<ballot, version of the base>>}
    reader     \* [phase, start, reports, result]

vars == <<record, floor, promises, proposals, acks, attempts, reader>>

(* A state: its version, the ring of births (here of length one; 0 is an empty   *)
(* ring), whether it is a tombstone, and, as a ghost, all that happened to it.   *)
Nil(version, past) == [version |-> version, birth |-> 0, dead |-> TRUE, past |-> past]

Init ==
    /\ record = [a \in Acceptors |-> None]
    /\ floor = [a \in Acceptors |-> [ballot |-> 0, version |-> 0, past |-> <<>>]]
    /\ promises = [b \in Ballots |-> [a \in Acceptors |-> None]]
    /\ proposals = [r \in Rounds |-> None]
    /\ acks = {}
    /\ attempts = [o \in Ops |-> {}]
    /\ reader = [phase |-> "idle", start |-> <<>>, result |-> <<>>,
                 reports |-> [a \in Acceptors |-> None]]

Effective(a) == IF record[a] = None THEN floor[a].ballot ELSE record[a].promised
Permits(a, b) == b > Effective(a) \/ (record[a] # None /\ record[a].promised = b)
Held(a) == IF record[a] = None THEN NoRound ELSE record[a].round
Marked(a) == record[a] # None /\ record[a].marked
Report(a) == [round |-> Held(a), floor |-> floor[a]]

(* Acknowledgements are cumulative within a ballot. *)
Chosen(r) == \E Q \in Quorums : \A a \in Q :
    \E k \in r[2]..PlaceMax : <<a, <<r[1], k>>>> \in acks
ChosenPasts == {proposals[r].past : r \in {s \in Rounds : Chosen(s)}}
Longest(pasts) == IF pasts = {} THEN <<>>
                  ELSE CHOOSE p \in pasts : \A q \in pasts : Len(q) <= Len(p)

Promise(a, b) ==
    /\ promises[b][a] = None
    /\ b > Effective(a)
    /\ promises' = [promises EXCEPT ![b][a] = Report(a)]
    /\ record' = [record EXCEPT ![a] =
           [promised |-> b, round |-> Held(a), marked |-> Marked(a)]]
    /\ UNCHANGED <<floor, proposals, acks, attempts, reader>>

(* E6: an absent base has the highest floor version that is reported. *)
BaseOf(reports) ==
    LET highest == CHOOSE r \in reports : \A s \in reports : ~Below(r.round, s.round)
        top == CHOOSE r \in reports : \A s \in reports : Len(s.floor.past) <= Len(r.floor.past)
        version == CHOOSE v \in {r.floor.version : r \in reports} :
                       \A r \in reports : r.floor.version <= v
    IN  IF highest.round = NoRound THEN Nil(version, top.floor.past)
        ELSE proposals[highest.round]

(* E1, by what the state itself shows [9.4]. *)
ProvablyAbsent(attempt, base) ==
    \/ base.version <= attempt[2]
    \/ base.version = attempt[2] + 1 /\ base.birth # 0 /\ base.birth # attempt[1]
MayAttempt(o, base) ==
    /\ \A attempt \in attempts[o] : ProvablyAbsent(attempt, base)
    /\ o \in Deletes => ~base.dead
Applied(o, b, base) ==
    [version |-> base.version + 1, birth |-> b, dead |-> o \in Deletes,
     past |-> Append(base.past, o)]

Send(r, state) == proposals' = [proposals EXCEPT ![r] = state]

ProposeOn(base, r) ==
    \/ /\ Send(r, base)
       /\ UNCHANGED attempts
    \/ \E o \in Ops :
       /\ MayAttempt(o, base)
       /\ Send(r, Applied(o, r[1], base))
       /\ attempts' = [attempts EXCEPT ![o] = @ \union {<<r[1], base.version>>}]

Propose(b) ==
    /\ proposals[<<b, 1>>] = None
    /\ \E Q \in Quorums :
       /\ \A a \in Q : promises[b][a] # None
       /\ ProposeOn(BaseOf({promises[b][a] : a \in Q}), <<b, 1>>)
    /\ UNCHANGED <<record, floor, promises, acks, reader>>

ProposeNext(b, k) ==
    /\ proposals[<<b, k - 1>>] # None
    /\ proposals[<<b, k>>] = None
    /\ ProposeOn(proposals[<<b, k - 1>>], <<b, k>>)
    /\ UNCHANGED <<record, floor, promises, acks, reader>>

Accept(a, r) ==
    /\ proposals[r] # None
    /\ Permits(a, r[1])
    /\ Below(Held(a), r)
    /\ record' = [record EXCEPT ![a] = [promised |-> r[1], round |-> r, marked |-> FALSE]]
    /\ acks' = acks \union {<<a, r>>}
    /\ UNCHANGED <<floor, promises, proposals, attempts, reader>>

(* The hint that what is held is chosen. *)
Mark(a) ==
    /\ Reads
    /\ Held(a) # NoRound
    /\ ~record[a].marked
    /\ Chosen(record[a].round)
    /\ record' = [record EXCEPT ![a].marked = TRUE]
    /\ UNCHANGED <<floor, promises, proposals, acks, attempts, reader>>

Collectable(r) ==
    /\ proposals[r] # None
    /\ proposals[r].dead
    /\ IF Mutation = "collect-by-majority" THEN Chosen(r)
       ELSE \A a \in Acceptors : <<a, r>> \in acks

Remove(a, r) ==
    /\ Held(a) # NoRound
    /\ Held(a) = r \/ Mutation = "remove-another-round"
    /\ Collectable(r)
    /\ LET state == proposals[record[a].round]
           ballot == CASE Mutation = "no-ballot-floor" -> floor[a].ballot
                       [] Mutation = "floor-without-promise" -> Max(floor[a].ballot, r[1])
                       [] OTHER -> Max(floor[a].ballot, record[a].promised)
           version == IF Mutation = "no-version-floor" THEN floor[a].version
                      ELSE Max(floor[a].version, state.version)
       IN floor' = [floor EXCEPT ![a] =
              [ballot |-> ballot, version |-> version, past |-> state.past]]
    /\ record' = [record EXCEPT ![a] = None]
    /\ UNCHANGED <<promises, proposals, acks, attempts, reader>>

Answered == {a \in Acceptors : reader.reports[a] # None}

BeginRead ==
    /\ Reads
    /\ reader.phase = "idle"
    /\ reader' = [reader EXCEPT !.phase = "asks", !.start = Longest(ChosenPasts)]
    /\ UNCHANGED <<record, floor, promises, proposals, acks, attempts>>

(* What three answers decide, two of them decide already: more are not needed. *)
Answer(a) ==
    /\ reader.phase = "asks"
    /\ reader.reports[a] = None
    /\ Cardinality(Answered) < Majority
    /\ reader' = [reader EXCEPT !.reports[a] =
           [round |-> Held(a), floor |-> floor[a], marked |-> Marked(a),
            past |-> IF Held(a) = NoRound THEN floor[a].past ELSE proposals[Held(a)].past]]
    /\ UNCHANGED <<record, floor, promises, proposals, acks, attempts>>

Told(a) == reader.reports[a]
(* All that is told is the same; or the highest is known to be chosen. *)
Results ==
    LET isTop(a) ==
            /\ Told(a).marked
            /\ \A c \in Answered : ~Below(Told(a).round, Told(c).round)
            /\ \/ Mutation = "read-ignores-floor"
               \/ \A c \in Answered : Told(c).round = NoRound =>
                      Told(c).floor.ballot < Told(a).round[1]
        isEqual == \A a, c \in Answered : Told(a).round = Told(c).round
    IN  IF Cardinality(Answered) < Majority THEN {}
        ELSE {Told(a).past : a \in {c \in Answered : isTop(c)}}
             \union (IF isEqual THEN {Longest({Told(a).past : a \in Answered})} ELSE {})

EndRead ==
    /\ reader.phase = "asks"
    /\ \E past \in Results :
       reader' = [phase |-> "done", start |-> reader.start, result |-> past,
                  reports |-> [a \in Acceptors |-> None]]
    /\ UNCHANGED <<record, floor, promises, proposals, acks, attempts>>

Next ==
    \/ \E a \in Acceptors, b \in Ballots : Promise(a, b)
    \/ \E b \in Ballots : Propose(b)
    \/ \E b \in Ballots, k \in 2..PlaceMax : ProposeNext(b, k)
    \/ \E a \in Acceptors, r \in Rounds : Accept(a, r) \/ Remove(a, r)
    \/ \E a \in Acceptors : Mark(a) \/ Answer(a)
    \/ BeginRead
    \/ EndRead

Spec == Init /\ [][Next]_vars

(* What was chosen is one chain, over removals too. *)
OneChain == \A p, q \in ChosenPasts : Comparable(p, q)

(* No operation happens twice. *)
AtMostOnce == \A r \in Rounds : proposals[r] # None =>
    \A i, j \in DOMAIN proposals[r].past :
        proposals[r].past[i] = proposals[r].past[j] => i = j

(* A read shows what was chosen before it began, and nothing that is undone. *)
ReadsFresh == reader.phase = "done" =>
    /\ IsPrefix(reader.start, reader.result)
    /\ \A p \in ChosenPasts : Comparable(p, reader.result)

(* What is accepted is never above what is promised; floors stand for promises. *)
PromiseCovers == \A a \in Acceptors : record[a] # None => record[a].round[1] <= record[a].promised
=============================================================================
