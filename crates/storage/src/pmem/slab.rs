//! Free slots: found again after a restart, never written down.
//!
//! A slot is in use if the directory leads to it, and only then. So no list of free slots has to
//! survive a crash, and none can be wrong. A worker keeps the free slots that it knows of, per
//! shard and class, and learns of others by walking the shard's slabs, a few at a time, when it
//! needs one.
//!
//! A run whose slots are all free leaves its slab, and any worker may take its pages. A few such
//! runs are kept for a while: lengths that change to and fro would take and give back pages each
//! time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use super::directory::Match;
use super::layout::{Class, GRANULE, PAGE, PageKind, PageUse, ROOT_META, ShardId};
use super::memory::Memory;
use super::shared::{Shared, offset_of};
use super::slot::{Buffers, Home, Kind, Reading};
use super::word::NONE;

// Free slots that are remembered per shard and class. Others are found again by the next walk.
const FREE_MAX: usize = 1024;
// Runs looked at before a new one is taken instead.
const WALK_RUNS_MAX: usize = 4;
// Pages of empty runs that a worker keeps.
const EMPTY_PAGES_MAX: u64 = 512;

/// The free slots that one worker knows of.
#[derive(Debug, Default)]
pub struct Slabs {
    classes: BTreeMap<(ShardId, Class), Free>,
    // Slots given out since the last settlement: the directory does not lead to them yet.
    given: BTreeSet<u64>,
    // Runs that had no slot in use when they were put here, the oldest first, and their pages.
    empty: VecDeque<(ShardId, Class, u64)>,
    empty_pages: u64,
}

#[derive(Debug)]
struct Free {
    slots: Vec<u64>,
    // How many of those are in each run.
    per_run: BTreeMap<u64, u64>,
    walk: Walk,
    // A free slot was not remembered since the walk began.
    has_more: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walk {
    FromStart,
    At(u64),
    Done,
}

impl Default for Free {
    fn default() -> Free {
        let per_run = BTreeMap::new();
        Free { slots: Vec::new(), per_run, walk: Walk::FromStart, has_more: false }
    }
}

impl Free {
    /// The slots of `run` that are known to be free now.
    fn remember(&mut self, slot: u64, run: u64) -> u64 {
        if self.slots.len() >= FREE_MAX {
            self.has_more = true;
            return 0;
        }
        self.slots.push(slot);
        let count = self.per_run.entry(run).or_default();
        *count += 1;
        *count
    }

    fn pop<M: Memory>(&mut self, shared: &Shared<M>) -> Option<u64> {
        let slot = self.slots.pop()?;
        if let Some(run) = shared.run_of(slot)
            && let Some(count) = self.per_run.get_mut(&run)
        {
            *count -= 1;
            if *count == 0 {
                self.per_run.remove(&run);
            }
        }
        Some(slot)
    }

    /// No slot of a run is to be given out any more.
    fn forget_run(&mut self, run: u64, class: Class) {
        let end = run + class.run_pages() * PAGE;
        self.slots.retain(|slot| !(run..end).contains(slot));
        self.per_run.remove(&run);
    }
}

/// Finds out that a chain of runs comes back to where it was, which damage can bring about (R. P. Brent, "An improved Monte
/// Carlo factorization algorithm", 1980, section 2: the cycle is met again at the latest after three times its length).
#[derive(Clone, Copy, Default, Debug)]
pub struct Lap {
    mark: Option<u64>,
    passed: u64,
    most: u64,
}

impl Lap {
    /// True if this run has been passed before.
    pub fn passes_again(&mut self, run: u64) -> bool {
        if self.mark == Some(run) {
            return true;
        }
        self.passed += 1;
        if self.passed > self.most {
            *self = Lap { mark: Some(run), passed: 0, most: self.most * 2 + 1 };
        }
        false
    }
}

impl Slabs {
    /// A free slot, and which version of it to write with which sequence.
    ///
    /// # Errors
    /// When a new run is needed and the file cannot grow.
    pub fn take<M: Memory>(
        &mut self,
        shared: &Shared<M>,
        shard: ShardId,
        class: Class,
        buffers: &mut Buffers,
    ) -> io::Result<(Home, (usize, u32))> {
        loop {
            if let Some(taken) = self.take_known(shared, shard, class, buffers) {
                return Ok(taken);
            }
            let free = self.classes.entry((shard, class)).or_default();
            free.walk(shared, shard, class, &self.given, buffers);
            if free.slots.is_empty()
                && let Err(error) = free.add_run(shared, shard, class, buffers)
            {
                free.walk_to_end(shared, shard, class, &self.given, buffers);
                if free.slots.is_empty() && !self.give_back_to(0, shared, buffers) {
                    return Err(error);
                }
            }
        }
    }

