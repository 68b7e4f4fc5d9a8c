//! The findings of a start in a ring, sector by sector.

use super::*;
use crate::disk::entry::{Entry, Kind, Mark, entry_checksum};
use crate::disk::stripe::{StripeWriter, blank, sectors_for};

const RING: u64 = 64;
const STRIPE_MAX: u64 = 16;

struct World {
    sectors: Vec<Vec<u8>>,
    head: u64,
}

impl World {
    fn new() -> World {
        World { sectors: (0..RING).map(|p| blank(1, p).to_vec()).collect(), head: RING }
    }

    /// Appends a ring batch of five sectors; returns its position.
    fn append(&mut self, fill: u8) -> u64 {
        self.append_entries(fill, 1)
    }

    fn append_entries(&mut self, fill: u8, binding: u64) -> u64 {
        let mut writer = StripeWriter::new();
        for number in 0..2 {
            let (kind, body) = (Kind::CELL, [fill; 926]);
            let checksum = entry_checksum(binding, number, 0, kind, &body);
            let mut raw = Vec::new();
            Entry { hash: number, checksum, kind, database: 0, key_len: 1, body: &body }
                .append_to(&mut raw);
            writer.push(&raw);
        }
        self.write(writer)
    }

    fn write(&mut self, writer: StripeWriter) -> u64 {
        let position = self.head;
        for sector in writer.finish(1, position).chunks(SECTOR) {
            self.sectors[(self.head % RING) as usize] = sector.to_vec();
            self.head += 1;
        }
        position
    }

    fn rot(&mut self, position: u64) {
        self.sectors[(position % RING) as usize][100] ^= 0x40;
    }

    fn forget(&mut self, position: u64) {
        self.sectors[(position % RING) as usize] = blank(1, position - RING).to_vec();
    }

    fn walk(&self, tail: u64) -> Recovered {
        self.walk_without(tail, None)
    }

    /// The same where one sector cannot be read.
    fn walk_without(&self, tail: u64, unreadable: Option<u64>) -> Recovered {
        self.try_walk(tail, unreadable).expect("all that is needed can be read")
    }

    fn try_walk(&self, tail: u64, unreadable: Option<u64>) -> Result<Recovered, String> {
        let mut read = |first: u64, count: u64| {
            let bad = unreadable.map(|position| position % RING);
            if bad.is_some_and(|bad| (first..first + count).contains(&bad)) {
                return Err("input/output error".to_owned());
            }
            Ok(Bytes::from(self.sectors[first as usize..(first + count) as usize].concat()))
        };
        RingImage::new(1, RING, STRIPE_MAX, CHUNK, &mut read).walk(tail, tail + RING)
    }
}

fn positions(recovered: &Recovered) -> Vec<u64> {
    recovered.stripes.iter().map(|found| found.position).collect()
}

#[test]
fn scattered_damage_costs_one_scan() {
    const LONG: u64 = 1_500;
    let mut sectors: Vec<Vec<u8>> = (0..LONG).map(|at| blank(1, at).to_vec()).collect();
    let (mut head, mut whole) = (LONG, Vec::new());
    for number in 0.. {
        let mut writer = StripeWriter::new();
        let (kind, body) = (Kind::CELL, [7; 926]);
        let checksum = entry_checksum(1, number, 0, kind, &body);
        let mut raw = Vec::new();
        Entry { hash: number, checksum, kind, database: 0, key_len: 1, body: &body }
            .append_to(&mut raw);
        writer.push(&raw);
        let bytes = writer.finish(1, head);
        if head + (bytes.len() / SECTOR) as u64 > 2 * LONG {
            break;
        }
        let is_damaged = number % 2 == 1;
        for sector in bytes.chunks(SECTOR) {
            let place = &mut sectors[(head % LONG) as usize];
            *place = sector.to_vec();
            place[100] ^= if is_damaged { 0x40 } else { 0 };
            head += 1;
        }
        whole.push((head, is_damaged));
    }
    let mut read = |first: u64, count: u64| {
        Ok(Bytes::from(sectors[first as usize..(first + count) as usize].concat()))
    };
    let mut image = RingImage::new(1, LONG, STRIPE_MAX, CHUNK, &mut read);
    let recovered = image.walk(LONG, 2 * LONG).expect("it can be read");
    assert!(recovered.damaged && whole.len() > 400);
    assert_eq!(recovered.head, head);
    let looks = image.looks;
    assert!(looks < 40 * LONG, "{looks} looks at {LONG} sectors");
}

#[test]
fn whole_stripes_are_found_across_the_wrap() {
    let mut world = World::new();
    let all: Vec<u64> = (0..20).map(|i| world.append(i)).collect();
    let recovered = world.walk(all[10]);
    assert_eq!(positions(&recovered), all[10..]);
    assert_eq!((recovered.head, recovered.damaged), (world.head, false));
}

#[test]
fn an_entry_that_does_not_verify_is_damage_whatever_its_sectors_say() {
    let mut world = World::new();
    world.append(0);
    world.append_entries(1, 2);
    let rest: Vec<u64> = (2..4).map(|i| world.append(i)).collect();
    let recovered = world.walk(RING);
    assert!(recovered.damaged);
    assert_eq!((positions(&recovered), recovered.head), (rest, world.head));
}

