----------------------------- MODULE JointPhases -----------------------------
(* Both phases in one message where two members are a majority: one key, three   *)
(* nodes, which may forget what they promised and accepted.                     *)
(* [docs/protocols/rmwpaxos-fast-paths.md P0; rmwpaxos-services.md 8]           *)
(*                                                                             *)
(* Nothing that was sent ever leaves the network. A proposer may outlive the     *)
(* loss of its own acceptor's memory, which includes one that does not.         *)
(*                                                                             *)
(* Not here: recovery by an own proposal (Recovery), floors (Tombstones), deltas.*)

EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Nodes,
    BallotMax,   \* ballots are 1..BallotMax; each is used once
    Ops,         \* each is asked of one node
    LossesMax,   \* losses of memory, of all nodes together
    Mutation

Mutations == {"none",
    "first-on-any-base",           \* an acceptor takes it whatever it holds
    "first-accepted-by-proposer",  \* the own acceptor does not wait for another
    "differs-without-promise",     \* NeedFull comes without a promise
    "refusal-is-as-good",          \* a refusal shows as well that it is dead
    "dead-by-one",                 \* one of several that were asked decides that it is dead
    "first-from-before-loss"}      \* the proposer's promise counts though it was forgotten
ASSUME Mutation \in Mutations
ASSUME Cardinality(Nodes) = 3

Ballots == 1..BallotMax
None == <<>>
Majority == 2
Symmetry == Permutations(Nodes)

Max(i, j) == IF i > j THEN i ELSE j
MaxOf(S) == CHOOSE i \in S : \A j \in S : j <= i
IsPrefix(s, t) == Len(s) <= Len(t) /\ \A i \in DOMAIN s : s[i] = t[i]
Comparable(s, t) == IsPrefix(s, t) \/ IsPrefix(t, s)
Has(past, o) == \E i \in DOMAIN past : past[i] = o

VARIABLES
    memory,    \* node -> None (recovering), or [promised, accepted]
    known,     \* node -> node -> losses that it knows of; of itself, its own
    use,       \* ballot -> None, or [kind, node, op, base, loss]
    asked,     \* ballot -> node -> None, or <<its losses, as the proposer knew them>>
    proven,    \* first proposals that another acceptor has taken: anybody may
    dead,      \* first proposals that were taken back
    promises,  \* {[from, ballot, accepted, losses]}
    proposals, \* ballot -> None, or [past]: the operations that made the state
    acks,      \* {[from, ballot, losses]}
    differing, \* {[from, ballot, losses, refused]}: NeedFull, or a refusal
    answers,   \* {[from, to, loss, promised, accepted, losses]}
    home       \* operation -> None, or the node that it was asked of

vars == <<memory, known, use, asked, proven, dead, promises, proposals, acks, differing,
          answers, home>>

Init ==
    /\ memory = [n \in Nodes |-> [promised |-> 0, accepted |-> 0]]
    /\ known = [n \in Nodes |-> [m \in Nodes |-> 0]]
    /\ use = [b \in Ballots |-> None]
    /\ asked = [b \in Ballots |-> [n \in Nodes |-> None]]
    /\ proven = {}
    /\ dead = {}
    /\ promises = {}
    /\ proposals = [b \in Ballots |-> None]
    /\ acks = {}
    /\ differing = {}
    /\ answers = {}
    /\ home = [o \in Ops |-> None]

(* A promise above ballot b, and below b + 1. *)
Of(b) == 2 * b
Above(promised) == promised + 1 - (promised % 2)
Past(b) == IF b = 0 THEN <<>> ELSE proposals[b].past
IsJoint(b) == use[b] # None /\ use[b].kind = "joint"

Together(messages) == \A x, y \in messages : x.losses[x.from] >= y.losses[x.from]
IsQuorum(messages) ==
    /\ Cardinality(messages) = Majority
    /\ Cardinality({m.from : m \in messages}) = Majority
    /\ Together(messages)
Chosen(b) == \E Q \in SUBSET {m \in acks : m.ballot = b} : IsQuorum(Q)
ChosenPasts == {Past(b) : b \in {c \in Ballots : Chosen(c)}}

(* Attempts of an operation that may still take effect. *)
Open(o) == {b \in Ballots : b \notin dead /\ use[b] # None /\ use[b].op = o /\ proposals[b] # None}
IsAskedOf(o, n) == home[o] = None \/ home[o] = <<n>>

(* Ballots begin in their order: one that begins after a higher one of another   *)
(* node could as well have begun before, for nothing of the higher has reached it. *)
IsNext(b) == use[b] = None /\ (IF b = 1 THEN TRUE ELSE use[b - 1] # None)

(* P0 promises the ballot to itself and proposes on what it holds. *)
BeginJoint(n, b, o) ==
    /\ IsNext(b)
    /\ memory[n] # None
    /\ Of(b) > memory[n].promised
    /\ IsAskedOf(o, n)
    /\ Open(o) = {}
    /\ use' = [use EXCEPT ![b] = [kind |-> "joint", node |-> n, op |-> o,
                                  base |-> memory[n].accepted, loss |-> known[n][n]]]
    /\ proposals' = [proposals EXCEPT ![b] = [past |-> Append(Past(memory[n].accepted), o)]]
    /\ memory' = [memory EXCEPT ![n].promised = Of(b)]
    /\ home' = [home EXCEPT ![o] = <<n>>]
    /\ \E others \in SUBSET (Nodes \ {n}) \ {{}} :
       asked' = [asked EXCEPT ![b] = [m \in Nodes |-> IF m \in others THEN <<known[n][m]>> ELSE None]]
    /\ UNCHANGED <<known, proven, dead, promises, acks, differing, answers>>

(* It reaches n, which believes the promise that it tells of. *)
Reaches(n, b) ==
    /\ IsJoint(b)
    /\ asked[b][n] # None
    /\ memory[n] # None
    /\ use[b].loss >= known[n][use[b].node] \/ Mutation = "first-from-before-loss"

TakeFirst(n, b) ==
    /\ Reaches(n, b)
    /\ memory[n].promised < Of(b)
    /\ memory[n].accepted = use[b].base \/ Mutation = "first-on-any-base"
    /\ memory' = [memory EXCEPT ![n] = [promised |-> Of(b), accepted |-> b]]
    /\ acks' = acks \union {[from |-> n, ballot |-> b, losses |-> known[n]]}
    /\ UNCHANGED <<known, use, asked, proven, dead, promises, proposals, differing, answers, home>>

DifferFrom(n, b) ==
    /\ Reaches(n, b)
    /\ memory[n].accepted # b
    /\ \/ memory[n].promised < Of(b) /\ memory[n].accepted # use[b].base
       \/ memory[n].promised >= Of(b)
    /\ LET refused == memory[n].promised > Of(b)
       IN  \* Nobody makes anything of a refusal.
           /\ ~refused \/ Mutation = "refusal-is-as-good"
           /\ differing' = IF b \in proven \union dead THEN differing ELSE differing \union
                  {[from |-> n, ballot |-> b, losses |-> known[n], refused |-> refused]}
           /\ memory' = [memory EXCEPT ![n].promised =
                  IF Mutation = "differs-without-promise" THEN @ ELSE Max(@, Of(b))]
    /\ UNCHANGED <<known, use, asked, proven, dead, promises, proposals, acks, answers, home>>

