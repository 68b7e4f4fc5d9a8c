------------------------------- MODULE Leases -------------------------------
(* The membership service of a configured group: epochs, leases, restarts.       *)
(* On top: one write-all register with local lease reads.                        *)
(*                                                                             *)
(* The configuration register is one atomic value. Epoch e is `cfg[e]`; it is     *)
(* Wedging, then perhaps Active. A change                                       *)
(*   1. sets the next epoch Wedging, with the members to be (Propose);           *)
(*   2. raises `promised` at the nodes, which seals them (Raise);                *)
(*   3. collects Sealed from old members, ActivateOK from a majority of all nodes;*)
(*   4. sets the epoch Active (Activate); members then install it (Install).      *)
(* Proposers hold no state here: each node may continue each change.            *)
(*                                                                             *)
(* Time. Only real time passes, in ticks, and all periods are countdowns.         *)
(* A lease of length `len` lasts `len` ticks at the slowest clock of a holder.    *)
(* A granter waits L(1+rho), which is at least `len` ticks at the fastest clock.  *)
(* A longer lease and a shorter wait only permit more. So the extremes cover all  *)
(* rates within the bound, also rates that change.                               *)
(* A paused node takes no step while time passes.                               *)
(*                                                                             *)
(* A heartbeat is granted when it is sent: a later grant only lasts longer.       *)
(* Without `Late`, a majority grants and answers it in one step, Sealed leaves     *)
(* when `promised` rises, and copies arrive at once. With it, each is a step.      *)
(* Messages never leave the network, so they arrive late, twice, or never.        *)
(*                                                                             *)
(* The register. A cell is valid once its write is complete anywhere, and each    *)
(* member may finish a write. Both only permit more. A read is remembered only if *)
(* a newer write was complete when it took its value.                            *)
(*                                                                             *)
(* Not here: failure detection, loss of the register's own acceptors.           *)

EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Nodes,
    First,       \* members of epoch 1
    Holders,     \* nodes that send heartbeats
    MembersMax,
    EpochMax,
    Lengths,     \* of leases, in ticks
    Writes,      \* how many; each is used once
    RestartsMax,
    LossesMax,   \* of images
    Late,        \* whether answers and copies travel
    Start,       \* "whole", or "joining": see Joining
    Mutation

Mutations == {"none",
    "raise-without-sealing",   \* a heartbeat of a higher epoch raises promised, and no more
    "repeated-wedge-mute",     \* Wedge of an epoch that is promised already is not answered
    "any-image-is-full",       \* a restarted member is Full whatever its image
    "removed-is-full",         \* a node that was removed while it ran returns as Full
    "finished-without-epoch",  \* a Shadow's report names no epoch
    "answers-before-reading",  \* a node without an image answers before it reads the register
    "boot-of-another-image",   \* a start with another image ends the grants of the first
    "same-after-loss",         \* a node that lost its image keeps its incarnation
    "quarantine-of-wedging",   \* quarantine by the length in a Wedging value
    "no-quarantine",
    "sealed-of-any-epoch",     \* Sealed of an earlier change ends a grant
    "read-by-old-clock",       \* the clock was read before the request arrived
    "core-epoch-last",         \* the core's epoch is taken at the end of a read
    "lease-before-value",      \* the lease is checked, then the value taken
    "wait-too-short",          \* rho = 0, or the granter's clock was read before the heartbeat left
    "grant-after-check",       \* check of promised and grant are two steps
    "lease-from-receipt",      \* a lease counts from the acknowledgement
    "grants-not-awaited",      \* ActivateOK does not wait for grants
    "no-poll",                 \* nodes do not look for an Active value
    "unknown-cas-is-success",
    "install-below-promised",
    "install-unlisted",        \* another incarnation of the node is listed
    "install-wedging",         \* members install before the epoch is Active
    "no-full-kept",            \* members may all be new
    "no-summaries",            \* Active without Sealed of the Full members
    "shadow-acks-late",        \* a Shadow is not waited for by writes
    "copy-of-another-epoch",   \* a Shadow copies from a Full member of another epoch
    "one-worker-sealed",       \* the worker of the register is forgotten
    "quorum-of-members"}       \* ActivateOK from a majority of the new members
ASSUME Mutation \in Mutations

Is(name) == Mutation = name
Symmetry == Permutations(First)
None == <<>>
Max(i, j) == IF i > j THEN i ELSE j
LenMax == CHOOSE l \in Lengths : \A k \in Lengths : k <= l
IsMajority(S, C) == 2 * Cardinality(S) > Cardinality(C)

VARIABLES
    cfg,       \* epoch -> [mem, prev, len, active, other]; other: members of a lost compare-and-swap
    node,      \* node -> its durable and volatile state
    grants,    \* node -> {[h, inc, left]}
    acked,     \* node -> {<<granter, age>>}
    flight,    \* acknowledgements of heartbeats under way: {[h, inc, e, g, age]}
    held,      \* {[g, h, inc, len]}: heartbeats checked and not yet granted
    sealed,    \* {[n, inc, fin, e]}: answers to Wedge
    oks,       \* nodes whose ActivateOK names the last epoch
    ghost,     \* node -> [ep, left]: the lease of a process whose image was replaced
    cell,      \* node -> the last write it holds, -1 without an image
    acks,      \* {<<node, w, epoch, whether it had sealed a later epoch>>}
    begun,     \* write -> None, or <<last complete write when it began>>
    done,      \* complete writes
    copies,    \* {<<shadow, its incarnation, epoch, cell>>}
    reading,   \* node -> 0, or the core's epoch when a stale value was taken
    checked,   \* nodes that checked the lease before taking the value
    restarts, losses

control == <<cfg, node, grants, acked, flight, held, sealed, oks, ghost, restarts, losses>>
data == <<cell, acks, begun, done, copies, reading, checked>>
vars == <<control, data>>

Last == Len(cfg)
LastActive == CHOOSE e \in 1..Last : cfg[e].active /\ \A d \in e + 1..Last : ~cfg[d].active
LastDone == CHOOSE w \in done : \A v \in done : v <= w
Inc(n) == <<node[n].loss, node[n].boot>>
Mem(n) == IF node[n].other THEN cfg[node[n].ep].other ELSE cfg[node[n].ep].mem
IsMember(n, e) == n \in DOMAIN cfg[e].mem
Runs(n) == node[n].ep > 0 /\ ~node[n].sealed
IsFull(n) == Runs(n) /\ n \in DOMAIN Mem(n) /\ Mem(n)[n].full

NewNode(promised, ep) ==
    [promised |-> promised, loss |-> 0, boot |-> 1, ready |-> TRUE, ep |-> ep, other |-> FALSE,
     sealed |-> ep = 0, fin |-> 0, quar |-> 0, left |-> 0, grace |-> FALSE, asked |-> FALSE]
Members(full, shadow) ==
    [n \in full \union shadow |-> [full |-> n \in full, inc |-> <<0, 1>>]]
Epoch(mem, prev, len) ==
    [mem |-> mem, prev |-> prev, len |-> len, active |-> TRUE, other |-> None]
SealedFirst(n, e) == [n |-> n, inc |-> <<0, 1>>, fin |-> 0, e |-> e]

Whole ==
    \E len \in Lengths :
    /\ cfg = <<Epoch(Members(First, {}), 1, len)>>
    /\ node = [n \in Nodes |-> NewNode(1, IF n \in First THEN 1 ELSE 0)]
    /\ cell = [n \in Nodes |-> IF n \in First THEN 0 ELSE -1]
    /\ sealed = {SealedFirst(n, 1) : n \in First}
    /\ begun = [w \in 1..Writes |-> None]
    /\ done = {0}

(* Epoch 1 had `stays` and `left`; `left` was Full, or a Shadow that had finished.  *)
(* Epoch 2 had `stays` alone, which completed write 1. Epoch 3 adds a Shadow: `left`*)
(* or the third node. `left` knows only of epoch 1.                             *)
Joining ==
    LET stays == CHOOSE n \in First : TRUE
        left == CHOOSE n \in First \ {stays} : TRUE
        third == CHOOSE n \in Nodes \ First : TRUE
    IN  \E shadow \in {left, third}, wasFull \in BOOLEAN :
        /\ cfg = <<Epoch(IF wasFull THEN Members({stays, left}, {}) ELSE Members({stays}, {left}), 1, LenMax),
                   Epoch(Members({stays}, {}), 1, LenMax), Epoch(Members({stays}, {shadow}), 2, LenMax)>>
        /\ node = [n \in Nodes |->
               CASE n = left -> [NewNode(1, 1) EXCEPT !.fin = IF wasFull THEN 0 ELSE 1]
                 [] n = third -> NewNode(3, IF n = shadow THEN 3 ELSE 0)
                 [] OTHER -> NewNode(3, 3)]
        /\ cell = [n \in Nodes |-> CASE n = stays -> 1 [] n = left -> 0 [] OTHER -> -1]
        /\ sealed = {SealedFirst(stays, 3)}
        /\ begun = [w \in 1..Writes |-> IF w = 1 THEN <<0>> ELSE None]
        /\ done = {0, 1}

Init ==
    /\ IF Start = "whole" THEN Whole ELSE Joining
    /\ grants = [n \in Nodes |-> {}]
    /\ acked = [n \in Nodes |-> {}]
    /\ flight = {}
    /\ held = {}
    /\ oks = {}
    /\ ghost = [n \in Nodes |-> None]
    /\ acks = {}
    /\ copies = {}
    /\ reading = [n \in Nodes |-> 0]
    /\ checked = {}
    /\ restarts = 0
    /\ losses = 0

(* ------------------------------ configurations ------------------------------ *)

(* May a node with this incarnation and report be Full after epoch `prev`?        *)
IsEligible(n, inc, fin, prev) ==
    \/ /\ IsMember(n, prev)
       /\ LET old == cfg[prev].mem[n]
          IN  \/ old.full /\ (old.inc[1] = inc[1] \/ Is("any-image-is-full"))
              \/ /\ ~old.full
                 /\ old.inc = inc
                 /\ fin = prev \/ (Is("finished-without-epoch") /\ fin > 0)
    \/ Is("removed-is-full") /\ ~IsMember(n, prev) /\ node[n].ep > 0
    \/ Is("no-full-kept")

Choices(prev) ==
    LET eligible == {n \in Nodes : node[n].ready /\ IsEligible(n, Inc(n), node[n].fin, prev)}
    IN  {[n \in S |-> [full |-> n \in eligible, inc |-> Inc(n)]] :
            S \in {T \in SUBSET Nodes :
                /\ T \intersect eligible # {}
                /\ Cardinality(T) <= MembersMax
                /\ \A n \in T : node[n].ready}}

(* The read of the register and the compare-and-swap may be far apart: it succeeds *)
(* only if they are not.                                                        *)
Propose ==
    /\ Last < EpochMax
    /\ \E mem \in Choices(LastActive), len \in Lengths :
       cfg' = Append(cfg, [mem |-> mem, prev |-> LastActive, len |-> len, active |-> FALSE,
                           other |-> None])
    /\ sealed' = IF Is("sealed-of-any-epoch") THEN sealed ELSE {}
    /\ oks' = {}
    /\ UNCHANGED <<node, grants, acked, flight, held, ghost, restarts, losses, data>>