#[test]
fn what_fills_the_ring_behind_damage_gives_way_to_the_word_that_it_is_damaged() {
    let mut world = World::new();
    let all: Vec<u64> = (0..12).map(|i| world.append(i)).collect();
    world.rot(all[0]);
    world.rot(all[0] + 1);
    let room = all[1] + RING - world.head;
    for (sectors, kept) in [(room, 11), (room + 1, 0)] {
        let mut recovered = world.walk(all[0]);
        assert!(recovered.damaged);
        recovered.make_room_for(sectors, RING);
        assert_eq!((positions(&recovered).len(), recovered.head), (kept, world.head));
    }
}

#[test]
fn any_one_rotten_sector_costs_nothing_and_alarms_nobody() {
    for bad in RING..RING + 20 {
        let mut world = World::new();
        let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
        world.rot(bad);
        let recovered = world.walk(RING);
        assert_eq!(positions(&recovered), all);
        assert!(!recovered.damaged);
    }
}

#[test]
fn a_stripe_that_lacks_a_sector_ends_the_ring() {
    for missing in 0..5 {
        let mut world = World::new();
        let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
        world.forget(all[2] + missing);
        let recovered = world.walk(RING);
        assert_eq!(positions(&recovered), all[..2]);
        assert!(!recovered.damaged);
        assert_eq!(recovered.head, all[2]);
        assert_eq!(recovered.unfinished.len(), 4);
    }
}

#[test]
fn what_cannot_be_read_of_an_unfinished_stripe_is_not_left_to_be_read_another_time() {
    for (missing, unreadable) in [(0, 3), (2, 1), (4, 0)] {
        let mut world = World::new();
        let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
        world.forget(all[2] + missing);
        let recovered = world.walk_without(RING, Some(all[2] + unreadable));
        assert_eq!((recovered.head, recovered.damaged), (all[2], false));
        let not_blank: Vec<u64> =
            (all[2]..all[2] + 5).filter(|at| *at != all[2] + missing).collect();
        assert_eq!(recovered.unfinished, not_blank);
    }
}

#[test]
fn a_sector_that_could_not_be_read_is_restored_as_it_was() {
    for lacks in 0..5 {
        let mut world = World::new();
        let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
        // It never was written, and an earlier lap would show.
        let position = all[2] + lacks;
        let whole = world.sectors[(position % RING) as usize].clone();
        world.forget(position);
        let recovered = world.walk_without(RING, Some(position));
        assert_eq!((positions(&recovered), recovered.damaged), (all, false));
        let [Restored { position: at, sector }] = &recovered.restored[..] else { panic!() };
        assert_eq!((*at, &sector[..]), (position, &whole[..]));
    }
}

#[test]
fn one_rotten_sector_where_no_stripe_fits_alarms_nobody() {
    let mut world = World::new();
    let mut all: Vec<u64> = (0..12).map(|i| world.append(i)).collect();
    let mut mark = Vec::new();
    Mark::FORGET_ALL.append_to(1, &mut mark);
    let mut writer = StripeWriter::new();
    (0..20).for_each(|_| writer.push(&mark));
    all.push(world.write(writer));
    assert_eq!(world.head, 2 * RING - 1, "one sector is left");
    world.rot(world.head);
    let recovered = world.walk(RING);
    assert_eq!((positions(&recovered), recovered.damaged), (all, false));
    assert_eq!(recovered.unfinished, [world.head]);
}

#[test]
fn what_cannot_be_read_matters_only_where_what_is_damaged_depends_on_it() {
    for unreadable in RING..2 * RING {
        let mut world = World::new();
        let all: Vec<u64> = (0..7).map(|i| world.append(i)).collect();
        world.rot(all[3]);
        world.rot(all[3] + 1);
        let recovered = world.try_walk(RING, Some(unreadable));
        if (all[3]..all[4]).contains(&unreadable) {
            assert!(recovered.is_err(), "{unreadable}");
            continue;
        }
        let recovered = recovered.expect("it is of no use");
        assert!(recovered.damaged, "{unreadable}");
        assert_eq!((positions(&recovered), recovered.head), (all[4..].to_vec(), world.head));
    }
}

#[test]
fn a_confirmed_stripe_that_lacks_a_sector_is_damage() {
    for missing in 0..5 {
        let mut world = World::new();
        let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
        world.forget(all[1] + missing);
        let recovered = world.walk(RING);
        assert!(recovered.damaged);
        assert_eq!(positions(&recovered), all[2..], "what is behind the damage is good");
    }
}

#[test]
fn more_than_its_first_sector_shows_that_a_stripe_follows_the_longest() {
    let mut world = World::new();
    let mut writer = StripeWriter::new();
    let mut raw = Vec::new();
    Mark::FORGET_ALL.append_to(1, &mut raw);
    while sectors_for(writer.payload_len() + raw.len()) <= STRIPE_MAX {
        writer.push(&raw);
    }
    let longest = world.write(writer);
    let next = world.append(1);
    assert_eq!(next - longest, STRIPE_MAX);
    world.forget(longest + 3);
    world.rot(next);
    assert!(world.walk(RING).damaged);
}

#[test]
fn two_rotten_sectors_are_damage_even_in_the_newest_stripe() {
    for (a, b) in [(0, 1), (1, 3), (0, 4)] {
        for stripe in 0..3 {
            let mut world = World::new();
            let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
            world.rot(all[stripe] + a);
            world.rot(all[stripe] + b);
            let recovered = world.walk(RING);
            assert!(recovered.damaged, "sectors {a} and {b} of stripe {stripe}");
            assert_eq!(positions(&recovered), all[stripe + 1..]);
            assert!(recovered.head >= *all.last().expect("three"));
        }
    }
}
