//! A store whose file system has no room, and one whose helper panics.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;

use types::{Database, Key};

use crate::disk::Config;
use crate::disk::shell::{Committer, DiskStore, StoreGuard, create_at, open_at};
use crate::{Completion, Load, Place, Room, Store};

const BINDING: u64 = 1;
const RECORDS: u32 = 2_000;

struct Opened {
    store: DiskStore,
    committer: Committer,
    guard: StoreGuard,
}

impl Opened {
    fn new(dir: &Path) -> Opened {
        let (guard, mut stores) = open_at(dir, BINDING, &Config::default(), vec![Box::new(|| ())])
            .expect("it was created");
        let store = stores.pop().expect("one for each waker");
        Opened { store, committer: guard.committer(), guard }
    }

    fn medium_lacks_room(&self, lacks: bool) {
        self.guard.shared.desk.medium.lacks_room.store(lacks, SeqCst);
    }

    /// Moves on until something has completed.
    fn completed(&mut self) -> Vec<Completion> {
        let mut completions = Vec::new();
        while completions.is_empty() {
            self.committer.notice();
            self.committer.advance();
            self.store.poll(&mut completions);
        }
        completions
    }

    fn put(&mut self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.store.put(&place(number), &[number as u8; 100]);
        }
        let ticket = self.store.ticket();
        self.store.submit();
        while !self.completed().contains(&Completion::Stored(ticket)) {}
    }

    fn has_all(&mut self) {
        for number in 0..RECORDS {
            let mut load = self.store.load(&place(number));
            while load == Load::Pending {
                for completion in self.completed() {
                    if let Completion::Loaded { load: found, .. } = completion {
                        load = found;
                    }
                }
            }
            assert!(matches!(load, Load::Found(record) if record[..] == [number as u8; 100]));
        }
    }

    fn wait_until(&self, holds: impl Fn(&Opened) -> bool) {
        while !holds(self) {
            self.committer.advance();
            std::thread::yield_now();
        }
    }
}

fn is_at_home(guard: &StoreGuard) -> bool {
    let run = guard.shared.run.hold().expect("no thread has panicked");
    !run.engine.is_dirty() && run.is_settled()
}

fn place(number: u32) -> Place {
    Place::Cell(Database(0), Key::new(&number.to_le_bytes()))
}

fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("palimpsest-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
    create_at(&dir, BINDING, &Config::default()).expect("an empty directory takes a store");
    dir
}

#[test]
fn a_store_without_room_serves_and_goes_on_when_there_is_some() {
    let dir = directory("roomless");
    let mut opened = Opened::new(&dir);
    opened.medium_lacks_room(true);
    opened.put(0..RECORDS / 2);
    opened.wait_until(|it| it.store.room() == Room::Missing);
    opened.put(RECORDS / 2..RECORDS);
    opened.has_all();
    assert_eq!(opened.store.room(), Room::Missing);
    opened.medium_lacks_room(false);
    opened.wait_until(|it| it.store.room() != Room::Missing && is_at_home(&it.guard));
    opened.has_all();
    opened.guard.stop();
    std::fs::remove_dir_all(&dir).expect("it is there");
}

#[test]
fn a_helper_that_panics_ends_the_store_and_no_stop_waits_for_it() {
    let dir = directory("panicking");
    let mut opened = Opened::new(&dir);
    opened.medium_lacks_room(true);
    opened.put(0..RECORDS);
    opened.wait_until(|it| it.store.room() == Room::Missing);
    opened.guard.shared.desk.medium.panics.store(true, SeqCst);
    opened.medium_lacks_room(false);
    let completed = opened.completed();
    let has_failed =
        |it: &Completion| matches!(it, Completion::Failed(why) if why.contains("panicked"));
    assert!(completed.iter().any(has_failed), "{completed:?}");
    opened.guard.stop();
    drop((opened.store, opened.committer));
    let mut opened = Opened::new(&dir);
    opened.has_all();
    opened.guard.stop();
    std::fs::remove_dir_all(&dir).expect("it is there");
}

#[test]
fn a_store_without_room_ends_when_it_is_to_and_loses_nothing() {
    let dir = directory("ends-roomless");
    let mut opened = Opened::new(&dir);
    opened.medium_lacks_room(true);
    opened.put(0..RECORDS);
    opened.wait_until(|it| it.store.room() == Room::Missing);
    opened.guard.stop();
    drop((opened.store, opened.committer));
    let mut opened = Opened::new(&dir);
    opened.has_all();
    opened.guard.stop();
    std::fs::remove_dir_all(&dir).expect("it is there");
}
