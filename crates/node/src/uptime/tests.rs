//! Crashes, stops and races of the clocks. Their files on disk are tested in `storage`.

use super::*;

const DAY: Millis = Millis(86_400_000);
const LOCK: Millis = Millis(2_000);

/// A node's clocks, the identity that they are saved to, and its process's time.
struct Node {
    keeper: Keeper,
    saved: Vec<SavedClock>,
    now: u64,
}

impl Node {
    fn new() -> Node {
        Node { keeper: keeper(&[], true, 5), saved: Vec::new(), now: 5 }
    }

    fn at(&self) -> Nanos {
        Nanos::from_millis(self.now)
    }

    fn start(&self, span: Millis) -> Millis {
        self.keeper.uptimes.at(self.at()).start(span)
    }

    fn rest(&self, span: Millis, start: Millis) -> u64 {
        let at = self.keeper.uptimes.at(self.at());
        let at: &dyn Uptime = &at;
        at.rest(span, start).0
    }

    /// Lets time pass, saving in time. How often it saved.
    fn pass(&mut self, millis: u64) -> u64 {
        let (end, mut saves) = (self.now + millis, 0);
        loop {
            while let Some(save) = self.keeper.look(self.at()) {
                self.keeper.on_saved(&save, self.at());
                self.saved = save;
                saves += 1;
            }
            let next = self.keeper.next(self.at()).map_or(end, |next| next.as_millis());
            assert!(next > self.now, "it looks again and again");
            if next >= end {
                self.now = end;
                return saves;
            }
            self.now = next;
        }
    }

    fn crash(&mut self) {
        self.now = 3;
        self.keeper = keeper(&self.saved, false, self.now);
    }

    fn stop(&mut self) {
        if let Some(save) = self.keeper.close(self.at()) {
            self.saved = save;
        }
        self.now = 3;
        self.keeper = keeper(&self.saved, true, self.now);
    }
}

fn keeper(saved: &[SavedClock], orderly: bool, now: u64) -> Keeper {
    Keeper::restore(Scale::REAL, saved, orderly, Nanos::from_millis(now))
}

fn most(span: Millis) -> u64 {
    1_000 + span.0 / 100
}

#[test]
fn every_class_is_saved_in_time() {
    let scale = Scale::REAL;
    for span in (0..40).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
        let class = scale.class(Millis(span));
        assert!(scale.shortest(class) <= span && span < scale.longest(class), "{span}");
        assert!(scale.save_after(class) + 150 < most(Millis(span)), "{span}");
    }
    assert_eq!(scale.class(Millis(u64::MAX)), CLASSES - 1);
}

#[test]
fn node_without_countdowns_saves_nothing() {
    let mut node = Node::new();
    assert_eq!(node.pass(DAY.0), 0);
    node.crash();
    assert_eq!(node.pass(DAY.0), 0);
    node.stop();
    assert!(node.saved.is_empty());
}

#[test]
fn clock_stands_still_when_nothing_counts() {
    let mut node = Node::new();
    node.start(LOCK);
    assert!(node.pass(3_000) > 0);
    assert_eq!(node.pass(DAY.0), 0);
    let start = node.start(LOCK);
    assert!(start.0 < 3_000, "{start:?} after a day");
    assert_eq!(node.rest(LOCK, start), LOCK.0);
}

#[test]
fn day_long_countdown_is_saved_every_quarter_of_an_hour() {
    let mut node = Node::new();
    let start = node.start(DAY);
    let saves = node.pass(DAY.0);
    assert!((96..160).contains(&saves), "{saves} saves");
    assert!(node.rest(DAY, start) <= 2);
    node.pass(2);
    assert_eq!(node.rest(DAY, start), 0);
}

/// The smallest input of the fault: a long countdown runs, a short one starts, the node dies.
#[test]
fn crash_costs_a_short_countdown_little_beside_a_long_one() {
    for held in [0, 1, 40, 799, 801, 1_300] {
        let mut node = Node::new();
        node.start(DAY);
        node.pass(290_000);
        let lock = node.start(LOCK);
        // Its first use is held back until a trace of it is durable.
        node.pass(held.max(1));
        node.crash();
        let left = node.rest(LOCK, lock);
        assert!(left <= LOCK.0 - held + most(LOCK), "{left} ms are left after {held}");
        assert!(left >= LOCK.0 - held, "early: {left} ms are left after {held}");
        node.pass(left + 2);
        assert_eq!(node.rest(LOCK, lock), 0);
    }
}