ProposeInVain ==
    /\ Is("unknown-cas-is-success")
    /\ ~cfg[Last].active
    /\ cfg[Last].other = None
    /\ \E mem \in Choices(cfg[Last].prev) \ {cfg[Last].mem} : cfg' = [cfg EXCEPT ![Last].other = mem]
    /\ UNCHANGED <<node, grants, acked, flight, held, sealed, oks, ghost, restarts, losses, data>>

Sealing(record) == [record EXCEPT !.sealed = TRUE, !.left = 0, !.grace = FALSE]

SealedBy(n, record) ==
    [n |-> n, inc |-> <<record.loss, record.boot>>, fin |-> record.fin, e |-> record.promised]
OwesSealed(n, record) ==
    /\ record.ready
    /\ record.promised = Last
    /\ ~cfg[Last].active
    /\ IsMember(n, cfg[Last].prev) \/ Is("removed-is-full")
    /\ Is("repeated-wedge-mute") => record.asked

Raised(n, record) ==
    /\ node' = [node EXCEPT ![n] = record]
    /\ sealed' = IF OwesSealed(n, record) /\ ~Late THEN sealed \union {SealedBy(n, record)} ELSE sealed

(* By Wedge with a value that was in the register, or by a read of the register.   *)
Raise(n) ==
    /\ node[n].ready
    /\ \E e \in node[n].promised + 1..Last, asked \in {Is("repeated-wedge-mute"), FALSE} :
       LET raised == [node[n] EXCEPT !.promised = e, !.asked = asked]
       IN  Raised(n, IF Is("one-worker-sealed") THEN raised ELSE Sealing(raised))
    /\ acked' = [acked EXCEPT ![n] = {}]
    /\ UNCHANGED <<cfg, grants, flight, held, oks, ghost, restarts, losses, data>>

