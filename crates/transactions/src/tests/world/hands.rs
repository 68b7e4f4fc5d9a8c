//! Steps of directed schedules.

use super::*;

impl World {
    /// Delivers the oldest request of a node. False if there is none.
    pub(in super::super) fn deliver_of(&mut self, node: usize) -> bool {
        let at = self.requests.iter().position(|it| it.node == node && !it.is_orphan);
        at.map(|at| self.deliver(at)).is_some()
    }

    pub(in super::super) fn deliver_all_of(&mut self, node: usize) {
        for _ in 0..100 {
            if !self.deliver_of(node) {
                return;
            }
        }
        panic!("requests that never end\n{}", self.log);
    }

    /// The node takes no answers and has no turns until the world heals.
    pub(in super::super) fn pause(&mut self, node: usize) {
        self.paused_until[node] = Nanos::from_secs(1_000);
    }

    pub(in super::super) fn resume(&mut self, node: usize) {
        self.paused_until[node] = Nanos::ZERO;
    }

    /// Lets time pass, and everything arrive.
    pub(in super::super) fn run_for(&mut self, millis: u64) {
        for _ in 0..millis {
            self.pass(Nanos::from_millis(1));
            (0..20).for_each(|_| self.deliver_any());
        }
    }

    /// The oldest request of a node stays for later, and the node hears that its end is unknown.
    pub(in super::super) fn lose_answer(&mut self, node: usize) {
        let at = self.requests.iter().position(|it| it.node == node && !it.is_orphan);
        let request = self.requests.remove(at.expect("a request of the node"));
        let token = request.token;
        self.requests.push(Request { is_orphan: true, ..request });
        self.with(node, |service, cx| service.on_outcome(cx, token, Outcome::Unknown));
    }

    /// A copy of the oldest request of a node stays for later.
    pub(in super::super) fn repeat_later(&mut self, node: usize) {
        let found = self.requests.iter().find(|it| it.node == node && !it.is_orphan);
        let copy = Request { is_orphan: true, ..found.expect("a request of the node").clone() };
        self.requests.push(copy);
    }

    /// Requests that no node waits for.
    pub(in super::super) fn late(&self) -> usize {
        self.requests.iter().filter(|it| it.is_orphan).count()
    }

    /// Each such request runs now, or never, as its bit says.
    pub(in super::super) fn run_late(&mut self, mask: usize) {
        let all = std::mem::take(&mut self.requests);
        let (late, others) = all.into_iter().partition(|it| it.is_orphan);
        self.requests = others;
        let late: Vec<Request> = late;
        for (number, request) in late.into_iter().enumerate() {
            let place = (request.database, request.key.clone());
            let is_void = request.base.is_some_and(|it| it != self.registers.version(&place));
            if mask >> number & 1 == 1 && !is_void {
                self.note(format!("late: {:?} {:?}", request.key, request.command));
                self.run_fenced(&request, false);
            }
        }
    }

    /// Lets time pass without a delivery.
    pub(in super::super) fn wait(&mut self, millis: u64) {
        self.pass(Nanos::from_millis(millis));
    }

    /// Start times in the requests of a node that take keys.
    pub(in super::super) fn starts(&self, node: usize) -> Vec<u64> {
        let of_node = self.requests.iter().filter(|it| it.node == node && !it.is_orphan);
        let takes = of_node.filter_map(|it| match &it.command.hold.as_ref()?.then {
            types::Then::Take(take) => Some(take.txid.start),
            _ => None,
        });
        takes.collect()
    }

    /// The others believe, or no longer, that the node is gone for good.
    pub(in super::super) fn take_for_gone(&mut self, node: usize, is_gone: bool) {
        self.gone[node] = is_gone;
    }

    /// Records that are not forgotten.
    pub(in super::super) fn records(&self) -> usize {
        let all = self.registers.all.iter();
        all.filter(|((database, _), it)| database.is_hidden() && it.value.is_some()).count()
    }

    /// This node looks after all records, which have been there for minutes.
    pub(in super::super) fn look_after_records(&mut self, node: usize) {
        self.find_records(node, true);
    }

    /// This node looks after all records. They are new.
    pub(in super::super) fn look_after_new_records(&mut self, node: usize) {
        self.find_records(node, false);
    }

    /// The outcome of the first request is unknown: it may still run.
    pub(in super::super) fn doubt_one(&mut self) {
        let request = self.requests.remove(0);
        self.requests.push(Request { is_orphan: true, ..request.clone() });
        let outcome = Outcome::Unknown;
        self.with(request.node, |service, cx| service.on_outcome(cx, request.token, outcome));
    }

    /// Delivers all requests that are under way, and returns how many there were.
    pub(in super::super) fn deliver_all(&mut self) -> usize {
        let count = self.requests.len();
        (0..count).for_each(|_| self.deliver(0));
        count
    }

    /// Runs all commands without a transaction that are under way.
    pub(in super::super) fn run_plain_all(&mut self) {
        (0..self.plain.len()).for_each(|_| self.run_plain(0));
    }

    /// Transitions of all registers so far.
    pub(in super::super) fn writes(&self) -> u64 {
        self.registers.all.values().map(|register| register.version).sum()
    }
}
