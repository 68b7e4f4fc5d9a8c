//! Drivers, helpers and peeks at work on one store.

use std::path::PathBuf;

use types::{Database, Key};

use crate::disk::Config;
use crate::disk::shell::meeting::{Held, Role};
use crate::disk::shell::run::Run;
use crate::disk::shell::uring::Uring;
use crate::disk::shell::{Committer, DiskStore, StoreGuard, create_at, open_at};
use crate::{Completion, Load, Place, Store};

fn opened(name: &str) -> (PathBuf, StoreGuard, Committer, DiskStore) {
    let dir = std::env::temp_dir().join(format!("palimpsest-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
    create_at(&dir, 1, &Config::default()).expect("an empty directory takes a store");
    let (guard, mut stores) =
        open_at(&dir, 1, &Config::default(), vec![Box::new(|| ())]).expect("it was created");
    let (committer, store) = (guard.committer(), stores.pop().expect("one for each waker"));
    (dir, guard, committer, store)
}

#[test]
fn a_system_that_takes_no_writes_any_more_ends_the_store() {
    let (dir, guard, committer, mut store) = opened("broken");
    let break_down = |run: &Run| run.uring.as_ref().map(Uring::break_down);
    // Elsewhere helpers write the ring batches.
    if break_down(&guard.shared.run.hold().expect("no thread has panicked")).is_some() {
        store.put(&Place::Cell(Database(0), Key::new(b"key")), b"record");
        store.submit();
        // A helper may have the engine just then.
        let mut completions = Vec::new();
        while completions.is_empty() {
            committer.advance();
            store.poll(&mut completions);
        }
        let is_told = matches!(&completions[..], [Completion::Failed(why)] if why.contains("no writes any more"));
        assert!(is_told, "{completions:?}");
    }
    guard.stop();
    std::fs::remove_dir_all(&dir).expect("it is there");
}

#[test]
fn threads_that_may_block_leave_stripes_to_those_that_wait_for_them() {
    let (dir, guard, committer, mut store) = opened("run");
    for number in 0..50_u8 {
        let mut change = |key: [u8; 2]| {
            store.put(&Place::Cell(Database(0), Key::new(&key)), b"record");
            store.submit();
        };
        let mut run = guard.shared.run.hold().expect("no thread has panicked");
        change([number, 0]);
        assert!(committer.would_commit() || run.uring.is_none());
        run.turn(&guard.shared.desk, Role::Helper);
        assert!(!run.uring.as_ref().is_some_and(Uring::has_stripe));
        if run.uring.is_none() {
            continue; // then helpers write the ring batches
        }
        assert!(run.stripe.is_some(), "it is left to a driver");
        change([number, 1]);
        assert!(!committer.would_commit(), "what comes now waits for this one");
        drop(run);
        // A helper may have the engine just then; it calls the driver again.
        let mut run = loop {
            committer.advance();
            let run = guard.shared.run.hold().expect("no thread has panicked");
            if run.stripe.is_none() {
                break run;
            }
        };
        while !run.is_settled() {
            run.wait_for_commit();
            run.turn(&guard.shared.desk, Role::Driver);
        }
        assert!(!committer.would_commit(), "there is nothing to commit");
    }
    guard.stop();
    std::fs::remove_dir_all(&dir).expect("it is there");
}

/// Moves a store on until no submitted change waits for the device.
fn settle<'a>(guard: &'a StoreGuard, committer: &Committer) -> Held<'a, Run> {
    loop {
        committer.notice();
        committer.advance();
        let run = guard.shared.run.hold().expect("no thread has panicked");
        if run.is_settled() {
            return run;
        }
    }
}

/// A store with one change, which it has told of.
fn settled(name: &str) -> (PathBuf, StoreGuard, Committer, DiskStore) {
    let (dir, guard, committer, mut store) = opened(name);
    drop(put(&guard, &mut store, 0..1, Role::Driver));
    drop(settle(&guard, &committer));
    store.poll(&mut Vec::new());
    (dir, guard, committer, store)
}

fn loaded(committer: &Committer, store: &mut DiskStore) -> Load {
    let mut completions = Vec::new();
    loop {
        store.poll(&mut completions);
        committer.advance();
        for completion in completions.drain(..) {
            if let Completion::Loaded { load, .. } = completion {
                return load;
            }
        }
    }
}

#[test]
fn what_is_in_memory_is_found_at_once() {
    let (dir, guard, committer, mut store) = settled("look");
    let place = |key: u8| Place::Cell(Database(0), Key::new(&[key]));
    let found = Load::Found(b"record"[..].into());
    let run = guard.shared.run.hold().expect("no thread has panicked");
    assert_eq!(store.load(&place(0)), Load::Pending, "somebody else has the engine");
    drop(run);
    assert_eq!(loaded(&committer, &mut store), found);
    // Its bucket may have to be read.
    if store.load(&place(1)) == Load::Pending {
        assert_eq!(loaded(&committer, &mut store), Load::Absent);
    }
    let mut look = |wanted: &Load, key| {
        // A helper may have the engine just then.
        while store.load(&place(key)) != *wanted {
            assert_eq!(loaded(&committer, &mut store), *wanted);
        }
    };
    look(&found, 0);
    look(&Load::Absent, 1);
    guard.stop();
    std::fs::remove_dir_all(&dir).expect("it is there");
}

#[test]
fn a_record_is_not_looked_for_before_what_was_submitted_is_taken_in() {
    let (dir, guard, committer, mut store) = settled("look-after");
    let place = Place::Cell(Database(0), Key::new(&[0]));
    for number in 0..50_u8 {
        store.put(&place, &[number]);
        store.submit();
        let wanted = Load::Found(vec![number].into());
        let load = store.load(&place);
        assert!([wanted.clone(), Load::Pending].contains(&load), "{number}: {load:?}");
        if load == Load::Pending {
            assert_eq!(loaded(&committer, &mut store), wanted);
        }
    }
    drop(settle(&guard, &committer));
    store.poll(&mut Vec::new());
    drop(put(&guard, &mut store, 0..1, Role::Driver));
    drop(settle(&guard, &committer));
    assert_eq!(store.load(&place), Load::Pending, "that it is stored is to be heard first");
    guard.stop();
    std::fs::remove_dir_all(&dir).expect("it is there");
}

/// Changes these, and moves the store on before anybody else does.
fn put<'a>(
    guard: &'a StoreGuard,
    store: &mut DiskStore,
    keys: std::ops::Range<u8>,
    role: Role,
) -> Held<'a, Run> {
    let mut run = guard.shared.run.hold().expect("no thread has panicked");
    for key in keys {
        store.put(&Place::Cell(Database(0), Key::new(&[key])), b"record");
    }
    store.submit();
    run.turn(&guard.shared.desk, role);
    run
}