#[test]
fn crashes_in_a_row_cost_little_each() {
    for span in [LOCK, Millis(70_000), Millis(3_600_000), DAY] {
        let mut node = Node::new();
        node.pass(1_000_000);
        let start = node.start(span);
        let (mut ran, mut crashes) = (0, 0);
        let step = most(span) + span.0 / 7;
        while node.rest(span, start) > 0 {
            node.pass(step);
            ran += step;
            node.crash();
            crashes += 1;
            assert!(crashes < 20, "{span:?} never ends");
        }
        assert!(ran >= span.0, "{span:?} was early");
        assert!(ran <= span.0 + step + crashes * most(span), "{span:?} took {ran} ms");
    }
}

#[test]
fn countdown_that_was_not_saved_runs_after_a_crash() {
    let mut node = Node::new();
    node.start(LOCK);
    node.pass(10_000);
    // A clock that was used before: the node holds back no message.
    let lock = node.start(LOCK);
    assert!(!node.keeper.uptimes.is_held());
    node.crash();
    node.pass(LOCK.0 + most(LOCK));
    assert_eq!(node.rest(LOCK, lock), 0);
}

#[test]
fn first_use_of_a_clock_is_held_until_it_is_saved() {
    let mut node = Node::new();
    node.start(LOCK);
    assert!(node.keeper.uptimes.is_held() && node.keeper.uptimes.take_changed());
    node.pass(1);
    assert!(!node.keeper.uptimes.is_held());
    node.start(LOCK);
    assert!(!node.keeper.uptimes.is_held());
    node.start(DAY);
    assert!(node.keeper.uptimes.is_held());
}

#[test]
fn orderly_stop_costs_nothing() {
    let mut node = Node::new();
    let start = node.start(DAY);
    node.pass(DAY.0 / 2 + 77);
    let left = node.rest(DAY, start);
    node.stop();
    assert!((left..=left + 1).contains(&node.rest(DAY, start)));
    node.pass(left + 2);
    assert_eq!(node.rest(DAY, start), 0);
    node.pass(DAY.0 / 4);
    assert_eq!(node.pass(DAY.0), 0, "nothing counts any more");
    node.stop();
    assert_eq!(node.pass(DAY.0), 0, "nor after an orderly restart");
}

#[test]
fn what_starts_while_the_node_stops_is_held_back() {
    let mut node = Node::new();
    node.start(LOCK);
    node.pass(1);
    assert!(!node.keeper.uptimes.is_held());
    assert!(node.keeper.close(node.at()).is_some());
    node.start(LOCK);
    assert!(node.keeper.uptimes.is_held());
}

#[test]
fn forgotten_countdown_wakes_its_clock() {
    let mut node = Node::new();
    let start = Millis(3);
    assert_eq!(node.rest(LOCK, start), LOCK.0);
    assert!(node.keeper.uptimes.is_held());
    node.pass(LOCK.0 + 10);
    assert_eq!(node.rest(LOCK, start), 0);
}

#[test]
fn worker_in_an_old_turn_counts_no_time_at_rest() {
    let mut node = Node::new();
    let old = node.start(LOCK);
    node.pass(1);
    let end = node.keeper.uptimes.clocks[0].until.load(SeqCst);
    let before = node.at();
    node.pass(end + 50);
    let Motion::Resting(shown) = node.keeper.uptimes.clocks[0].motion() else {
        panic!("nothing counts")
    };
    // Its turn began before the clock came to rest.
    let start = node.keeper.uptimes.at(before).start(LOCK);
    assert!(start.0 < shown);
    assert_eq!(node.rest(LOCK, old), 0);
    let at = node.keeper.uptimes.at(Nanos::from_millis(node.now));
    assert!(at.now(LOCK).0 <= shown + 50);
    node.now = before.as_millis() + LOCK.0;
    assert!(node.rest(LOCK, start) > 0, "never early");
}

/// The control thread may plan its next look after the last countdown, as no look did.
#[test]
fn clock_past_its_last_countdown_is_looked_at_at_once() {
    let mut node = Node::new();
    node.start(LOCK);
    node.pass(1);
    node.now = 5 + node.keeper.uptimes.clocks[0].until.load(SeqCst);
    assert!(matches!(node.keeper.uptimes.clocks[0].motion(), Motion::Running(_)));
    for late in [0, 1, 700] {
        node.now += late;
        let next = node.keeper.next(node.at()).expect("it has to come to rest");
        assert!(next <= node.at() + Nanos::from_millis(1), "{next:?} at {late}");
    }
    node.pass(1);
    assert!(matches!(node.keeper.uptimes.clocks[0].motion(), Motion::Resting(_)));
    assert_eq!(node.keeper.next(node.at()), None);
}

