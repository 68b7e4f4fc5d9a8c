----------------------------- MODULE Membership -----------------------------
(* Membership change by joint majorities: one key, durable acceptors, one change. *)
(*                                                                             *)
(* Epoch 0 is the old configuration, epoch 1 both together, epoch 2 the new one. *)
(* An epoch is the highest part of every ballot. Whoever hears of a higher epoch *)
(* adopts it and refuses what is of a lower one. The driver                     *)
(*   1. has epoch 1 decided, and pushes it until a majority of the old and one    *)
(*      of the new members have adopted it;                                     *)
(*   2. lists keys: the union of what a majority of the old members hold, each    *)
(*      of which adopts epoch 1 before it answers;                              *)
(*   3. has each listed key decided anew as it is, under both majorities;         *)
(*   4. has epoch 2 decided.                                                    *)
(* The register of the configuration is taken for granted: `step` is what it says. *)
(* The product does not do this yet; this is what it is to do.                   *)
(*                                                                             *)
(* Not here: collection of tombstones, which pauses meanwhile; lost memory.      *)

EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Old, New,
    BallotMax,   \* numbers are 1..BallotMax; each is used once, in one epoch
    Mutation

Mutations == {"none",
    "no-joint",             \* from the old configuration to the new at once
    "joint-by-old",         \* in epoch 1 a majority of the old members will do
    "joint-by-new",         \* or one of the new members
    "no-rescan",            \* listed keys are not decided anew
    "list-before-adopting", \* keys are listed before anybody has adopted epoch 1
    "list-without-epoch",   \* and afterwards, but by members that need not have adopted it
    "epochs-not-refused",   \* a lower epoch is obeyed by whoever has adopted a higher one
    "ballot-kept"}          \* a ballot that is prepared goes on in the next epoch
ASSUME Mutation \in Mutations

Nodes == Old \union New
Numbers == 1..BallotMax
None == <<>>
Symmetry == Permutations(Old \intersect New)

Max(i, j) == IF i > j THEN i ELSE j
IsPrefix(s, t) == Len(s) <= Len(t) /\ \A i \in DOMAIN s : s[i] = t[i]
Comparable(s, t) == IsPrefix(s, t) \/ IsPrefix(t, s)

VARIABLES
    step,      \* the epoch that the register of the configuration says
    memory,    \* node -> [epoch, promised, accepted]; accepted: a number, 0 for nothing
    epochs,    \* number -> None, or <<epoch>>
    promises,  \* {<<node, number, what it had accepted>>}
    proposals, \* number -> None, or [past]
    acks,      \* {<<node, number>>}
    listed,    \* node -> None, or <<whether it holds the key>>
    shown      \* numbers that a read took for chosen, and nobody else yet

vars == <<step, memory, epochs, promises, proposals, acks, listed, shown>>

Init ==
    /\ step = 0
    /\ memory = [n \in Nodes |-> [epoch |-> 0, promised |-> 0, accepted |-> 0]]
    /\ epochs = [b \in Numbers |-> None]
    /\ promises = {}
    /\ proposals = [b \in Numbers |-> None]
    /\ acks = {}
    /\ listed = [n \in Nodes |-> None]
    /\ shown = {}

Members(e) == CASE e = 0 -> Old [] e = 1 -> Nodes [] OTHER -> New
IsMajority(S, C) == 2 * Cardinality(S \intersect C) > Cardinality(C)
IsQuorum(S, e) ==
    CASE e = 0 -> IsMajority(S, Old)
      [] e = 1 -> /\ IsMajority(S, Old) \/ Mutation = "joint-by-new"
                  /\ IsMajority(S, New) \/ Mutation = "joint-by-old"
      [] OTHER -> IsMajority(S, New)

(* Ballots, in their order. *)
Scale == BallotMax + 1
Of(e, b) == e * Scale + b
Ballot(b) == IF b = 0 THEN 0 ELSE Of(epochs[b][1], b)
Past(b) == IF b = 0 THEN <<>> ELSE proposals[b].past

Chosen(b) ==
    LET by == {n \in Nodes : <<n, b>> \in acks}
    IN  /\ epochs[b] # None
        /\ \/ IsQuorum(by, epochs[b][1])
           \/ Mutation = "ballot-kept" /\ IsQuorum(by, epochs[b][1] + 1)
ChosenPasts == {Past(b) : b \in {c \in Numbers : Chosen(c)}}

Adopted(n, e) ==
    [memory[n] EXCEPT !.epoch = Max(@, e), !.promised = Max(@, Of(e, 0))]
Obeys(n, e) == e >= memory[n].epoch \/ Mutation = "epochs-not-refused"

Adopt(n) ==
    /\ memory[n].epoch < step
    /\ memory' = [memory EXCEPT ![n] = Adopted(n, step)]
    /\ UNCHANGED <<step, epochs, promises, proposals, acks, listed, shown>>