    /// As `take`, of the slots that are known.
    fn take_known<M: Memory>(
        &mut self,
        shared: &Shared<M>,
        shard: ShardId,
        class: Class,
        buffers: &mut Buffers,
    ) -> Option<(Home, (usize, u32))> {
        let free = self.classes.entry((shard, class)).or_default();
        while let Some(at) = free.pop(shared) {
            let home = Home { at, class, shard };
            // A damaged slot is left alone until the register that it belongs to is looked up.
            let Some(reading) = shared.read_free(home, buffers) else { continue };
            if self.given.insert(at) {
                let version = (1 - reading.newest, reading.sequence.wrapping_add(1));
                return Some((home, version));
            }
        }
        None
    }

    /// Takes back a slot that the directory durably no longer leads to.
    pub fn give_back<M: Memory>(&mut self, shared: &Shared<M>, home: Home) {
        let Home { at, class, shard } = home;
        let Some(run) = shared.run_of(at) else { return };
        let count = self.classes.entry((shard, class)).or_default().remember(at, run);
        let empty = (shard, class, run);
        if count == class.slots_per_run() && !self.empty.contains(&empty) {
            self.empty.push_back(empty);
            self.empty_pages += class.run_pages();
        }
    }

    /// Takes back a slot that was given out and is not linked.
    pub fn take_back<M: Memory>(&mut self, shared: &Shared<M>, home: Home) {
        self.given.remove(&home.at);
        self.give_back(shared, home);
    }

    /// Gives back the pages of runs that have been empty for longest, while there are more than a few.
    pub fn give_back_runs<M: Memory>(&mut self, shared: &Shared<M>, buffers: &mut Buffers) {
        self.give_back_to(EMPTY_PAGES_MAX, shared, buffers);
    }

    /// Gives back pages of empty runs until so many are kept; true if there were any.
    fn give_back_to<M: Memory>(
        &mut self,
        kept: u64,
        shared: &Shared<M>,
        buffers: &mut Buffers,
    ) -> bool {
        let mut has_given = false;
        while self.empty_pages > kept {
            let Some((shard, class, run)) = self.empty.pop_front() else { break };
            self.empty_pages -= class.run_pages();
            has_given |= self.free_run(shared, (shard, class), run, buffers);
        }
        has_given
    }

    /// Looks at a run of a slab, the first one or the one behind `last`, and gives back its pages where none of its slots is
    /// in use. Returns the run that the next look begins behind; `None` at the end of the slab.
    pub fn look_at_run<M: Memory>(
        &mut self,
        shared: &Shared<M>,
        (shard, class): (ShardId, Class),
        last: Option<u64>,
        buffers: &mut Buffers,
    ) -> Option<u64> {
        let next = match last {
            Some(last) => shared.geometry.next_word_at(last),
            None => shared.geometry.chain_at(shard, class),
        };
        let run = shared.run_named_at(next, shard, class)?;
        match self.free_run(shared, (shard, class), run, buffers) {
            // The runs behind it are behind the last one now.
            true => last.or_else(|| shared.run_named_at(next, shard, class)),
            false => Some(run),
        }
    }

    /// Gives back the pages of a run, if none of its slots is in use.
    fn free_run<M: Memory>(
        &mut self,
        shared: &Shared<M>,
        (shard, class): (ShardId, Class),
        run: u64,
        buffers: &mut Buffers,
    ) -> bool {
        let is_its =
            shared.page_use(run) == Some(PageUse { kind: PageKind::Slab(class), shard, index: 0 });
        let end = run + class.run_pages() * PAGE;
        if !is_its || self.given.range(run..end).next().is_some() {
            return false;
        }
        if !slots_of(run, class).all(|at| shared.is_free(Home { at, class, shard }, buffers)) {
            return false;
        }
        let Some(before) = shared.run_before(run, shard, class) else { return false };
        base::sometimes!("pmem: the pages of an empty run are given back");
        let known = self.classes.entry((shard, class)).or_default();
        known.forget_run(run, class);
        if known.walk == Walk::At(run) {
            known.walk = before.map_or(Walk::FromStart, Walk::At);
        }
        let before = match before {
            Some(before) => shared.geometry.next_word_at(before),
            None => shared.geometry.chain_at(shard, class),
        };
        let next = shared.geometry.next_word_at(run);
        let next = shared.run_named_at(next, shard, class).map_or(NONE, |next| next / GRANULE);
        shared.put_word(before, next);
        shared.memory.fence();
        shared.free(shard, run, class.run_pages());
        true
    }

    /// Says that the directory leads to every slot that was given out.
    pub fn settle(&mut self) {
        self.given.clear();
    }
}

impl Free {
    fn walk<M: Memory>(
        &mut self,
        shared: &Shared<M>,
        shard: ShardId,
        class: Class,
        given: &BTreeSet<u64>,
        buffers: &mut Buffers,
    ) {
        if self.walk == Walk::Done && self.has_more {
            (self.walk, self.has_more) = (Walk::FromStart, false);
        }
        for _ in 0..WALK_RUNS_MAX {
            let next = match self.walk {
                Walk::FromStart => shared.geometry.chain_at(shard, class),
                Walk::At(run) => shared.geometry.next_word_at(run),
                Walk::Done => return,
            };
            let Some(run) = shared.run_named_at(next, shard, class) else {
                self.walk = Walk::Done;
                return;
            };
            self.walk = Walk::At(run);
            for at in shared.free_slots(run, shard, class, buffers) {
                if !given.contains(&at) && !self.slots.contains(&at) {
                    self.remember(at, run);
                }
            }
            if !self.slots.is_empty() {
                return;
            }
        }
    }