/// A worker that was kept waiting as it woke a clock finds it at rest again.
/// The offset that it has computed is of the rest before.
#[test]
fn clock_is_never_woken_from_an_earlier_rest() {
    let mut node = Node::new();
    for round in 0..20 {
        let stale = node.keeper.uptimes.clocks[0].motion();
        let Motion::Resting(shown) = stale else { panic!("nothing counts") };
        let before = node.now;
        node.now += 5;
        // Woken without a countdown, as in the middle of the start of one.
        node.keeper.uptimes.wake(0, node.now);
        for wait in 0..3 {
            node.now += wait;
            let _ = node.keeper.look(node.at());
            let woke = node.keeper.uptimes.clocks[0]
                .turn(stale, Motion::Running(shown as i64 - (before as i64 + 1)));
            assert!(!woke, "round {round}, {wait} ms later");
        }
        node.pass(10);
        assert_eq!(node.keeper.next(node.at()), None, "it comes to rest");
    }
}

/// The steps of other threads that one start can meet, in the order in which they come.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    /// The keeper finds that the clock is to rest, by the time that it read last.
    Find,
    Turn,
    Confirm,
    /// Another worker starts a countdown.
    Start,
}

/// Runs the steps before each point of a start that `points` names for them, and the rest after it.
/// Returns the time that the countdown is ahead of its span's time, at worst.
fn ahead_among(order: [Step; 4], points: [usize; 4], delay: u64) -> i64 {
    let mut node = Node::new();
    node.start(LOCK);
    node.pass(1);
    // The keeper has read this time, and is kept waiting after it.
    node.now = 6 + node.keeper.uptimes.clocks[0].until.load(SeqCst);
    let (read, turn) = (node.now, node.now + delay);
    let uptimes = node.keeper.uptimes();
    let (mut found, mut has_turned, mut next) = (None, false, 0);
    let mut run = |point: usize| {
        while next < order.len() && points[next] <= point {
            match (order[next], found) {
                (Step::Find, _) => {
                    found = node.keeper.rest_due(0, read);
                    assert!(point > 0 || next > 0 || found.is_some(), "its countdowns are over");
                }
                (Step::Turn, Some((from, to))) => has_turned = uptimes.clocks[0].turn(from, to),
                (Step::Confirm, Some((from, to))) if has_turned => {
                    node.keeper.confirm_rest(0, from, to);
                }
                (Step::Turn | Step::Confirm, _) => {}
                (Step::Start, _) => {
                    uptimes.at(Nanos::from_millis(read)).start(LOCK);
                }
            }
            next += 1;
        }
    };
    let mut point = 0;
    run(point);
    let start = uptimes.at(Nanos::from_millis(turn)).start_in_steps(LOCK, || {
        point += 1;
        run(point);
    });
    run(usize::MAX);
    let counted = |now: u64| uptimes.clocks[0].motion().shows(now).0 as i64 - start.0 as i64 - 1;
    [0, 1, delay, 1_000].map(|held| counted(turn + held) - held as i64).into_iter().max().unwrap()
}

/// All orders in which the keeper and another worker can meet the steps of a start.
#[test]
fn countdown_is_never_early_in_any_order_of_steps() {
    use Step::{Confirm, Find, Start, Turn};
    let orders = [
        [Start, Find, Turn, Confirm],
        [Find, Start, Turn, Confirm],
        [Find, Turn, Start, Confirm],
        [Find, Turn, Confirm, Start],
    ];
    const LAST: usize = 6;
    for order in orders {
        for all in 0..LAST.pow(4) {
            let points = [0, 1, 2, 3].map(|step| all / LAST.pow(step) % LAST);
            if points.is_sorted() {
                for delay in [0, 1, 30, 250] {
                    let ahead = ahead_among(order, points, delay);
                    assert!(ahead <= 0, "{ahead} ms early: {order:?} at {points:?}, {delay} ms");
                }
            }
        }
    }
}

