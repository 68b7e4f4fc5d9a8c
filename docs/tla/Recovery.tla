------------------------------ MODULE Recovery ------------------------------
(* Replicas that lose their memory, and how they come to take part again: one   *)
(* key, nothing durable but the number of losses.                              *)
(* [docs/protocols/rmwpaxos-services.md 8; DISC17]                             *)
(*                                                                             *)
(* Nothing that was sent ever leaves the network. What a message tells of losses *)
(* is learned from the questions of recovering nodes and from the answers to     *)
(* them, which is the least that anybody can know.                              *)
(*                                                                             *)
(* Not here: tombstones and their floors (Tombstones), P0 (JointPhases), shards. *)

EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Nodes,
    BallotMax,   \* ballots are 1..BallotMax; each is used once
    LossesMax,   \* losses of memory, of all nodes together
    Mutation

Mutations == {"none",
    "no-recovery",            \* who has forgotten takes part at once
    "no-crash-vector",        \* acknowledgements from before a loss are counted
    "answer-without-learning",\* who is asked does not note the loss
    "recovers-without-learning", \* nor does who has asked note what answers tell
    "adopt-minority",         \* the highest report becomes an own vote
    "counts-itself",          \* a majority of all will do, the own nothing included
    "recovering-answers",     \* who has forgotten tells others what it holds
    "answer-to-an-earlier-start"} \* answers are taken whichever start has asked
ASSUME Mutation \in Mutations

Ballots == 1..BallotMax
None == <<>>
Majority == Cardinality(Nodes) \div 2 + 1
Symmetry == Permutations(Nodes)

Max(i, j) == IF i > j THEN i ELSE j
MaxOf(S) == CHOOSE i \in S : \A j \in S : j <= i
IsPrefix(s, t) == Len(s) <= Len(t) /\ \A i \in DOMAIN s : s[i] = t[i]
Comparable(s, t) == IsPrefix(s, t) \/ IsPrefix(t, s)
Longest(pasts) == IF pasts = {} THEN <<>>
                  ELSE CHOOSE p \in pasts : \A q \in pasts : Len(q) <= Len(p)

VARIABLES
    memory,    \* node -> None (recovering), or [promised, accepted]
    known,     \* node -> node -> losses that it knows of; of itself, its own
    promises,  \* {[from, ballot, accepted, losses]}; losses: what the sender knew
    proposals, \* ballot -> None, or the past of the state: the ballots that changed it
    acks,      \* {[from, ballot, losses]}
    answers,   \* {[from, to, loss, promised, accepted, losses]}: what to an asker was told
    recoverer, \* ballot -> None, or [node, loss] that recovers by it
    shown      \* {[past, after]}: what a read showed, and what had been chosen before

vars == <<memory, known, promises, proposals, acks, answers, recoverer, shown>>

Init ==
    /\ memory = [n \in Nodes |-> [promised |-> 0, accepted |-> 0]]
    /\ known = [n \in Nodes |-> [m \in Nodes |-> 0]]
    /\ promises = {}
    /\ proposals = [b \in Ballots |-> None]
    /\ acks = {}
    /\ answers = {}
    /\ recoverer = [b \in Ballots |-> None]
    /\ shown = {}

(* A promise above ballot b, and below b + 1. *)
Of(b) == 2 * b
Above(promised) == promised + 1 - (promised % 2)

(* Messages that may be counted together: none is from before a loss that another knows. *)
Together(messages) ==
    \/ Mutation = "no-crash-vector"
    \/ \A x, y \in messages : x.losses[x.from] >= y.losses[x.from]
Senders(messages) == {m.from : m \in messages}
IsQuorum(messages, size) ==
    /\ Cardinality(messages) = size
    /\ Cardinality(Senders(messages)) = size
    /\ Together(messages)