RaiseByHeartbeat(n) ==
    /\ Is("raise-without-sealing")
    /\ node[n].ready
    /\ \E h \in Nodes : Runs(h) /\ node[h].ep > node[n].promised
    /\ Raised(n, [node[n] EXCEPT !.promised = Last])
    /\ UNCHANGED <<cfg, grants, acked, flight, held, oks, ghost, restarts, losses, data>>

(* The answer to Wedge, also to one that comes again.                            *)
Seal(n) ==
    /\ Late
    /\ OwesSealed(n, node[n])
    /\ sealed' = sealed \union {SealedBy(n, node[n])}
    /\ UNCHANGED <<cfg, node, grants, acked, flight, held, oks, ghost, restarts, losses, data>>

(* The holder has sealed, or a later process of the same image was seen.          *)
IsOver(grant) ==
    \/ \E m \in sealed : /\ m.n = grant.h
                         /\ m.inc[1] = grant.inc[1]
                         /\ m.inc[2] >= grant.inc[2]
                         /\ m.e = Last \/ Is("sealed-of-any-epoch")
    \/ LET h == node[grant.h]
       IN  /\ h.ready
           /\ \/ h.loss = grant.inc[1] /\ h.boot > grant.inc[2]
              \/ h.loss # grant.inc[1] /\ Is("boot-of-another-image")

