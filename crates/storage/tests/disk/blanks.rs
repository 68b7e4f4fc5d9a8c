//! A start makes the damaged sectors of a lost ring blank.

use std::path::PathBuf;
use std::time::Duration;

use storage::disk::{Config, File, LocalGuard, Waker, open_at};
use storage::{Completion, Store};
use types::{Database, Shard};

use crate::support::{BINDING, SECTOR, SimDisk, Withheld, World, cell, put, record, small_config};

const SECTORS: u64 = 512;

fn config() -> Config {
    Config { ring_bytes: SECTORS * SECTOR as u64, ..small_config() }
}

/// A store whose ring has lost these sectors.
fn lost(sectors: impl Iterator<Item = usize>) -> SimDisk {
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    world.disk.withhold(Withheld::Reads(File::Slots));
    for number in 0..190 {
        put(&mut world, number * 1_000, 200);
        put(&mut world, number * 1_000 + 1, 200);
        world.poll();
    }
    (0..20).for_each(|_| world.poll());
    let disk = world.disk.crashed(1);
    for sector in sectors {
        disk.rot(File::Ring, |bytes| bytes[sector * SECTOR..(sector + 1) * SECTOR].fill(0x55));
    }
    disk
}

fn is_rotten(ring: &[u8]) -> bool {
    ring.chunks(SECTOR).any(|sector| sector.iter().all(|&byte| byte == 0x55))
}

fn put_wait(world: &mut World, number: u64) {
    let ticket = world.stores[0].ticket();
    world.stores[0].put(&cell(number), &record(number, 200));
    world.stores[0].submit();
    let is_stored = |it: &Completion| matches!(it, Completion::Stored(of) if *of >= ticket);
    while !world.heard[0].iter().any(is_stored) {
        world.poll();
    }
}

#[test]
fn what_was_lost_once_is_not_lost_again_a_lap_later() {
    let mut world = World::open(lost(40..70), 1, &config());
    world.settle();
    for database in 0..types::limits::SPACES as u8 {
        for shard in 0..=255_u8 {
            if world.stores[0].is_forgotten(Database(database), Shard(shard)) {
                world.stores[0].set_forgotten(Database(database), Shard(shard), false);
            }
        }
        world.stores[0].submit();
        (0..10).for_each(|_| world.poll());
    }
    world.settle();
    for step in 0..SECTORS / 2 {
        let mut again = World::open(world.disk.copy(), 1, &config());
        again.poll();
        let is_loss = |it: &Completion| matches!(it, Completion::Forgotten { .. });
        assert!(!again.heard[0].iter().any(is_loss), "step {step}: nothing was damaged since");
        put_wait(&mut world, step % 7);
        world.settle();
    }
}

fn tails(disk: &SimDisk) -> [Vec<u8>; 2] {
    let slots = disk.bytes(File::Slots);
    [0, 4096].map(|copy| slots[copy + 64..copy + 72].to_vec())
}

/// True if a loss of power leaves a superblock with a new tail: then no sector is damaged.
fn is_superseded(disk: &SimDisk, before: &[Vec<u8>; 2], seed: u64) -> bool {
    let crashed = disk.crashed(seed);
    let is_moved = tails(&crashed).iter().zip(before).any(|(tail, before)| tail != before);
    assert!(!is_moved || !is_rotten(&crashed.bytes(File::Ring)), "seed {seed}");
    is_moved
}

#[test]
fn a_superblock_passes_only_what_has_been_made_blank() {
    let lost = lost(40..70);
    let before = tails(&lost);
    let (mut moved, mut flushes) = (0, 0);
    loop {
        let disk = lost.copy();
        disk.fail_after(flushes);
        let is_open = LocalGuard::open(disk.clone(), BINDING, 1, &config()).is_ok();
        moved += (0..8).filter(|&seed| is_superseded(&disk, &before, seed)).count();
        if is_open {
            break;
        }
        flushes += 1;
    }
    assert!(moved > 0 && flushes > 2, "the superblock has been written");
}

/// Of more pieces than a ring batch has, too.
#[test]
fn it_is_made_blank_in_real_files_too() {
    for pieces in [1, 7] {
        let disk = lost((0..pieces).flat_map(|piece| [40 + 4 * piece, 41 + 4 * piece]));
        let dir = std::env::temp_dir().join(format!("palimpsest-late-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
        let dir = Directory(dir);
        for file in File::ALL {
            std::fs::write(dir.0.join(file.name()), disk.bytes(file)).expect("it is writable");
        }
        let wakers = vec![Box::new(|| ()) as Waker];
        let (guard, mut stores) = open_at(&dir.0, BINDING, &config(), wakers).expect("a store");
        let committer = guard.committer();
        let mut heard = Vec::new();
        let mut number = 0;
        let read = || std::fs::read(dir.0.join(File::Ring.name())).expect("it can be read");
        let mut is_blank = false;
        let mut stored = None;
        while !stored.is_some_and(|ticket| {
            heard.iter().any(|it| matches!(it, Completion::Stored(of) if *of >= ticket))
        }) {
            is_blank = is_blank || !is_rotten(&read());
            if !stores[0].is_full() && stored.is_none() {
                number += 1;
                let ticket = stores[0].ticket();
                stored = is_blank.then_some(ticket);
                stores[0].put(&cell(number), &record(number, 200));
                stores[0].submit();
            }
            committer.notice();
            committer.advance();
            stores[0].poll(&mut heard);
            assert!(!heard.iter().any(|it| matches!(it, Completion::Failed(_))), "{heard:?}");
            std::thread::sleep(Duration::from_micros(200));
        }
        drop(stores);
        guard.stop();
    }
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