Past(b) == IF b = 0 THEN <<>> ELSE proposals[b].past
Chosen(b) == \E Q \in SUBSET {m \in acks : m.ballot = b} : IsQuorum(Q, Majority)
ChosenPasts == {Past(b) : b \in {c \in Ballots : Chosen(c)}}

Promise(n, b) ==
    /\ memory[n] # None
    /\ Of(b) > memory[n].promised
    \* Nobody asks for promises once there is a proposal.
    /\ promises' = IF proposals[b] # None THEN promises ELSE promises \union
           {[from |-> n, ballot |-> b, accepted |-> memory[n].accepted, losses |-> known[n]]}
    /\ memory' = [memory EXCEPT ![n].promised = Of(b)]
    /\ UNCHANGED <<known, proposals, acks, answers, recoverer, shown>>

(* A recovery counts others only and proposes what it finds as it is. *)
Propose(b) ==
    /\ proposals[b] = None
    /\ \E Q \in SUBSET {m \in promises : m.ballot = b} :
       /\ IsQuorum(Q, Majority)
       /\ recoverer[b] # None => recoverer[b].node \notin Senders(Q)
       /\ LET base == MaxOf({m.accepted : m \in Q})
          IN  \/ /\ recoverer[b] # None
                 /\ base # 0
                 /\ proposals' = [proposals EXCEPT ![b] = [past |-> Past(base)]]
              \/ /\ recoverer[b] = None
                 /\ proposals' = [proposals EXCEPT ![b] = [past |-> Append(Past(base), b)]]
    /\ promises' = {m \in promises : m.ballot # b}
    /\ UNCHANGED <<memory, known, acks, answers, recoverer, shown>>

Accept(n, b) ==
    /\ proposals[b] # None
    /\ memory[n] # None
    /\ Of(b) >= memory[n].promised
    /\ memory[n].accepted < b
    /\ memory' = [memory EXCEPT ![n] = [promised |-> Of(b), accepted |-> b]]
    /\ acks' = acks \union {[from |-> n, ballot |-> b, losses |-> known[n]]}
    /\ UNCHANGED <<known, promises, proposals, answers, recoverer, shown>>

Losses == Cardinality({<<n, i>> \in Nodes \X (1..LossesMax) : i <= known[n][n]})

Lose(n) ==
    /\ Losses < LossesMax
    /\ memory' = [memory EXCEPT ![n] =
           IF Mutation = "no-recovery" THEN [promised |-> 0, accepted |-> 0] ELSE None]
    /\ known' = [known EXCEPT ![n] = [m \in Nodes |-> IF m = n THEN known[n][n] + 1 ELSE 0]]
    /\ UNCHANGED <<promises, proposals, acks, answers, recoverer, shown>>

(* The question of n reaches m, which learns of the loss and says what it holds. *)
(* Once for each loss: only one answer of a node is counted, whichever it is.     *)
Tell(m, n) ==
    /\ m # n
    /\ \A x \in answers : x.from # m \/ x.to # n \/ x.loss # known[n][n]
    /\ memory[n] = None
    /\ memory[m] # None \/ Mutation = "recovering-answers"
    /\ LET learned == IF Mutation = "answer-without-learning" THEN known[m]
                      ELSE [known[m] EXCEPT ![n] = Max(@, known[n][n])]
           held == IF memory[m] = None THEN [promised |-> 0, accepted |-> 0] ELSE memory[m]
       IN  /\ known' = [known EXCEPT ![m] = learned]
           /\ answers' = answers \union
                  {[from |-> m, to |-> n, loss |-> known[n][n], promised |-> held.promised,
                    accepted |-> held.accepted, losses |-> learned]}
    /\ UNCHANGED <<memory, promises, proposals, acks, recoverer, shown>>

Needed == IF Mutation = "counts-itself" THEN Majority - 1 ELSE Majority
AnswersTo(n) == {x \in answers : x.to = n /\
    (x.loss = known[n][n] \/ Mutation = "answer-to-an-earlier-start")}