ActivateOk(n) ==
    /\ node[n].ready /\ node[n].promised = Last /\ ~cfg[Last].active
    /\ Is("repeated-wedge-mute") => node[n].asked
    /\ node[n].quar = 0 \/ Is("no-quarantine")
    /\ (\A grant \in grants[n] : IsOver(grant)) \/ Is("grants-not-awaited")
    /\ oks' = oks \union {n}
    /\ UNCHANGED <<cfg, node, grants, acked, flight, held, sealed, ghost, restarts, losses, data>>

MayActivate(mem) ==
    /\ ~cfg[Last].active
    /\ IF Is("quorum-of-members") THEN IsMajority(oks \intersect DOMAIN mem, DOMAIN mem)
       ELSE IsMajority(oks, Nodes)
    /\ \A n \in DOMAIN mem : mem[n].full =>
       \/ Is("no-summaries")
       \/ Is("no-full-kept") /\ ~IsMember(n, cfg[Last].prev)
       \/ \E m \in sealed : /\ m.n = n
                            /\ m.inc = mem[n].inc
                            /\ m.e = Last
                            /\ IsEligible(n, m.inc, m.fin, cfg[Last].prev)

Activate ==
    /\ MayActivate(cfg[Last].mem)
    /\ cfg' = [cfg EXCEPT ![Last].active = TRUE]
    /\ oks' = {}
    /\ UNCHANGED <<node, grants, acked, flight, held, sealed, ghost, restarts, losses, data>>

