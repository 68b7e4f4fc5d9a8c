//! Tests of eviction.

use super::*;

fn key(number: u32) -> Key {
    Key::new(&number.to_le_bytes())
}

/// As a worker fills them: every key below `count` was looked for and is absent.
fn absent(count: u32) -> RegisterCache<u32> {
    let mut cache = RegisterCache::new(Absence::Kept);
    (0..count).for_each(|number| cache.fill(&key(number), None, false));
    cache
}

/// Looks often enough for every second chance.
fn drop_all(cache: &mut RegisterCache<u32>, kept: usize, durable: Ticket) {
    for _ in 0..3 {
        cache.drop_absent(kept, usize::MAX, durable, |_| false);
    }
}

#[test]
fn absent_entries_beyond_a_few_leave_memory() {
    let mut cache = absent(10_000);
    drop_all(&mut cache, 100, Ticket::DURABLE);
    assert_eq!(cache.len(), 100);
    drop_all(&mut cache, 0, Ticket::DURABLE);
    assert!(cache.is_empty() && !cache.is_resident(&key(1)));
}

#[test]
fn used_absent_entries_stay() {
    let mut cache = absent(3);
    cache.pin(&key(0));
    cache.fill(&key(3), None, true);
    cache.fill(&key(4), Some(4), false);
    drop_all(&mut cache, 0, Ticket::DURABLE);
    assert_eq!(cache.len(), 3, "pinned, lost, present");
    assert!(matches!(cache.get(&key(3)), CachedRegister::Lost));
    cache.unpin(&key(0));
    drop_all(&mut cache, 0, Ticket::DURABLE);
    assert_eq!(cache.len(), 2);
}

#[test]
fn removed_entry_stays_until_its_removal_is_durable() {
    let mut cache = RegisterCache::new(Absence::Kept);
    cache.fill(&key(1), Some(1), false);
    cache.set_open_ticket(Ticket(7));
    assert_eq!(cache.remove(&key(1)), Ticket(7));
    drop_all(&mut cache, 0, Ticket(7));
    assert_eq!(cache.len(), 1, "it is not written yet");
    cache.take_dirty(|_, record, _| record.map_or(0, |_| panic!("it was removed")));
    drop_all(&mut cache, 0, Ticket(6));
    assert_eq!(cache.len(), 1, "storage would still answer with the record");
    drop_all(&mut cache, 0, Ticket(7));
    assert_eq!(cache.len(), 0);
}

#[test]
fn bytes_are_those_of_the_records_in_memory() {
    let mut cache = RegisterCache::new(Absence::Kept);
    for number in 0..3 {
        cache.fill(&key(number), Some(number), false);
        cache.weigh(&key(number), 100, Weight::NONE);
    }
    assert_eq!(cache.bytes(), 300);
    cache.put(&key(0), 7);
    cache.persist(&key(0));
    cache.take_dirty(|_, _, _| 40);
    assert_eq!(cache.bytes(), 240);
    cache.remove(&key(1));
    cache.take_dirty(|_, record, _| record.map_or(0, |_| 40));
    assert_eq!(cache.bytes(), 140);
    for _ in 0..2 {
        cache.evict(key(2).shard(), Ticket(u64::MAX), |_, _, _| Parting::Goes);
    }
    assert_eq!(cache.bytes(), if key(0).shard() == key(2).shard() { 0 } else { 40 });
    cache.fill(&key(2), Some(2), false);
    cache.weigh(&key(2), 5, Weight::NONE);
    assert!(cache.bytes() % 40 == 5, "the place was given back without its bytes");
    cache.weigh(&key(9), 1_000, Weight::NONE);
    assert!(cache.bytes() < 100, "no record is there to weigh");
}

#[test]
fn absent_entries_of_kept_shards_stay() {
    let mut cache = absent(1_000);
    let shard = key(1).shard();
    for _ in 0..100 {
        cache.drop_absent(0, usize::MAX, Ticket::DURABLE, |one| one == shard);
    }
    assert!(cache.is_resident(&key(1)));
    assert!(cache.range(shard, 0).len() == cache.len() && cache.len() < 1_000);
}

#[test]
fn entry_present_again_is_not_dropped() {
    let mut cache = absent(1);
    cache.put(&key(0), 7);
    cache.persist(&key(0));
    drop_all(&mut cache, 0, Ticket(u64::MAX));
    cache.take_dirty(|_, record, _| usize::from(*record.expect("it is there") != 7));
    assert_eq!(cache.bytes(), 0);
    drop_all(&mut cache, 0, Ticket(u64::MAX));
    assert!(matches!(cache.get(&key(0)), CachedRegister::Present(7)));
}

#[test]
fn emptied_slots_free_memory_and_are_reused() {
    for absence in [Absence::Kept, Absence::Announced, Absence::Certain] {
        let mut cache = RegisterCache::new(absence);
        for round in 0..3 {
            for number in 0..5_000 {
                cache.put(&key(number), number + round);
                cache.persist(&key(number));
            }
            cache.take_dirty(|_, _, _| 0);
            assert_eq!((cache.len(), cache.slots.capacity()), (5_000, 5 * 1024));
            let is_whole = |number| matches!(cache.get(&key(number)), CachedRegister::Present(of) if *of == number + round);
            assert!((0..5_000).all(is_whole));
            for number in 0..5_000 {
                cache.remove(&key(number));
            }
            cache.take_dirty(|_, _, _| 0);
            drop_all(&mut cache, 0, Ticket(u64::MAX));
            assert_eq!((cache.len(), cache.slots.capacity()), (0, 0));
            let kept = cache.shards.iter().map(HashTable::capacity).max();
            assert!(kept.is_some_and(|kept| kept <= 2 * KEPT_CAPACITY), "{kept:?}");
        }
    }
}

#[test]
fn announced_absence_holds_for_one_key() {
    let mut cache: RegisterCache<u32> = RegisterCache::new(Absence::Announced);
    cache.announce_absent(&key(1));
    assert!(matches!(cache.get(&key(1)), CachedRegister::Absent));
    assert!(cache.is_empty() && !cache.touch(&key(1)), "the next event asks again");
    cache.with(&key(1), |record| *record = Some(7));
    cache.persist(&key(1));
    cache.take_dirty(|_, _, _| 0);
    for _ in 0..2 {
        cache.evict(key(1).shard(), Ticket::DURABLE, |_, record, _| {
            assert_eq!(record, Some(&7));
            Parting::Goes
        });
    }
    assert!(cache.is_empty() && cache.announced.is_none(), "storage holds it now");
}

#[test]
#[should_panic(expected = "is not resident")]
fn unread_register_is_not_taken_for_absent() {
    let mut cache: RegisterCache<u32> = RegisterCache::new(Absence::Announced);
    cache.announce_absent(&key(1));
    let _ = cache.get(&key(2));
}