Reported(Q) == MaxOf({x.accepted : x \in Q})
Promised(Q) == MaxOf({x.promised : x \in Q})

Learn(n, Q) == known' = [known EXCEPT ![n] =
    IF Mutation = "recovers-without-learning" THEN @
    ELSE [m \in Nodes |-> MaxOf({known[n][m]} \union {x.losses[m] : x \in Q})]]

(* Nobody asks for answers to a recovery that has ended. *)
Forget(n) == answers' = IF Mutation = "answer-to-an-earlier-start" THEN answers
                        ELSE {x \in answers : x.to # n}

(* A majority of the others say the same, or that there is nothing. *)
Recover(n) ==
    /\ memory[n] = None
    /\ \E Q \in SUBSET AnswersTo(n) :
       /\ IsQuorum(Q, Needed)
       /\ \/ \A x \in Q : x.accepted = Reported(Q)
          \/ Mutation = "adopt-minority"
       /\ memory' = [memory EXCEPT ![n] =
              [promised |-> IF Reported(Q) = 0 THEN Above(Promised(Q)) ELSE Promised(Q),
               accepted |-> Reported(Q)]]
       /\ Learn(n, Q)
    /\ Forget(n)
    /\ UNCHANGED <<promises, proposals, acks, recoverer, shown>>

(* They differ: a ballot of its own, that nobody has used, decides. *)
BeginSlow(n, b) ==
    /\ memory[n] = None
    /\ recoverer[b] = None
    /\ proposals[b] = None
    /\ \A m \in promises : m.ballot # b
    /\ \E Q \in SUBSET AnswersTo(n) :
       /\ IsQuorum(Q, Needed)
       /\ \E x \in Q : x.accepted # Reported(Q)
       /\ Of(b) > Promised(Q)
       /\ Learn(n, Q)
    /\ recoverer' = [recoverer EXCEPT ![b] = [node |-> n, loss |-> known[n][n]]]
    /\ UNCHANGED <<memory, promises, proposals, acks, answers, shown>>

EndSlow(n, b) ==
    /\ memory[n] = None
    /\ recoverer[b] = [node |-> n, loss |-> known[n][n]]
    /\ \E Q \in SUBSET {m \in acks : m.ballot = b /\ m.from # n} : IsQuorum(Q, Needed)
    /\ memory' = [memory EXCEPT ![n] = [promised |-> Of(b), accepted |-> b]]
    /\ Forget(n)
    /\ UNCHANGED <<known, promises, proposals, acks, recoverer, shown>>

(* A majority holds the same round. One read of many stands for all. *)
Read ==
    /\ shown = {}
    /\ \E Q \in SUBSET Nodes, b \in Ballots :
       /\ Cardinality(Q) = Majority
       /\ \A n \in Q : memory[n] # None /\ memory[n].accepted = b
       /\ shown' = {[past |-> Past(b), after |-> Longest(ChosenPasts)]}
    /\ UNCHANGED <<memory, known, promises, proposals, acks, answers, recoverer>>

Next ==
    \/ \E n \in Nodes, b \in Ballots :
       Promise(n, b) \/ Accept(n, b) \/ BeginSlow(n, b) \/ EndSlow(n, b)
    \/ \E b \in Ballots : Propose(b)
    \/ \E n \in Nodes : Lose(n) \/ Recover(n)
    \/ \E m, n \in Nodes : Tell(m, n)
    \/ Read

Spec == Init /\ [][Next]_vars

(* What was chosen or shown is one chain. *)
OneChain ==
    LET pasts == ChosenPasts \union {s.past : s \in shown}
    IN  \A p, q \in pasts : Comparable(p, q)

(* A read shows all that was chosen before. *)
ReadsFresh == \A s \in shown : IsPrefix(s.after, s.past)

AcceptedIsPromised == \A n \in Nodes :
    memory[n] # None => Of(memory[n].accepted) <= memory[n].promised
=============================================================================
