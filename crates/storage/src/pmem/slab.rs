//! Free slots: found again after a restart, never written down.
//!
//! A slot is in use where the directory leads to it, and only there; so no list of free slots has to survive a
//! crash, and none can be wrong. A worker keeps the free slots that it knows of, per shard and class, and
//! learns of others by walking the shard's slabs, a few at a time, when it needs one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use base::checksum::hash;

use super::directory::Match;
use super::layout::{Class, GRANULE, PAGE, PageKind, ROOT_META, ShardId};
use super::memory::Memory;
use super::shared::{Shared, offset_of};
use super::slot::{Buffers, Home, Kind, Reading};
use super::word::NONE;

// Free slots that are remembered per shard and class. Others are found again by the next walk.
const FREE_MAX: usize = 1024;
// Runs looked at before a new one is taken instead.
const WALK_RUNS_MAX: usize = 4;

/// The free slots that one worker knows of.
#[derive(Debug, Default)]
pub struct Slabs {
    classes: BTreeMap<(ShardId, Class), Free>,
    // Slots given out since the last settlement: the directory does not lead to them yet.
    given: BTreeSet<u64>,
}

#[derive(Debug)]
struct Free {
    slots: Vec<u64>,
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
        Free { slots: Vec::new(), walk: Walk::FromStart, has_more: false }
    }
}

impl Free {
    fn remember(&mut self, slot: u64) {
        if self.slots.len() < FREE_MAX {
            self.slots.push(slot);
        } else {
            self.has_more = true;
        }
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
        let free = self.classes.entry((shard, class)).or_default();
        loop {
            while let Some(at) = free.slots.pop() {
                let home = Home { at, class, shard };
                // A damaged slot is left alone until the register that it belongs to is looked up.
                let Some(reading) = shared.read_slot(home, buffers) else { continue };
                if shared.is_unused(home, &reading, buffers) && self.given.insert(at) {
                    let version = (1 - reading.newest, reading.sequence.wrapping_add(1));
                    return Ok((home, version));
                }
            }
            free.walk(shared, shard, class, &self.given, buffers);
            if free.slots.is_empty() {
                free.add_run(shared, shard, class, buffers)?;
            }
        }
    }

    /// Takes back a slot that the directory durably no longer leads to.
    pub fn give_back(&mut self, home: Home) {
        self.classes.entry((home.shard, home.class)).or_default().remember(home.at);
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
                if !given.contains(&at) {
                    self.remember(at);
                }
            }
            if !self.slots.is_empty() {
                return;
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
        // A damaged head or link costs the free slots behind it, nothing else.
        let next = shared.run_named_at(chain, shard, class).map_or(NONE, |next| next / GRANULE);
        shared.put_word(shared.geometry.next_word_at(run), next);
        shared.memory.fence();
        shared.put_word(chain, run / GRANULE);
        // Rising addresses are used first.
        let mut slots: Vec<u64> = slots_of(run, class).collect();
        slots.reverse();
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
        let reading = self.read_slot(home, buffers);
        reading.is_some_and(|reading| self.is_unused(home, &reading, buffers))
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
                let hash = hash(reading.key(&content, buffers));
                let is_it = |slot| if slot == home.at { Match::Yes } else { Match::No };
                self.search(home.shard, hash, is_it) == Ok(None)
            }
        }
    }
}