    /// Walks on, however long that takes, until there is a free slot.
    fn walk_to_end<M: Memory>(
        &mut self,
        shared: &Shared<M>,
        shard: ShardId,
        class: Class,
        given: &BTreeSet<u64>,
        buffers: &mut Buffers,
    ) {
        let mut lap = Lap::default();
        while self.slots.is_empty() {
            match self.walk {
                Walk::At(run) if lap.passes_again(run) => return,
                Walk::Done if !self.has_more => return,
                _ => self.walk(shared, shard, class, given, buffers),
            }
        }
    }

    fn add_run<M: Memory>(
        &mut self,
        shared: &Shared<M>,
        shard: ShardId,
        class: Class,
        buffers: &mut Buffers,
    ) -> io::Result<()> {
        let run = shared.allocate(PageKind::Slab(class), shard, class.run_pages())?;
        for at in slots_of(run, class) {
            shared.clear_slot(Home { at, class, shard }, buffers);
        }
        let chain = shared.geometry.chain_at(shard, class);
        // A damaged head or link costs only the free slots behind it.
        let next = shared.run_named_at(chain, shard, class).map_or(NONE, |next| next / GRANULE);
        shared.put_word(shared.geometry.next_word_at(run), next);
        shared.memory.fence();
        shared.put_word(chain, run / GRANULE);
        // Rising addresses are used first.
        let mut slots: Vec<u64> = slots_of(run, class).collect();
        slots.reverse();
        self.per_run.insert(run, slots.len() as u64);
        self.slots.extend(slots);
        Ok(())
    }
}

fn slots_of(run: u64, class: Class) -> impl Iterator<Item = u64> {
    (0..class.slots_per_run()).map(move |index| run + index * class.slot_len())
}

impl<M: Memory> Shared<M> {
    /// The run that the chain word at `at` names, where it is one of this shard and class and wholly in the file, which
    /// may have been cut short.
    fn run_named_at(&self, at: u64, shard: ShardId, class: Class) -> Option<u64> {
        let run = offset_of(self.word(at)?).filter(|run| run.is_multiple_of(PAGE))?;
        let page = self.page_use(run)?;
        let is_right = page.kind == PageKind::Slab(class) && page.shard == shard && page.index == 0;
        (is_right && self.contains(run, class.run_pages() * PAGE)).then_some(run)
    }

    /// Where the run of a slot begins.
    fn run_of(&self, slot: u64) -> Option<u64> {
        let page = self.page_use(slot)?;
        (slot - slot % PAGE).checked_sub(page.index * PAGE)
    }

    /// The run of a slab in front of this one, `Some(None)` for the first; `None` where damage hides it.
    fn run_before(&self, run: u64, shard: ShardId, class: Class) -> Option<Option<u64>> {
        let (mut word, mut before) = (self.geometry.chain_at(shard, class), None);
        let mut lap = Lap::default();
        loop {
            match self.run_named_at(word, shard, class)? {
                named if named == run => return Some(before),
                named if lap.passes_again(named) => return None,
                named => (word, before) = (self.geometry.next_word_at(named), Some(named)),
            }
        }
    }

    fn free_slots(
        &self,
        run: u64,
        shard: ShardId,
        class: Class,
        buffers: &mut Buffers,
    ) -> Vec<u64> {
        let is_free = |at: &u64| self.is_free(Home { at: *at, class, shard }, buffers);
        slots_of(run, class).filter(is_free).collect()
    }

    fn is_free(&self, home: Home, buffers: &mut Buffers) -> bool {
        self.read_free(home, buffers).is_some()
    }

    /// The content of an unlinked slot. If the page does not say that such a slot is there, a
    /// record in it would never be found.
    fn read_free(&self, home: Home, buffers: &mut Buffers) -> Option<Reading> {
        self.home(home.at).filter(|it| *it == home)?;
        let reading = self.read_slot(home, buffers)?;
        self.is_unused(home, &reading, buffers).then_some(reading)
    }

    /// True where the directory does not lead to the slot, surely.
    fn is_unused(&self, home: Home, reading: &Reading, buffers: &Buffers) -> bool {
        let Some(content) = reading.content else { return true };
        match content.kind {
            Kind::Meta => {
                let meta = self.word(self.geometry.root_at(home.shard) + ROOT_META);
                meta.is_some_and(|meta| offset_of(meta) != Some(home.at))
            }
            Kind::Cell => {
                let key = reading.key(&content, buffers);
                let hash = self.positions().of_database(home.shard.database, key);
                let is_it = |slot| if slot == home.at { Match::Yes } else { Match::No };
                self.search(home.shard, hash, is_it) == Ok(None)
            }
        }
    }
}