Installed(n, e, other) ==
    /\ node' = [node EXCEPT ![n] = [@ EXCEPT !.ep = e, !.other = other, !.sealed = FALSE,
           !.left = 0, !.grace = FALSE, !.fin = IF Is("finished-without-epoch") THEN @ ELSE 0]]
    /\ acked' = [acked EXCEPT ![n] = {}]
    /\ UNCHANGED <<cfg, grants, flight, held, sealed, oks, ghost, restarts, losses, data>>

IsListed(n, mem) ==
    n \in DOMAIN mem /\ (mem[n].inc = Inc(n) \/ Is("install-unlisted"))

Install(n) ==
    /\ node[n].ready
    /\ \E e \in node[n].ep + 1..Last :
       /\ cfg[e].active \/ Is("install-wedging")
       /\ node[n].promised = e \/ (Is("install-below-promised") /\ node[n].promised >= e)
       /\ IsListed(n, cfg[e].mem)
       /\ Installed(n, e, FALSE)

(* With an unknown outcome, the loser collects the same answers and goes on.      *)
InstallLoser(n) ==
    /\ cfg[Last].other # None
    /\ node[n].ready /\ node[n].ep < Last /\ node[n].promised = Last
    /\ MayActivate(cfg[Last].other) \/ cfg[Last].active
    /\ IsListed(n, cfg[Last].other)
    /\ Installed(n, Last, TRUE)

(* ----------------------------- leases and time ------------------------------ *)

(* The holder's lease ends `len` after the sending time of the heartbeat that a    *)
(* majority has acknowledged.                                                   *)
LeaseOf(ackeds, len) ==
    LET ages == {a[2] : a \in ackeds}
        by(age) == {a[1] : a \in {b \in ackeds : b[2] <= age}}
        good == {age \in ages : age < len /\ IsMajority(by(age), Nodes)}
    IN  IF good = {} THEN 0 ELSE len - CHOOSE a \in good : \A b \in good : a <= b

Acknowledged(h, g, age) ==
    LET all == {a \in acked[h] : a[1] # g \/ a[2] < age}
                   \union (IF \E a \in acked[h] : a[1] = g /\ a[2] < age THEN {} ELSE {<<g, age>>})
    IN  /\ acked' = [acked EXCEPT ![h] = all]
        /\ node' = [node EXCEPT ![h].left = Max(@, LeaseOf(all, cfg[node[h].ep].len))]

WithGrant(grant) ==
    LET older == {x \in grants[grant.g] : x.h = grant.h /\ x.inc = grant.inc}
    IN  IF grant.left = 0 \/ \E x \in older : x.left >= grant.left THEN grants[grant.g]
        ELSE (grants[grant.g] \ older)
                 \union {[h |-> grant.h, inc |-> grant.inc, left |-> grant.left]}
GrantOf(g, h) ==
    LET len == cfg[node[h].ep].len
    IN  [g |-> g, h |-> h, inc |-> Inc(h), left |-> IF Is("wait-too-short") THEN len - 1 ELSE len]
AckOf(g, h) == [h |-> h, inc |-> Inc(h), e |-> node[h].ep, g |-> g, age |-> 0]

MayGrant(g, h) ==
    /\ h \in Holders
    /\ node[h].ready /\ Runs(h)
    /\ node[g].ready /\ node[g].promised = node[h].ep

(* One granter, and an acknowledgement that travels; or a majority at once.       *)
Heartbeat(h, Q) ==
    /\ ~Is("grant-after-check")
    /\ IF Late THEN Cardinality(Q) = 1 ELSE IsMajority(Q, Nodes) /\ 2 * Cardinality(Q) <= Cardinality(Nodes) + 2
    /\ \A g \in Q : MayGrant(g, h)
    /\ grants' = [g \in Nodes |-> IF g \in Q THEN WithGrant(GrantOf(g, h)) ELSE grants[g]]
    /\ IF Late THEN flight' = flight \union {AckOf(g, h) : g \in Q} /\ UNCHANGED node
       ELSE node' = [node EXCEPT ![h].left = cfg[node[h].ep].len] /\ UNCHANGED flight
    /\ UNCHANGED <<cfg, acked, held, sealed, oks, ghost, restarts, losses, data>>

Check(g, h) ==
    /\ Is("grant-after-check")
    /\ MayGrant(g, h)
    /\ held' = held \union {GrantOf(g, h)}
    /\ UNCHANGED <<cfg, node, grants, acked, flight, sealed, oks, ghost, restarts, losses, data>>

GrantHeld ==
    \E x \in held :
    /\ x.inc = Inc(x.h) /\ Runs(x.h)
    /\ held' = held \ {x}
    /\ grants' = [grants EXCEPT ![x.g] = WithGrant(x)]
    /\ flight' = flight \union {AckOf(x.g, x.h)}
    /\ UNCHANGED <<cfg, node, acked, sealed, oks, ghost, restarts, losses, data>>

TakeAck ==
    \E x \in flight :
    /\ Runs(x.h) /\ node[x.h].ep = x.e /\ x.inc = Inc(x.h)
    /\ flight' = flight \ {x}
    /\ Acknowledged(x.h, x.g, IF Is("lease-from-receipt") THEN 0 ELSE x.age)
    /\ UNCHANGED <<cfg, grants, held, sealed, oks, ghost, restarts, losses, data>>

Less(i) == IF i > 0 THEN i - 1 ELSE 0

(* An acknowledgement older than a lease changes nothing, and leaves.            *)
Tick ==
    /\ \/ \E n \in Nodes : \/ grants[n] # {} \/ acked[n] # {} \/ ghost[n] # None
                           \/ node[n].quar > 0 \/ node[n].left > 0 \/ node[n].grace
       \/ flight # {}
    /\ node' = [n \in Nodes |-> [node[n] EXCEPT !.quar = Less(@), !.left = Less(@),
           !.grace = Is("read-by-old-clock") /\ node[n].left = 1]]
    /\ grants' = [n \in Nodes |->
           {[x EXCEPT !.left = @ - 1] : x \in {y \in grants[n] : y.left > 1}}]
    /\ acked' = [n \in Nodes |-> {<<a[1], a[2] + 1>> : a \in {b \in acked[n] : b[2] + 1 < LenMax}}]
    /\ flight' = {[x EXCEPT !.age = @ + 1] :
           x \in {y \in flight : y.age + 1 < LenMax + (IF Is("lease-from-receipt") THEN 1 ELSE 0)}}
    /\ ghost' = [n \in Nodes |-> IF ghost[n] = None \/ ghost[n].left = 1 THEN None
                    ELSE [ghost[n] EXCEPT !.left = @ - 1]]
    /\ UNCHANGED <<cfg, held, sealed, oks, restarts, losses, data>>