(* A proposer may believe in any epoch there was. *)
Promise(n, b) ==
    /\ \E e \in 0..step :
       /\ epochs[b] \in {None, <<e>>}
       \* Which of two ballots is called the first says nothing where epochs differ.
       /\ \A c \in Numbers : epochs[c] # None =>
              (c < b => epochs[c][1] <= e) /\ (b < c => e <= epochs[c][1])
       /\ n \in Members(e)
       /\ Obeys(n, e)
       /\ Of(e, b) > memory[n].promised
       /\ epochs' = [epochs EXCEPT ![b] = <<e>>]
       /\ memory' = [memory EXCEPT ![n] = [Adopted(n, e) EXCEPT !.promised = Of(e, b)]]
    \* Nobody asks for promises once there is a proposal.
    /\ promises' = IF proposals[b] # None THEN promises
                   ELSE promises \union {<<n, b, memory[n].accepted>>}
    /\ UNCHANGED <<step, proposals, acks, listed, shown>>

Propose(b) ==
    /\ proposals[b] = None
    /\ epochs[b] # None
    /\ \E Q \in SUBSET {m \in promises : m[2] = b} :
       /\ IsQuorum({m[1] : m \in Q}, epochs[b][1])
       /\ LET base == CHOOSE c \in {m[3] : m \in Q} :
                          \A m \in Q : Ballot(m[3]) <= Ballot(c)
          IN  \/ /\ base # 0
                 /\ epochs[b] = <<1>>
                 /\ proposals' = [proposals EXCEPT ![b] = [past |-> Past(base)]]
              \/ proposals' = [proposals EXCEPT ![b] = [past |-> Append(Past(base), b)]]
    /\ promises' = {m \in promises : m[2] # b}
    /\ UNCHANGED <<step, memory, epochs, acks, listed, shown>>

Accept(n, b) ==
    /\ proposals[b] # None
    /\ memory[n].accepted # b
    /\ LET e == epochs[b][1]
           isKept == Mutation = "ballot-kept" /\ memory[n].epoch = e + 1
                         /\ b >= memory[n].promised - Of(e + 1, 0)
       IN  /\ n \in Members(e) \/ isKept
           /\ (Obeys(n, e) /\ Of(e, b) >= memory[n].promised) \/ isKept
           /\ Ballot(memory[n].accepted) < Of(e, b)
           /\ memory' = [memory EXCEPT ![n] =
                  [epoch |-> Max(@.epoch, e), promised |-> Max(@.promised, Of(e, b)), accepted |-> b]]
    /\ acks' = acks \union {<<n, b>>}
    /\ UNCHANGED <<step, epochs, promises, proposals, listed, shown>>

HaveAdopted == {n \in Nodes : memory[n].epoch >= 1}

List(n) ==
    /\ step = 1
    /\ n \in Old
    /\ listed[n] = None
    /\ \/ IsMajority(HaveAdopted, Old) /\ IsMajority(HaveAdopted, New)
       \/ Mutation = "list-before-adopting"
    /\ listed' = [listed EXCEPT ![n] = <<memory[n].accepted # 0>>]
    /\ memory' = [memory EXCEPT ![n] =
           IF Mutation \in {"list-before-adopting", "list-without-epoch"} THEN @ ELSE Adopted(n, 1)]
    /\ UNCHANGED <<step, epochs, promises, proposals, acks, shown>>

HaveListed == {n \in Old : listed[n] # None}
MayEnd ==
    /\ IsMajority(HaveListed, Old)
    /\ (\E n \in HaveListed : listed[n] = <<TRUE>>) =>
       \/ Mutation = "no-rescan"
       \/ \E b \in Numbers : epochs[b] = <<1>> /\ Chosen(b)

Switch ==
    /\ \/ step = 0 /\ step' = (IF Mutation = "no-joint" THEN 2 ELSE 1)
       \/ step = 1 /\ MayEnd /\ step' = 2
    /\ listed' = [n \in Nodes |-> None]
    /\ UNCHANGED <<memory, epochs, promises, proposals, acks, shown>>

(* A quorum of one epoch holds the same round, or nothing. *)
MayRead(b) == \E e \in 0..step : \E Q \in SUBSET Members(e) :
    /\ IsQuorum(Q, e)
    /\ \A n \in Q : Obeys(n, e) /\ memory[n].accepted = b

Read(b) ==
    /\ ~Chosen(b)
    /\ MayRead(b)
    /\ shown' = shown \union {b}
    /\ UNCHANGED <<step, memory, epochs, promises, proposals, acks, listed>>

Next ==
    \/ \E n \in Nodes, b \in Numbers : Promise(n, b) \/ Accept(n, b)
    \/ \E b \in Numbers : Propose(b) \/ Read(b)
    \/ \E n \in Nodes : Adopt(n) \/ List(n)
    \/ Switch

Spec == Init /\ [][Next]_vars

OneChain ==
    LET pasts == ChosenPasts \union {Past(b) : b \in shown}
    IN  \A p, q \in pasts : Comparable(p, q)

(* Whoever reads now is shown all that was chosen. *)
ReadsFresh == \A b \in 0..BallotMax :
    MayRead(b) => \A p \in ChosenPasts : IsPrefix(p, Past(b))
=============================================================================
