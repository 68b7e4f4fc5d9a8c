//! A start that serves before it has read the ring.

use base::Prng;
use storage::disk::{Config, File};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard};

use crate::support::{SECTOR, SimDisk, Withheld, World, small_config};

const WORKERS: usize = 2;

fn config() -> Config {
    Config { ring_bytes: 1 << 20, spare_pages: 256, initial_level: 6, ..small_config() }
}

fn place(number: u32) -> Place {
    Place::Cell(Database(0), Key::new(format!("key-{number}").as_bytes()))
}

fn meta() -> Place {
    Place::Meta(Database(0), Shard(7))
}

fn put(world: &mut World, place: &Place, record: &[u8]) {
    let owner = world.owner(place);
    world.stores[owner].put(place, record);
    world.stores[owner].submit();
    await_commits(world);
}

fn await_commits(world: &mut World) {
    for _ in 0..10_000 {
        world.poll();
        if !world.keeper.is_committing() {
            return;
        }
    }
    panic!("what was submitted does not become durable");
}

/// What a load says within many polls.
fn load(world: &mut World, place: &Place) -> Load {
    let owner = world.owner(place);
    let load = world.stores[owner].load(place);
    if load != Load::Pending {
        return load;
    }
    for _ in 0..200 {
        let from = world.heard[owner].len();
        world.poll();
        for completion in &world.heard[owner][from..] {
            if let Completion::Loaded { place: of, load } = completion
                && of == place
            {
                return load.clone();
            }
        }
    }
    Load::Pending
}

fn found(text: &'static [u8]) -> Load {
    Load::Found(text.into())
}

/// Registers 0 to 99 are at home; 100 to 499 are in the ring, a meta before them, and 99 is newer there than at home.
fn filled() -> SimDisk {
    let mut world = World::create(SimDisk::new(1, 0), WORKERS, &config());
    for number in 0..100 {
        put(&mut world, &place(number), b"home");
    }
    world.settle();
    put(&mut world, &place(99), b"newer");
    put(&mut world, &meta(), b"meta");
    for number in 100..500 {
        put(&mut world, &place(number), &[b'r'; 100]);
    }
    world.disk.copy()
}

/// Opens the store with this withheld.
fn open_without(withheld: Withheld, disk: SimDisk) -> World {
    let world = World::open(disk, WORKERS, &config());
    world.disk.withhold(withheld);
    assert!(world.keeper.has_unread_ring(), "it was read before the store was open");
    world
}

/// Opens the store with its ring withheld.
fn open_unread(disk: SimDisk) -> World {
    open_without(Withheld::Both(File::Ring), disk)
}

fn release(world: &mut World) {
    world.disk.release();
    for _ in 0..100 {
        world.poll();
    }
    assert!(!world.keeper.has_unread_ring());
}

#[test]
fn what_the_ring_does_not_have_is_served_before_it_is_read() {
    let mut world = open_unread(filled());
    // The digest of the tail names some that went before it.
    for number in 0..60 {
        assert_eq!(load(&mut world, &place(number)), found(b"home"));
    }
    assert_eq!(load(&mut world, &place(1_000)), Load::Absent);
    assert_eq!(load(&mut world, &place(99)), Load::Pending, "the ring has something newer");
    assert_eq!(load(&mut world, &place(499)), Load::Found([b'r'; 100][..].into()), "the last one");
    put(&mut world, &place(1_000), b"new");
    assert_eq!(load(&mut world, &place(1_000)), found(b"new"));
    release(&mut world);
    assert_eq!(load(&mut world, &place(99)), found(b"newer"));
    assert_eq!(load(&mut world, &place(200)), Load::Found([b'r'; 100][..].into()));
    world.settle();
    assert_eq!(load(&mut world, &place(99)), found(b"newer"));
}

#[test]
fn a_record_of_the_ring_is_found_by_its_digest_before_the_ring_is_read() {
    let mut world = open_without(Withheld::Reads(File::Ring), filled());
    assert_eq!(load(&mut world, &place(99)), found(b"newer"));
    for number in [100, 163, 164, 300, 450] {
        assert_eq!(load(&mut world, &place(number)), Load::Found([b'r'; 100][..].into()));
    }
    put(&mut world, &place(99), b"newest");
    put(&mut world, &place(300), b"newest");
    assert_eq!(load(&mut world, &place(99)), found(b"newest"));
    assert!(world.keeper.has_unread_ring());
    let mut after = World::open(world.disk.copy(), WORKERS, &config());
    release(&mut world);
    world.settle();
    for world in [&mut world, &mut after] {
        for number in [99, 300] {
            assert_eq!(load(world, &place(number)), found(b"newest"));
        }
        assert_eq!(load(world, &place(450)), Load::Found([b'r'; 100][..].into()));
    }
}

