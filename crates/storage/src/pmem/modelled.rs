//! Memory with a modelled cache: the outcome of a crash is drawn.
//!
//! A store stays in the cache until its line is written back and a fence follows. But the cache may
//! write any line out by itself at any time. So after a crash each line holds its state of the last
//! fence or any later one, independently of other lines. For crash tests and the simulator, which
//! must show a missing flush.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use base::Prng;

use super::memory::{Memory, store_headed};
use super::persist::LINE;

const LINE_WORDS: usize = LINE as usize / 8;

type Line = [u64; LINE_WORDS];

/// A handle; clones share the memory.
#[derive(Clone, Debug)]
pub struct Modelled(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    // The program's view.
    now: Vec<u64>,
    persistent: Persistent,
    // Lines written back since the last fence, with the state that was.
    written_back: BTreeMap<usize, usize>,
    len_max: u64,
    events: u64,
    fences: u64,
    capture_at: Option<Moment>,
    captured: Option<Persistent>,
}

/// When a crash happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Just before this store, write-back or fence, counted from 0.
    Event(u64),
    /// Just before this fence, counted from 0: when the most is uncertain.
    Fence(u64),
}

/// The certain state, and the possible ones.
#[derive(Clone, Debug)]
pub struct Persistent {
    words: Vec<u64>,
    // States that a line may be in instead, oldest first; the first is the certain one.
    lines: BTreeMap<usize, Vec<Line>>,
}

impl Persistent {
    /// The next process's view if this one ends: every store is there, and uncertain lines still
    /// are.
    #[must_use]
    pub fn killed(&self) -> Modelled {
        let mut words = self.words.clone();
        for (line, states) in &self.lines {
            let newest = states.last().expect("a line that is uncertain has states");
            words[line * LINE_WORDS..][..LINE_WORDS].copy_from_slice(newest);
        }
        let killed = Modelled::from_words(words);
        killed.state().persistent = self.clone();
        killed
    }

    /// How many different states a crash may leave.
    #[must_use]
    pub fn state_count(&self) -> u64 {
        self.lines.values().map(|states| states.len() as u64).product()
    }

    /// All of them: each line in each of its states, independently of the others.
    pub fn states(&self) -> impl Iterator<Item = Modelled> {
        (0..self.state_count()).map(|number| {
            let mut rest = number;
            let mut words = self.words.clone();
            for (line, states) in &self.lines {
                let choices = states.len() as u64;
                words[line * LINE_WORDS..][..LINE_WORDS]
                    .copy_from_slice(&states[(rest % choices) as usize]);
                rest /= choices;
            }
            Modelled::from_words(words)
        })
    }

    /// Draws the outcome of a crash: everything as old as possible, as new as possible, or any
    /// mixture.
    #[must_use]
    pub fn crash(&self, prng: &mut Prng) -> Modelled {
        let mut words = self.words.clone();
        let mode = prng.below(5);
        for (line, states) in &self.lines {
            let newest = states.len() as u64 - 1;
            let drawn = match mode {
                0 => 0,
                1 => newest,
                2 => newest * prng.below(2),
                _ => prng.between(0, newest),
            } as usize;
            words[line * LINE_WORDS..][..LINE_WORDS].copy_from_slice(&states[drawn]);
        }
        Modelled::from_words(words)
    }
}

impl Modelled {
    /// Empty memory that can grow to `len_max` bytes.
    #[must_use]
    pub fn new(len_max: u64) -> Modelled {
        let modelled = Modelled::from_words(Vec::new());
        modelled.state().len_max = len_max;
        modelled
    }