(* --------------------------------- faults ----------------------------------- *)

Restarted(n, record) ==
    /\ node' = [node EXCEPT ![n] = [record EXCEPT !.ep = 0, !.other = FALSE, !.sealed = TRUE,
           !.fin = 0, !.left = 0, !.grace = FALSE, !.asked = FALSE, !.quar = LenMax]]
    /\ grants' = [grants EXCEPT ![n] = {}]
    /\ acked' = [acked EXCEPT ![n] = {}]
    /\ held' = {x \in held : x.g # n /\ x.h # n}
    /\ flight' = {x \in flight : x.h # n}
    /\ reading' = [reading EXCEPT ![n] = 0]
    /\ checked' = checked \ {n}
    /\ UNCHANGED <<cfg, sealed, oks, acks, begun, done, copies>>

Restart(n) ==
    /\ restarts < RestartsMax
    /\ restarts' = restarts + 1
    /\ Restarted(n, [node[n] EXCEPT !.boot = @ + 1, !.ready = FALSE])
    /\ UNCHANGED <<losses, ghost, cell>>

(* The old process may go on elsewhere until its lease ends.                     *)
Lose(n) ==
    /\ losses < LossesMax
    /\ losses' = losses + 1
    /\ ghost' = [ghost EXCEPT ![n] = IF node[n].left = 0 THEN @
                    ELSE [ep |-> node[n].ep, left |-> node[n].left]]
    /\ cell' = [cell EXCEPT ![n] = -1]
    /\ LET new == IF Is("same-after-loss") THEN node[n] ELSE [node[n] EXCEPT !.loss = @ + 1, !.boot = 1]
       IN  Restarted(n, [new EXCEPT !.promised = 0, !.ready = Is("answers-before-reading")])
    /\ UNCHANGED restarts