#[test]
fn what_digests_only_seem_to_name_is_not_in_the_ring() {
    let top = |place: &Place| match place {
        Place::Cell(_, key) => key.hash() >> 40,
        Place::Meta(..) => unreachable!("places are cells"),
    };
    let tops: std::collections::BTreeSet<u64> = (100..400).map(|n| top(&place(n))).collect();
    let other = (10_000..).map(place).find(|place| tops.contains(&top(place))).expect("one");
    let mut world = open_without(Withheld::Reads(File::Ring), filled());
    assert_eq!(load(&mut world, &other), Load::Absent);
    put(&mut world, &other, b"new");
    assert_eq!(load(&mut world, &other), found(b"new"));
    release(&mut world);
    assert_eq!(load(&mut world, &other), found(b"new"));
    world.settle();
    assert_eq!(load(&mut world, &other), found(b"new"));
}

/// Submits a change of a place that is at home, of one that is nowhere, and of one that the ring has; and asks for them
/// and for others, none of which is answered.
fn ask_in_vain(world: &mut World) -> Vec<Place> {
    let places = vec![place(3), place(1_000), place(99), place(499), place(4), meta()];
    for place in &places[..3] {
        let owner = world.owner(place);
        world.stores[owner].put(place, b"changed");
        world.stores[owner].submit();
    }
    for place in &places {
        assert_eq!(load(world, place), Load::Pending, "{place:?}");
    }
    let is_remark = |heard: &Completion| matches!(heard, Completion::Remark(_));
    assert!(world.heard.iter().all(|heard| heard.iter().all(is_remark)), "{:?}", world.heard);
    places
}

/// The newest answers about these places.
fn answers(world: &World, places: &[Place]) -> Vec<Option<Load>> {
    let answer = |asked: &Place| {
        let mut heard = world.heard.iter().flatten().rev();
        heard.find_map(|heard| match heard {
            Completion::Loaded { place, load } if place == asked => Some(load.clone()),
            _ => None,
        })
    };
    places.iter().map(answer).collect()
}

/// What is to be answered then.
fn changed() -> Vec<Option<Load>> {
    let changed = found(b"changed");
    let last = Load::Found([b'r'; 100][..].into());
    let all = [changed.clone(), changed.clone(), changed, last, found(b"home"), found(b"meta")];
    all.into_iter().map(Some).collect()
}

#[test]
fn everything_waits_until_the_digests_have_come() {
    let mut world = open_without(Withheld::Start, filled());
    let places = ask_in_vain(&mut world);
    world.disk.withhold(Withheld::Both(File::Ring));
    (0..200).for_each(|_| world.poll());
    assert!(world.keeper.has_unread_ring() && world.keeper.is_committing());
    let owner = world.owner(&place(99));
    let behind: Vec<bool> = places.iter().map(|place| world.owner(place) == owner).collect();
    for ((answer, wanted), is_behind) in answers(&world, &places).iter().zip(changed()).zip(behind)
    {
        assert!(answer.is_none() && is_behind || *answer == wanted, "{answer:?}");
    }
    release(&mut world);
    await_commits(&mut world);
    assert_eq!(answers(&world, &places), changed());
    let mut world = World::open(world.disk.crashed(3), WORKERS, &config());
    for place in &places[..3] {
        assert_eq!(load(&mut world, place), found(b"changed"));
    }
}

#[test]
fn digests_that_come_after_the_ring_are_of_no_use_and_do_no_harm() {
    let mut world = open_without(Withheld::Start, filled());
    let places = ask_in_vain(&mut world);
    world.disk.withhold(Withheld::Both(File::Spare));
    (0..200).for_each(|_| world.poll());
    assert!(!world.keeper.has_unread_ring());
    await_commits(&mut world);
    assert_eq!(answers(&world, &places), changed());
    release(&mut world);
    for place in &places[..3] {
        assert_eq!(load(&mut world, place), found(b"changed"));
    }
}