    fn from_words(words: Vec<u64>) -> Modelled {
        let persistent = Persistent { words: words.clone(), lines: BTreeMap::new() };
        Modelled(Arc::new(Mutex::new(State {
            now: words,
            persistent,
            written_back: BTreeMap::new(),
            len_max: u64::MAX,
            events: 0,
            fences: 0,
            capture_at: None,
            captured: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics while it holds the state")
    }

    /// A copy as a stopped process leaves it: every store is there.
    #[must_use]
    pub fn stopped(&self) -> Modelled {
        Modelled::from_words(self.state().now.clone())
    }

    /// A possible outcome of a crash right now.
    #[must_use]
    pub fn persistent(&self) -> Persistent {
        self.state().persistent.clone()
    }

    /// Stores, write-backs and fences so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.state().events
    }

    /// Fences so far.
    #[must_use]
    pub fn fences(&self) -> u64 {
        self.state().fences
    }

    /// Remembers the outcome of a crash at a moment to come; see `captured`.
    pub fn capture_at(&self, moment: Moment) {
        self.state().capture_at = Some(moment);
    }

    /// The outcome of a crash at the chosen moment; none if it has not come.
    #[must_use]
    pub fn captured(&self) -> Option<Persistent> {
        self.state().captured.clone()
    }

    /// Damages a byte, in the program's view and in the persistent one.
    pub fn flip(&self, at: u64, mask: u8) {
        self.damage(at, |byte| byte ^ mask);
    }

    /// Replaces a byte, in the program's view and in the persistent one.
    pub fn damage(&self, at: u64, change: impl Fn(u8) -> u8) {
        let mut state = self.state();
        let (word, byte) = ((at / 8) as usize, (at % 8) as usize);
        let mut bytes = state.now[word].to_le_bytes();
        bytes[byte] = change(bytes[byte]);
        state.now[word] = u64::from_le_bytes(bytes);
        state.persistent.words[word] = state.now[word];
        state.persistent.lines.remove(&(word / LINE_WORDS));
    }

    /// The byte at `at`.
    #[must_use]
    pub fn byte(&self, at: u64) -> u8 {
        self.state().now[(at / 8) as usize].to_le_bytes()[(at % 8) as usize]
    }
}

impl State {
    fn count(&mut self) {
        if self.capture_at == Some(Moment::Event(self.events)) {
            self.captured = Some(self.persistent.clone());
        }
        self.events += 1;
    }

    fn line(&self, line: usize) -> Line {
        let words = &self.now[line * LINE_WORDS..][..LINE_WORDS];
        words.try_into().expect("memory is made of whole lines")
    }
}

impl Memory for Modelled {
    fn len(&self) -> u64 {
        8 * self.state().now.len() as u64
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if len > state.len_max {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the modelled memory is full"));
        }
        let words = (len / 8) as usize;
        if words > state.now.len() {
            state.now.resize(words, 0);
            state.persistent.words.resize(words, 0);
            if let Some(captured) = &mut state.captured {
                captured.words.resize(words, 0);
            }
        }
        Ok(())
    }

    fn load(&self, at: u64) -> u64 {
        assert!(at.is_multiple_of(8), "{at} is not the offset of a word");
        self.state().now[(at / 8) as usize]
    }

    fn store(&self, at: u64, word: u64) {
        assert!(at.is_multiple_of(8), "{at} is not the offset of a word");
        let mut state = self.state();
        state.count();
        let index = (at / 8) as usize;
        let line = index / LINE_WORDS;
        let before = state.line(line);
        state.now[index] = word;
        let after = state.line(line);
        let states = state.persistent.lines.entry(line).or_insert_with(|| vec![before]);
        if states.last() != Some(&after) {
            states.push(after);
        }
    }

    fn write_back(&self, at: u64, len: u64) {
        let mut state = self.state();
        state.count();
        let lines = (at / LINE) as usize..=((at + len.max(1) - 1) / LINE) as usize;
        let dirty: BTreeSet<usize> =
            state.persistent.lines.range(lines).map(|(&line, _)| line).collect();
        for line in dirty {
            let newest = state.persistent.lines[&line].len() - 1;
            state.written_back.insert(line, newest);
        }
    }

    /// Past the cache: the last line ends in zeros.
    fn put_headed(&self, at: u64, head: [u64; 2], body: &[u8]) {
        store_headed(self, at, head, body);
        let end = at + 16 + body.len() as u64;
        let rest = end.next_multiple_of(8)..end.next_multiple_of(LINE);
        rest.step_by(8).for_each(|at| self.store(at, 0));
        self.write_back(at, end - at);
    }

    fn settle(&self) -> io::Result<()> {
        let mut state = self.state();
        state.persistent = Persistent { words: state.now.clone(), lines: BTreeMap::new() };
        state.written_back.clear();
        Ok(())
    }

    fn fence(&self) {
        let mut state = self.state();
        if state.capture_at == Some(Moment::Fence(state.fences)) {
            state.captured = Some(state.persistent.clone());
        }
        state.count();
        state.fences += 1;
        for (line, certain) in std::mem::take(&mut state.written_back) {
            let Some(mut states) = state.persistent.lines.remove(&line) else { continue };
            let words = line * LINE_WORDS..(line + 1) * LINE_WORDS;
            state.persistent.words[words].copy_from_slice(&states[certain]);
            states.drain(..certain);
            if states.len() > 1 {
                state.persistent.lines.insert(line, states);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_crashes(memory: &Modelled) -> BTreeSet<(u64, u64)> {
        let mut prng = Prng::new(1);
        (0..100)
            .map(|_| {
                let crashed = memory.persistent().crash(&mut prng);
                (crashed.load(0), crashed.load(64))
            })
            .collect()
    }

    #[test]
    fn only_what_was_fenced_is_certain_and_lines_are_independent() {
        let memory = Modelled::new(4096);
        memory.grow(4096).expect("there is room");
        memory.store(0, 1);
        memory.store(64, 1);
        assert_eq!(after_crashes(&memory), BTreeSet::from([(0, 0), (0, 1), (1, 0), (1, 1)]));
        memory.write_back(0, 8);
        memory.store(0, 2);
        memory.fence();
        assert_eq!(after_crashes(&memory), BTreeSet::from([(1, 0), (1, 1), (2, 0), (2, 1)]));
        let persistent = memory.persistent();
        let all: Vec<(u64, u64)> = persistent.states().map(|m| (m.load(0), m.load(64))).collect();
        assert_eq!((all.len(), persistent.state_count()), (4, 4));
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), after_crashes(&memory));
        memory.write_back(0, 128);
        memory.fence();
        assert_eq!(after_crashes(&memory), BTreeSet::from([(2, 1)]));
    }
}
