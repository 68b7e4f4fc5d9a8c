------------------------------- MODULE Expiry -------------------------------
(* A time to live that ends by a vote: one key, durable acceptors, no clock that *)
(* agrees with another. [docs/protocols/rmwpaxos-expiry.md F10]                 *)
(*                                                                             *)
(* Time passes in parts of the unit that uptimes are cut to. Each acceptor's      *)
(* uptime passes with it, or stands still while its node is down; some may jump.  *)
(* The world begins with a first proposal, which sets a deadline.               *)
(*                                                                             *)
(* Phase 1 happens at one moment here: its races are explored elsewhere.         *)

EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Acceptors,
    BallotMax,   \* ballots are 1..BallotMax; each is used once
    Parts,       \* parts of a unit
    PartsMax,    \* how long the world lasts
    Jumping,     \* acceptors whose uptime may jump
    Reads,       \* whether somebody reads
    Mutation

Mutations == {"none",
    "expire-by-one",      \* one countdown that is over will do
    "countdown-kept",     \* a new deadline goes on with the old countdown
    "id-by-version",      \* a deadline is known by its version alone
    "votes-of-any-deadline", \* countdowns of other deadlines are counted
    "on-any-base",        \* the tombstone replaces whatever is there
    "cut-uptime",         \* the unit that cutting may have cost is not waited for
    "nil-by-own-clock"}   \* a node whose countdown is over answers nil at once
ASSUME Mutation \in Mutations

Ballots == 1..BallotMax
None == <<>>
Majority == Cardinality(Acceptors) \div 2 + 1
Quorums == {Q \in SUBSET Acceptors : Cardinality(Q) = Majority}
Symmetry == Permutations(Acceptors \ Jumping)
Duration == 1

VARIABLES
    now,       \* parts of a unit, which nobody sees
    uptime,    \* acceptor -> parts of a unit
    record,    \* acceptor -> [promised, accepted, started]
    proposals, \* ballot -> None, or [version, deadline, expires, setter]; setter: who set the deadline
    since,     \* {<<acceptor, setter, now>>}: when it accepted first what that ballot set
    votes,     \* {<<acceptor, deadline>>}: its countdown was over
    expired,   \* {[deadline, base, setter, at]}: tombstones that were proposed
    nil,       \* deadlines that somebody was told are over
    undone     \* a value was shown after nil

vars == <<now, uptime, record, proposals, since, votes, expired, nil, undone>>

(* A deadline is known by the version and the ballot that set it; <<>> is none. *)
NoState == [version |-> 0, deadline |-> None, expires |-> None, setter |-> 0]
StateOf(b) == IF b = 0 THEN NoState ELSE proposals[b]

Id(version, b) == IF Mutation = "id-by-version" THEN <<version>> ELSE <<version, b>>

Init ==
    /\ now = 0
    /\ uptime \in [Acceptors -> 0..Parts - 1]
    /\ record = [a \in Acceptors |-> [promised |-> 0, accepted |-> 0, started |-> 0]]
    /\ proposals = [b \in Ballots |-> IF b > 1 THEN None ELSE
           [version |-> 1, deadline |-> Id(1, 1), expires |-> None, setter |-> 1]]
    /\ since = {}
    /\ votes = {}
    /\ expired = {}
    /\ nil = {}
    /\ undone = FALSE

Cut(parts) == parts \div Parts
Deadline(rec) == StateOf(rec.accepted).deadline
IsOver(rec, up) ==
    /\ Deadline(rec) # None
    /\ Cut(up) - Cut(rec.started) - (IF Mutation = "cut-uptime" THEN 0 ELSE 1) >= Duration

(* A vote only ever permits: it is given as soon as it can be, and stands. *)
VotesOf(up) == votes \union
    {<<a, Deadline(record[a])>> : a \in {c \in Acceptors : IsOver(record[c], up[c])}}

Tick(running) ==
    /\ now < PartsMax
    /\ running = Acceptors \/ \A a \in Acceptors : uptime[a] >= now
    /\ Cardinality(running) >= Cardinality(Acceptors) - 1
    /\ now' = now + 1
    /\ LET up == [a \in Acceptors |-> IF a \in running THEN uptime[a] + 1 ELSE uptime[a]]
       IN  uptime' = up /\ votes' = VotesOf(up)
    /\ UNCHANGED <<record, proposals, since, expired, nil, undone>>

Jump(a) ==
    /\ uptime[a] <= PartsMax
    /\ LET up == [uptime EXCEPT ![a] = @ + PartsMax]
       IN  uptime' = up /\ votes' = VotesOf(up)
    /\ UNCHANGED <<now, record, proposals, since, expired, nil, undone>>

IsVoted(deadline) ==
    LET voters == {v[1] : v \in {w \in votes : w[2] = deadline
                       \/ Mutation = "votes-of-any-deadline"}}
    IN  Cardinality(voters) >= IF Mutation = "expire-by-one" THEN 1 ELSE Majority

(* A new deadline, a change that copies it, or the tombstone. *)
Change(b, base) ==
    LET state == StateOf(base)
        next == state.version + 1
        propose(deadline, expires, setter) == proposals' = [proposals EXCEPT ![b] =
            [version |-> next, deadline |-> deadline, expires |-> expires, setter |-> setter]]
        deadlines == {StateOf(c).deadline : c \in {d \in Ballots : proposals[d] # None}} \ {None}
    IN  \/ /\ propose(Id(next, b), None, b)
           /\ UNCHANGED expired
        \/ /\ state.deadline # None
           /\ propose(state.deadline, None, state.setter)
           /\ UNCHANGED expired
        \/ \E d \in deadlines :
           /\ IsVoted(d)
           /\ state.deadline = d \/ Mutation = "on-any-base"
           /\ propose(None, d, 0)
           /\ expired' = expired \union
                  {[deadline |-> d, base |-> state.deadline, setter |-> state.setter, at |-> now]}

Propose(b) ==
    /\ proposals[b] = None
    /\ \E Q \in Quorums :
       /\ \A a \in Q : record[a].promised < b
       /\ LET base == record[CHOOSE a \in Q : \A c \in Q : record[c].accepted <= record[a].accepted].accepted
          IN  Change(b, base)
       /\ record' = [a \in Acceptors |->
              IF a \in Q THEN [record[a] EXCEPT !.promised = b] ELSE record[a]]
    /\ UNCHANGED <<now, uptime, since, votes, nil, undone>>

Accept(a, b) ==
    /\ proposals[b] # None
    /\ record[a].promised <= b
    /\ record[a].accepted < b
    /\ LET isSame == Deadline(record[a]) = proposals[b].deadline
                        \/ (Mutation = "countdown-kept" /\ Deadline(record[a]) # None)
           started == IF proposals[b].deadline = None THEN 0
                      ELSE IF isSame THEN record[a].started ELSE uptime[a]
           taken == [promised |-> b, accepted |-> b, started |-> started]
       IN  /\ record' = [record EXCEPT ![a] = taken]
           /\ votes' = votes \union
                  (IF IsOver(taken, uptime[a]) THEN {<<a, Deadline(taken)>>} ELSE {})
    /\ LET setter == proposals[b].setter
       IN since' = IF setter = 0 \/ \E t \in since : t[1] = a /\ t[2] = setter THEN since
                   ELSE since \union {<<a, setter, now>>}
    /\ UNCHANGED <<now, uptime, proposals, expired, nil, undone>>

(* A majority holds the same round; the one that asks is of it. *)
Read(a) ==
    /\ Reads
    /\ record[a].accepted # 0
    /\ \E Q \in Quorums :
       a \in Q /\ \A c \in Q : record[c].accepted = record[a].accepted
    /\ LET state == proposals[record[a].accepted]
           isNil == \/ state.deadline = None
                    \/ Mutation = "nil-by-own-clock" /\ IsOver(record[a], uptime[a])
       IN  /\ nil' = IF ~isNil THEN nil
                     ELSE nil \union ({state.expires, state.deadline} \ {None})
           /\ undone' = (undone \/ (~isNil /\ state.deadline \in nil))
    /\ UNCHANGED <<now, uptime, record, proposals, since, votes, expired>>

Step ==
    \/ \E running \in SUBSET Acceptors : Tick(running)
    \/ \E a \in Jumping : Jump(a)
    \/ \E a \in Acceptors : Read(a)
    \/ \E b \in Ballots : Propose(b)
    \/ \E a \in Acceptors, b \in Ballots : Accept(a, b)

(* Without readers, what is asked of a tombstone is known once it is proposed. *)
Next == (Reads \/ expired = {}) /\ Step

Spec == Init /\ [][Next]_vars

(* Those who had accepted what that very ballot set a whole duration before. *)
Patient(e) == {a \in Acceptors \ Jumping : \E t \in since :
    t[1] = a /\ t[2] = e.setter /\ t[3] + Parts * Duration <= e.at}

(* A majority has held the deadline for its whole duration, those apart whose     *)
(* clocks jump.                                                                 *)
NeverEarly == \A e \in expired :
    Cardinality(Patient(e)) >= Majority - Cardinality(Jumping)

(* What expires is what the vote was about. *)
OnlyThatDeadline == \A e \in expired : e.base = e.deadline

NeverUndone == ~undone
=============================================================================