(* The proposer learns that another has taken it: phase 1 is won. *)
Prove(b) ==
    /\ IsJoint(b)
    /\ b \notin proven \union dead
    /\ \/ \E m \in acks : m.ballot = b /\ m.from # use[b].node
                          /\ m.losses[m.from] >= known[use[b].node][m.from]
       \/ Mutation = "first-accepted-by-proposer"
    /\ proven' = proven \union {b}
    /\ differing' = {m \in differing : m.ballot # b}
    /\ UNCHANGED <<memory, known, use, asked, dead, promises, proposals, acks, answers, home>>

(* All whom it asked hold something else, and have forgotten nothing since. *)
TakeBack(b) ==
    /\ IsJoint(b)
    /\ b \notin proven \union dead
    /\ LET n == use[b].node
           out == {m \in differing : m.ballot = b
                       /\ (~m.refused \/ Mutation = "refusal-is-as-good")}
           isOut(c) == /\ asked[b][c] = <<known[n][c]>>
                       /\ \E m \in out : m.from = c /\ <<m.losses[c]>> = asked[b][c]
           others == {c \in Nodes : asked[b][c] # None}
       IN  IF Mutation = "dead-by-one" THEN \E c \in others : isOut(c)
           ELSE \A c \in others : isOut(c)
    /\ dead' = dead \union {b}
    /\ differing' = {m \in differing : m.ballot # b}
    /\ UNCHANGED <<memory, known, use, asked, proven, promises, proposals, acks, answers, home>>

BeginPlain(n, b, o) ==
    /\ IsNext(b)
    /\ IsAskedOf(o, n)
    /\ home' = [home EXCEPT ![o] = <<n>>]
    /\ use' = [use EXCEPT ![b] = [kind |-> "plain", node |-> n, op |-> o, base |-> 0, loss |-> 0]]
    /\ UNCHANGED <<memory, known, asked, proven, dead, promises, proposals, acks, differing, answers>>

Promise(n, b) ==
    /\ use[b] # None /\ use[b].kind = "plain"
    /\ memory[n] # None
    /\ Of(b) > memory[n].promised
    \* Nobody asks for promises once there is a proposal.
    /\ promises' = IF proposals[b] # None THEN promises ELSE promises \union
           {[from |-> n, ballot |-> b, accepted |-> memory[n].accepted, losses |-> known[n]]}
    /\ memory' = [memory EXCEPT ![n].promised = Of(b)]
    /\ UNCHANGED <<known, use, asked, proven, dead, proposals, acks, differing, answers, home>>

(* E1: attempted again only on a base without its earlier attempts; what is found *)
(* in the base is carried. What was taken back is not looked for.                *)
Propose(b) ==
    /\ use[b] # None /\ use[b].kind = "plain"
    /\ proposals[b] = None
    /\ \E Q \in SUBSET {m \in promises : m.ballot = b} :
       /\ IsQuorum(Q)
       /\ LET past == Past(MaxOf({m.accepted : m \in Q}))
              o == use[b].op
              isCarried == Open(o) # {} /\ Has(past, o)
          IN proposals' = [proposals EXCEPT ![b] =
                 [past |-> IF isCarried THEN past ELSE Append(past, o)]]
    /\ promises' = {m \in promises : m.ballot # b}
    /\ UNCHANGED <<memory, known, use, asked, proven, dead, acks, differing, answers, home>>