(* The quarantine counts from the start, by the length of the last Active value.  *)
ReadFirst(n) ==
    /\ ~node[n].ready
    /\ LET len == IF Is("quarantine-of-wedging") THEN cfg[Last].len ELSE cfg[LastActive].len
           passed == LenMax - node[n].quar
       IN  Raised(n, [node[n] EXCEPT !.ready = TRUE, !.promised = Max(@, Last),
               !.quar = IF passed >= len THEN 0 ELSE len - passed])
    /\ UNCHANGED <<cfg, grants, acked, flight, held, oks, ghost, restarts, losses, data>>

(* ------------------------------- the register -------------------------------- *)

(* Without an image a cell says that there is no value.                          *)
IsValid(n) == cell[n] \in done \union {-1}
HasAcked(n, w, e) == \E a \in acks : a[1] = n /\ a[2] = w /\ a[3] = e
HasSealed(n, e) == \E m \in sealed : m.n = n /\ m.inc = Inc(n) /\ m.e > e
Ack(n, w) == acks' = acks \union {<<n, w, node[n].ep, HasSealed(n, node[n].ep)>>}

Write(n, w) ==
    /\ begun[w] = None
    /\ IsFull(n) /\ IsValid(n) /\ cell[n] < w
    /\ begun' = [begun EXCEPT ![w] = <<LastDone>>]
    /\ cell' = [cell EXCEPT ![n] = w]
    /\ Ack(n, w)
    /\ UNCHANGED <<control, done, copies, reading, checked>>

(* A member repeats the unfinished write that it holds in its own epoch, or       *)
(* acknowledges a write that another member of its epoch holds.                  *)
Acknowledge(n) ==
    \E w \in 1..Writes :
    /\ Runs(n) /\ n \in DOMAIN Mem(n)
    /\ \/ IsFull(n) /\ cell[n] = w /\ w \notin done
       \/ \E a \in acks : a[1] \in DOMAIN Mem(n) /\ a[2] = w /\ a[3] = node[n].ep
    /\ ~HasAcked(n, w, node[n].ep)
    /\ cell' = [cell EXCEPT ![n] = Max(@, w)]
    /\ Ack(n, w)
    /\ UNCHANGED <<control, begun, done, copies, reading, checked>>

Complete(n) ==
    \E w \in 1..Writes \ done :
    /\ IsFull(n)
    /\ \A x \in DOMAIN Mem(n) : HasAcked(x, w, node[n].ep)
                                 \/ (~Mem(n)[x].full /\ Is("shadow-acks-late"))
    /\ done' = done \union {w}
    /\ UNCHANGED <<control, cell, acks, begun, copies, reading, checked>>

Copied(n, w) ==
    /\ cell' = [cell EXCEPT ![n] = Max(@, w)]
    /\ node' = [node EXCEPT ![n].fin = node[n].ep]
    /\ UNCHANGED <<cfg, grants, acked, flight, held, sealed, oks, ghost, restarts, losses,
                   acks, begun, done, reading, checked>>

Copy(f, n) ==
    /\ IsFull(f) /\ Runs(n) /\ n \in DOMAIN Mem(n) /\ ~Mem(n)[n].full
    /\ node[f].ep = node[n].ep \/ Is("copy-of-another-epoch")
    /\ node[n].fin # node[n].ep
    /\ IF Late THEN /\ copies' = copies \union {<<n, Inc(n), node[n].ep, cell[f]>>}
                    /\ UNCHANGED <<control, cell, acks, begun, done, reading, checked>>
       ELSE Copied(n, cell[f]) /\ UNCHANGED copies

TakeCopy(n) ==
    \E c \in copies :
    /\ c[1] = n /\ c[2] = Inc(n) /\ c[3] = node[n].ep
    /\ Runs(n) /\ node[n].fin # node[n].ep
    /\ Copied(n, c[4])
    /\ UNCHANGED copies