/// Also where the process stood still, and its clock ran far beyond its last countdown.
#[test]
fn countdown_after_a_standstill_loses_little() {
    for still in [900, 5_000, 3_600_000] {
        let mut node = Node::new();
        node.start(LOCK);
        node.pass(100);
        node.now += still;
        node.pass(1);
        let lock = node.start(LOCK);
        node.pass(1);
        node.crash();
        let left = node.rest(LOCK, lock);
        assert!(left <= LOCK.0 + most(LOCK), "{left} ms are left after {still}");
    }
}

/// A crash may come while a save stalls, whatever starts meanwhile.
#[test]
fn countdown_that_starts_far_beyond_the_last_save_is_held() {
    let (mut node, soon, late) = (Node::new(), Millis(10_000), Millis(60_000));
    node.start(soon);
    node.pass(1);
    node.now += 7_000;
    let save = node.keeper.look(node.at()).expect("it is due");
    node.start(late);
    assert!(!node.keeper.uptimes.is_held(), "a short stall holds nothing");
    node.now += 100_000;
    node.start(late);
    assert!(node.keeper.uptimes.is_held());
    // The save that ends now was begun before.
    node.keeper.on_saved(&save, node.at());
    assert!(node.keeper.uptimes.is_held());
    let save = node.keeper.look(node.at()).expect("it is held");
    node.keeper.on_saved(&save, node.at());
    assert!(!node.keeper.uptimes.is_held());
}

#[test]
fn save_without_room_is_tried_again_later() {
    let mut node = Node::new();
    node.start(LOCK);
    let _ = node.keeper.look(node.at()).expect("its first use");
    node.keeper.on_refused(node.at());
    assert_eq!(node.keeper.look(node.at()), None);
    assert!(node.keeper.uptimes.is_held(), "the countdown waits");
    node.now = node.keeper.next(node.at()).expect("it is tried again").as_millis();
    assert!((100..1_000).contains(&node.now), "{}", node.now);
    node.pass(1);
    assert!(!node.keeper.uptimes.is_held());
    assert!(!node.saved.is_empty());
}

/// The control thread may take a rest back, and the clock then shows more at this turn.
#[test]
fn no_countdown_starts_at_rest() {
    let (rest, off) = (Motion::Resting(1_000), 7);
    assert_eq!(rest.starts(993), None);
    assert_eq!(rest.starts(2_000), None);
    assert_eq!(Motion::Running(off).starts(993), Some(Millis(1_000)));
}

/// A save may stall, and countdowns start meanwhile.
#[test]
fn clock_runs_after_a_crash_for_all_that_started_during_a_stalled_save() {
    let mut node = Node::new();
    node.start(LOCK);
    node.pass(1);
    node.now += 40_000;
    let late = Millis(60_000);
    let start = node.start(late);
    node.crash();
    let scale = Scale::REAL;
    let runs = node.keeper.uptimes.clocks[scale.class(late)].until.load(SeqCst);
    assert!(runs >= end(start, late), "{runs} for {start:?}");
}

/// Threads start countdowns while the clock comes to rest again and again.
#[test]
fn countdowns_are_never_early_while_clocks_come_to_rest() {
    let keeper = Keeper::restore(Scale { bits: 16, every: Millis(16) }, &[], true, Nanos(0));
    let (uptimes, began) = (keeper.uptimes(), std::time::Instant::now());
    let now = move || Nanos(began.elapsed().as_nanos() as u64);
    let worker = move |uptimes: Arc<Uptimes>, seed: u64| {
        for round in 0..300_u64 {
            let turn = now();
            let span = Millis(1 + (round * 7 + seed) % 4);
            let start = uptimes.at(turn).start(span);
            while uptimes.at(now()).now(span).0 <= start.0 + span.0 {
                assert!(now() < turn + Nanos::from_secs(60), "the clock stands still");
                std::hint::spin_loop();
            }
            let passed = now().since(turn);
            assert!(passed >= Nanos::from_millis(span.0), "{span:?} took {passed:?}");
            std::thread::sleep(std::time::Duration::from_micros(500 * (round % 5)));
        }
    };
    let threads: Vec<_> = (0..2)
        .map(|seed| {
            let uptimes = Arc::clone(&uptimes);
            std::thread::spawn(move || worker(uptimes, seed))
        })
        .collect();
    let mut keeper = keeper;
    while threads.iter().any(|thread| !thread.is_finished()) {
        if let Some(save) = keeper.look(now()) {
            keeper.on_saved(&save, now());
        }
        std::thread::yield_now();
    }
    threads.into_iter().for_each(|thread| thread.join().expect("never early"));
}