Accept(n, b) ==
    /\ proposals[b] # None
    /\ IsJoint(b) => b \in proven
    /\ memory[n] # None
    /\ Of(b) >= memory[n].promised
    /\ memory[n].accepted < b
    /\ memory' = [memory EXCEPT ![n] = [promised |-> Of(b), accepted |-> b]]
    /\ acks' = acks \union {[from |-> n, ballot |-> b, losses |-> known[n]]}
    /\ UNCHANGED <<known, use, asked, proven, dead, promises, proposals, differing, answers, home>>

Losses == Cardinality({<<n, i>> \in Nodes \X (1..LossesMax) : i <= known[n][n]})

Lose(n) ==
    /\ Losses < LossesMax
    /\ memory' = [memory EXCEPT ![n] = None]
    /\ known' = [known EXCEPT ![n][n] = @ + 1]
    /\ UNCHANGED <<use, asked, proven, dead, promises, proposals, acks, differing, answers, home>>

Tell(m, n) ==
    /\ m # n
    /\ memory[n] = None
    /\ memory[m] # None
    /\ \A x \in answers : x.from # m \/ x.to # n \/ x.loss # known[n][n]
    /\ LET learned == [known[m] EXCEPT ![n] = Max(@, known[n][n])]
       IN  /\ known' = [known EXCEPT ![m] = learned]
           /\ answers' = answers \union
                  {[from |-> m, to |-> n, loss |-> known[n][n], promised |-> memory[m].promised,
                    accepted |-> memory[m].accepted, losses |-> learned]}
    /\ UNCHANGED <<memory, use, asked, proven, dead, promises, proposals, acks, differing, home>>

Recover(n) ==
    /\ memory[n] = None
    /\ \E Q \in SUBSET {x \in answers : x.to = n /\ x.loss = known[n][n]} :
       /\ IsQuorum(Q)
       /\ LET accepted == MaxOf({x.accepted : x \in Q})
              promised == MaxOf({x.promised : x \in Q})
          IN  /\ \A x \in Q : x.accepted = accepted
              /\ memory' = [memory EXCEPT ![n] =
                     [promised |-> IF accepted = 0 THEN Above(promised) ELSE promised,
                      accepted |-> accepted]]
       \* What the answers tell of losses is learned.
       /\ known' = [known EXCEPT ![n] =
              [m \in Nodes |-> MaxOf({known[n][m]} \union {x.losses[m] : x \in Q})]]
    /\ answers' = {x \in answers : x.to # n}
    /\ UNCHANGED <<use, asked, proven, dead, promises, proposals, acks, differing, home>>

Next ==
    \/ \E n \in Nodes, b \in Ballots, o \in Ops : BeginJoint(n, b, o) \/ BeginPlain(n, b, o)
    \/ \E n \in Nodes, b \in Ballots :
       TakeFirst(n, b) \/ DifferFrom(n, b) \/ Promise(n, b) \/ Accept(n, b)
    \/ \E b \in Ballots : Prove(b) \/ TakeBack(b) \/ Propose(b)
    \/ \E n \in Nodes : Lose(n) \/ Recover(n)
    \/ \E m, n \in Nodes : Tell(m, n)

Spec == Init /\ [][Next]_vars

OneChain == \A p, q \in ChosenPasts : Comparable(p, q)

AtMostOnce == \A p \in ChosenPasts : \A i, j \in DOMAIN p : p[i] = p[j] => i = j

(* What was taken back is chosen never. *)
DeadIsDead == \A b \in dead : ~Chosen(b)

AcceptedIsPromised == \A n \in Nodes :
    memory[n] # None => Of(memory[n].accepted) <= memory[n].promised
=============================================================================