CheckLease(n) ==
    /\ Is("lease-before-value")
    /\ node[n].left > 0
    /\ checked' = checked \union {n}
    /\ UNCHANGED <<control, cell, acks, begun, done, copies, reading>>

TakeValue(n) ==
    /\ reading[n] = 0
    /\ IsFull(n) /\ IsValid(n) /\ cell[n] < LastDone
    /\ reading' = [reading EXCEPT ![n] = node[n].ep]
    /\ UNCHANGED <<control, cell, acks, begun, done, copies, checked>>

Next ==
    \/ Propose \/ ProposeInVain \/ Activate \/ GrantHeld \/ TakeAck \/ Tick
    \/ \E n \in Nodes :
       \/ Raise(n) \/ RaiseByHeartbeat(n) \/ Seal(n) \/ ActivateOk(n) \/ Install(n) \/ InstallLoser(n)
       \/ Restart(n) \/ Lose(n) \/ ReadFirst(n)
       \/ Acknowledge(n) \/ Complete(n) \/ TakeCopy(n)
       \/ CheckLease(n) \/ TakeValue(n)
       \/ \E m \in Nodes : Check(n, m) \/ Copy(n, m)
       \/ \E Q \in SUBSET Nodes : Heartbeat(n, Q)
       \/ \E w \in 1..Writes : Write(n, w)

Spec == Init /\ [][Next]_vars

(* -------------------------------- invariants --------------------------------- *)

(* F1: an epoch has one value.                                                  *)
OneValue == \A n, m \in Nodes :
    Runs(n) /\ Runs(m) /\ node[n].ep = node[m].ep => node[n].other = node[m].other

(* F2: no lease of an epoch is valid once a later one is Active.                  *)
NoOldLease == \A n \in Nodes :
    /\ node[n].left > 0 => node[n].ep >= LastActive
    /\ ghost[n] # None => ghost[n].ep >= LastActive

(* F3: some Full member of the Active epoch sent Sealed with its image, and all that *)
(* kept their image hold all writes.                                            *)
FullHoldsAll ==
    LET mem == cfg[LastActive].mem
        full == {n \in DOMAIN mem : mem[n].full}
    IN  /\ LastActive = Last => \E n \in full, m \in sealed :
               m.n = n /\ m.inc = mem[n].inc /\ m.e = Last
        /\ \A n \in full : mem[n].inc[1] = node[n].loss => cell[n] >= LastDone

(* F4: no acknowledgement of an epoch follows Sealed of a later one.             *)
NoAckAfterSealed == \A a \in acks : ~a[4]

(* F5: an answer to Wedge is covered by `promised`, after a restart too.          *)
AnswersArePromised ==
    /\ \A m \in sealed : node[m.n].ready => node[m.n].promised >= m.e
    /\ \A n \in oks : node[n].ready => node[n].promised >= Last

(* A read that took a stale value is not answered; a write does not precede one    *)
(* that was complete when it began.                                             *)
ReadsFresh == \A n \in Nodes : reading[n] # 0 =>
    /\ ~(node[n].left > 0 \/ node[n].grace)
           \/ (node[n].ep # reading[n] /\ ~Is("core-epoch-last"))
    /\ n \notin checked
WritesFresh == \A w \in done \ {0} : w > begun[w][1]

(* ---------------------------------- liveness --------------------------------- *)

(* Proposers may crash at any time. Another one sends Wedge again (M6), but Install  *)
(* is for members to find by themselves.                                        *)
FairSpec ==
    /\ Spec
    /\ WF_vars(Activate) /\ WF_vars(Tick)
    /\ \A n \in Nodes : /\ WF_vars(Raise(n)) /\ WF_vars(Seal(n)) /\ WF_vars(ActivateOk(n))
                        /\ WF_vars(Install(n) /\ ~Is("no-poll"))
Settles == (~cfg[Last].active) ~> cfg[Last].active
Starts == []<>(\A n \in DOMAIN cfg[LastActive].mem : node[n].ep = LastActive)
=============================================================================