#[test]
fn where_a_digest_is_missing_everything_waits_for_the_ring() {
    let shelf = (config().spare_pages + 1) * 4096;
    let whole = filled();
    let digests: Vec<usize> = (shelf as usize..whole.file_len(File::Spare))
        .step_by(4096)
        .filter(|&at| whole.bytes(File::Spare)[at + 8..at + 12] == *b"PDIG")
        .collect();
    assert!(digests.len() > 3, "{digests:?}");
    let mut is_one_needed = 0;
    for at in digests {
        let disk = whole.copy();
        disk.rot(File::Spare, |spare| spare[at + 60] ^= 1);
        let mut world = World::open(disk, WORKERS, &config());
        if !world.keeper.has_unread_ring() {
            continue; // it was the newest
        }
        world.disk.withhold(Withheld::Both(File::Ring));
        if load(&mut world, &place(1_000)) == Load::Absent {
            continue; // of an earlier lap
        }
        is_one_needed += 1;
        let places = ask_in_vain(&mut world);
        release(&mut world);
        await_commits(&mut world);
        assert_eq!(answers(&world, &places), changed());
    }
    assert!(is_one_needed > 1, "{is_one_needed}");
}

#[test]
fn a_ring_with_marks_is_read_first_as_long_as_it_has_them() {
    // Nothing goes home while no page is read.
    let open = |disk: SimDisk| {
        let world = World::open(disk, WORKERS, &config());
        world.disk.withhold(Withheld::Reads(File::Slots));
        world
    };
    let is_read_first = |world: &World| {
        let world = open(world.disk.copy());
        assert!(world.stores[0].is_forgotten(Database(0), Shard(8)));
        !world.keeper.has_unread_ring()
    };
    for restarts in [false, true] {
        let mut world = open(filled());
        world.stores[0].set_forgotten(Database(0), Shard(8), true);
        world.stores[0].submit();
        await_commits(&mut world);
        for number in 500..550 {
            put(&mut world, &place(number), &[b'm'; 100]);
            assert!(number % 10 > 0 || is_read_first(&world), "{number}");
            if restarts && number % 20 == 15 {
                world = open(world.disk.copy());
            }
        }
        world.disk.release();
        world.settle();
        for number in 550..1_050 {
            put(&mut world, &place(number), &[b'n'; 100]);
        }
        assert!(!is_read_first(&world), "nothing of it is left");
    }
}

#[test]
fn a_large_record_that_was_written_last_is_not_overlooked_for_an_older_small_one() {
    let mut world = World::open(filled(), WORKERS, &config());
    let large = vec![b'l'; 20_000];
    put(&mut world, &place(99), &large);
    let mut world = open_without(Withheld::Reads(File::Ring), world.disk.copy());
    assert_eq!(load(&mut world, &place(99)), Load::Pending);
    release(&mut world);
    assert_eq!(load(&mut world, &place(99)), Load::Found(large.into()));
}

#[test]
fn a_record_in_a_damaged_part_of_the_ring_waits_for_all_of_it() {
    let disk = filled();
    // Where the first stripes behind those that went home are; parity restores it.
    let at = 230 * SECTOR + 30;
    disk.rot(File::Ring, |ring| ring[at] ^= 1);
    let mut world = open_without(Withheld::Reads(File::Ring), disk);
    let waits = |number: &u32| load(&mut world, &place(*number)) == Load::Pending;
    let waiting: Vec<u32> = (100..450).step_by(10).filter(waits).collect();
    assert!((1..20).contains(&waiting.len()), "{waiting:?}");
    release(&mut world);
    for number in (100..450).step_by(10) {
        assert_eq!(load(&mut world, &place(number)), Load::Found([b'r'; 100][..].into()));
    }
}

#[test]
fn a_meta_and_what_was_written_last_may_be_overwritten_before_the_ring_is_read() {
    for crashes in [false, true] {
        let mut world = open_unread(filled());
        assert_eq!(load(&mut world, &meta()), found(b"meta"));
        put(&mut world, &meta(), b"later");
        put(&mut world, &place(499), b"later");
        assert_eq!(load(&mut world, &meta()), found(b"later"));
        if crashes {
            world = open_unread(world.disk.copy());
            assert_eq!(load(&mut world, &meta()), found(b"later"));
        }
        // Not durable yet when the ring comes.
        let owner = world.owner(&meta());
        world.stores[owner].put(&meta(), b"latest");
        world.disk.set_delay(50);
        world.stores[owner].submit();
        world.disk.set_delay(0);
        release(&mut world);
        world.settle();
        for place in [meta(), place(499)] {
            let wanted = if place == meta() { b"latest" } else { &b"later"[..] };
            assert_eq!(load(&mut world, &place), Load::Found(wanted.into()));
        }
        let mut world = World::open(world.disk.crashed(7), WORKERS, &config());
        assert_eq!(load(&mut world, &meta()), found(b"latest"));
        assert_eq!(load(&mut world, &place(99)), found(b"newer"));
    }
}

