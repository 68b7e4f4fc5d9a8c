//! Tests of eviction.

use super::*;

fn key(number: u32) -> Key {
    Key::new(&number.to_le_bytes())
}

/// As a worker fills them: every key below `count` was looked for and is absent.
fn absent(count: u32) -> Cells<u32> {
    let mut cells = Cells::new(Absence::Kept);
    (0..count).for_each(|number| cells.fill(&key(number), None, false));
    cells
}

/// Looks often enough for every second chance.
fn drop_all(cells: &mut Cells<u32>, kept: usize, durable: Ticket) {
    for _ in 0..3 {
        cells.drop_absent(kept, usize::MAX, durable, |_| false);
    }
}

#[test]
fn absent_cells_beyond_a_few_leave_memory() {
    let mut cells = absent(10_000);
    drop_all(&mut cells, 100, Ticket::DURABLE);
    assert_eq!(cells.len(), 100);
    drop_all(&mut cells, 0, Ticket::DURABLE);
    assert!(cells.is_empty() && !cells.is_resident(&key(1)));
}

#[test]
fn absent_cells_that_somebody_needs_stay() {
    let mut cells = absent(3);
    cells.pin(&key(0));
    cells.fill(&key(3), None, true);
    cells.fill(&key(4), Some(4), false);
    drop_all(&mut cells, 0, Ticket::DURABLE);
    assert_eq!(cells.len(), 3, "pinned, lost, present");
    assert!(matches!(cells.get(&key(3)), Cell::Lost));
    cells.unpin(&key(0));
    drop_all(&mut cells, 0, Ticket::DURABLE);
    assert_eq!(cells.len(), 2);
}

#[test]
fn a_removed_cell_stays_until_its_removal_is_durable() {
    let mut cells = Cells::new(Absence::Kept);
    cells.fill(&key(1), Some(1), false);
    cells.set_open_ticket(Ticket(7));
    assert_eq!(cells.remove(&key(1)), Ticket(7));
    drop_all(&mut cells, 0, Ticket(7));
    assert_eq!(cells.len(), 1, "it is not written yet");
    cells.take_dirty(|_, record, _| record.map_or(0, |_| panic!("it was removed")));
    drop_all(&mut cells, 0, Ticket(6));
    assert_eq!(cells.len(), 1, "storage would still answer with the record");
    drop_all(&mut cells, 0, Ticket(7));
    assert_eq!(cells.len(), 0);
}

#[test]
fn bytes_are_those_of_the_records_in_memory() {
    let mut cells = Cells::new(Absence::Kept);
    for number in 0..3 {
        cells.fill(&key(number), Some(number), false);
        cells.weigh(&key(number), 100, Weight::NONE);
    }
    assert_eq!(cells.bytes(), 300);
    cells.put(&key(0), 7);
    cells.persist(&key(0));
    cells.take_dirty(|_, _, _| 40);
    assert_eq!(cells.bytes(), 240);
    cells.remove(&key(1));
    cells.take_dirty(|_, record, _| record.map_or(0, |_| 40));
    assert_eq!(cells.bytes(), 140);
    for _ in 0..2 {
        cells.evict(key(2).shard(), Ticket(u64::MAX), |_, _, _| Parting::Goes);
    }
    assert_eq!(cells.bytes(), if key(0).shard() == key(2).shard() { 0 } else { 40 });
    cells.fill(&key(2), Some(2), false);
    cells.weigh(&key(2), 5, Weight::NONE);
    assert!(cells.bytes() % 40 == 5, "the place was given back without its bytes");
    cells.weigh(&key(9), 1_000, Weight::NONE);
    assert!(cells.bytes() < 100, "nothing is there to weigh");
}

#[test]
fn absent_cells_of_shards_that_are_kept_stay() {
    let mut cells = absent(1_000);
    let shard = key(1).shard();
    for _ in 0..100 {
        cells.drop_absent(0, usize::MAX, Ticket::DURABLE, |one| one == shard);
    }
    assert!(cells.is_resident(&key(1)));
    assert!(cells.range(shard, 0).len() == cells.len() && cells.len() < 1_000);
}

#[test]
fn a_cell_that_is_present_again_is_not_dropped() {
    let mut cells = absent(1);
    cells.put(&key(0), 7);
    cells.persist(&key(0));
    drop_all(&mut cells, 0, Ticket(u64::MAX));
    cells.take_dirty(|_, record, _| usize::from(*record.expect("it is there") != 7));
    assert_eq!(cells.bytes(), 0);
    drop_all(&mut cells, 0, Ticket(u64::MAX));
    assert!(matches!(cells.get(&key(0)), Cell::Present(7)));
}

#[test]
fn emptied_cells_give_their_memory_back_and_places_are_used_again() {
    for absence in [Absence::Kept, Absence::Announced, Absence::Certain] {
        let mut cells = Cells::new(absence);
        for round in 0..3 {
            for number in 0..5_000 {
                cells.put(&key(number), number + round);
                cells.persist(&key(number));
            }
            cells.take_dirty(|_, _, _| 0);
            assert_eq!((cells.len(), cells.slots.capacity()), (5_000, 5 * 1024));
            let is_whole = |number| matches!(cells.get(&key(number)), Cell::Present(of) if *of == number + round);
            assert!((0..5_000).all(is_whole));
            for number in 0..5_000 {
                cells.remove(&key(number));
            }
            cells.take_dirty(|_, _, _| 0);
            drop_all(&mut cells, 0, Ticket(u64::MAX));
            assert_eq!((cells.len(), cells.slots.capacity()), (0, 0));
            let kept = cells.shards.iter().map(HashTable::capacity).max();
            assert!(kept.is_some_and(|kept| kept <= 2 * KEPT_CAPACITY), "{kept:?}");
        }
    }
}

#[test]
fn an_announced_absence_holds_for_one_key_until_it_has_a_register() {
    let mut cells: Cells<u32> = Cells::new(Absence::Announced);
    cells.announce_absent(&key(1));
    assert!(matches!(cells.get(&key(1)), Cell::Absent));
    assert!(cells.is_empty() && !cells.touch(&key(1)), "the next event asks again");
    cells.with(&key(1), |record| *record = Some(7));
    cells.persist(&key(1));
    cells.take_dirty(|_, _, _| 0);
    for _ in 0..2 {
        cells.evict(key(1).shard(), Ticket::DURABLE, |_, record, _| {
            assert_eq!(record, Some(&7));
            Parting::Goes
        });
    }
    assert!(cells.is_empty() && cells.announced.is_none(), "storage holds it now");
}

#[test]
#[should_panic(expected = "is not resident")]
fn a_register_that_nobody_asked_storage_for_is_not_taken_for_absent() {
    let mut cells: Cells<u32> = Cells::new(Absence::Announced);
    cells.announce_absent(&key(1));
    let _ = cells.get(&key(2));
}