#[test]
fn changes_of_what_the_ring_may_have_wait_and_keep_their_order() {
    let mut world = open_unread(filled());
    let owner = world.owner(&place(99));
    let other = (2_000..).map(place).find(|place| world.owner(place) == owner).expect("one");
    let ticket = world.stores[owner].ticket();
    for (place, record) in
        [(place(99), &b"one"[..]), (other.clone(), b"two"), (place(99), b"three")]
    {
        world.stores[owner].put(&place, record);
        world.stores[owner].submit();
    }
    for _ in 0..100 {
        world.poll();
    }
    let is_stored = |completion: &Completion| matches!(completion, Completion::Stored(_));
    assert!(!world.heard[owner].iter().any(is_stored), "later changes do not overtake");
    assert_eq!(load(&mut world, &other), Load::Pending, "nor what asks for them");
    release(&mut world);
    await_commits(&mut world);
    let newest = world.heard[owner].iter().rev().find(|completion| is_stored(completion));
    assert_eq!(newest, Some(&Completion::Stored(types::Ticket(ticket.0 + 2))));
    assert_eq!(load(&mut world, &place(99)), found(b"three"));
    assert_eq!(load(&mut world, &other), found(b"two"));
}

#[test]
fn a_load_that_is_looked_for_does_not_wait_behind_a_later_change() {
    let mut world = open_without(Withheld::Both(File::Ring), filled());
    let asked = place(300);
    let owner = world.owner(&asked);
    assert_eq!(world.stores[owner].load(&asked), Load::Pending);
    world.poll();
    let later = (150..).map(place).find(|place| world.owner(place) == owner).expect("one of them");
    world.stores[owner].put(&later, b"later");
    world.stores[owner].submit();
    world.poll();
    world.disk.withhold(Withheld::Reads(File::Ring));
    (0..100).for_each(|_| world.poll());
    let is_it =
        |heard: &Completion| matches!(heard, Completion::Loaded { place, .. } if *place == asked);
    assert!(world.heard[owner].iter().any(is_it));
    assert!(world.keeper.has_unread_ring() && world.keeper.is_committing(), "the change waits");
}

#[test]
fn damage_that_is_found_late_forgets_all_but_what_came_after_it() {
    let mut prng = Prng::new(4);
    for settles in [false, true] {
        let disk = filled();
        // Sectors of one stripe somewhere in the middle, too many for its parity.
        let at = 200 * SECTOR;
        disk.rot(File::Ring, |ring| ring[at..at + 4 * SECTOR].fill(0xee));
        let mut world = open_unread(disk);
        assert_eq!(load(&mut world, &place(3)), found(b"home"));
        put(&mut world, &place(1_000), b"new");
        release(&mut world);
        let forgotten = |worker: &Vec<Completion>| {
            let is_it = |it: &&Completion| matches!(it, Completion::Forgotten { .. });
            worker.iter().filter(is_it).count()
        };
        assert_eq!(world.heard.iter().map(forgotten).sum::<usize>(), 16 * 256, "all shards");
        if settles {
            world.settle();
        }
        await_commits(&mut world);
        for _ in 0..2 {
            assert_eq!(load(&mut world, &place(1_000)), found(b"new"), "it came behind the damage");
            assert_eq!(load(&mut world, &place(499)), Load::Found([b'r'; 100][..].into()));
            for number in [3, 99, 2_000] {
                assert_eq!(load(&mut world, &place(number)), Load::Lost);
            }
            world = World::open(world.disk.crashed(prng.next_u64()), WORKERS, &config());
        }
    }
}

#[test]
fn a_store_may_stop_or_fail_before_its_ring_is_read() {
    let mut world = open_unread(filled());
    world.disk.fail_after(0);
    let owner = world.owner(&place(1_000));
    world.stores[owner].put(&place(1_000), b"new");
    world.stores[owner].submit();
    world.poll();
    assert!(world.heard[owner].iter().any(|it| matches!(it, Completion::Failed(_))));
    world.disk.release();
    world.poll();
    assert_eq!(load(&mut world, &place(99)), Load::Pending, "a store that failed says nothing");
}

#[cfg(feature = "mutations")]
mod mistakes {
    use storage::mutation::{Mutation, set};

    use super::*;

    #[test]
    fn a_digest_that_does_not_name_all_shows() {
        set(Some(Mutation::DigestShort));
        let disk = filled();
        set(None);
        let mut world = open_unread(disk);
        world.disk.release();
        (0..100).for_each(|_| world.poll());
        let is_it = |it: &Completion| match it {
            Completion::Failed(reason) => reason.contains("digests"),
            _ => false,
        };
        assert!(world.heard[0].iter().any(is_it));
    }
}
