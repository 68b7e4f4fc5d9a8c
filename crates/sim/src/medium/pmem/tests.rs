//! The pmem engine keeps its promises over memory that keeps only fenced write-backs.

use bytes::Bytes;
use storage::{Load, Place};
use types::Key;

use super::*;

const DATABASE: Database = Database(0);

fn open(medium: &PmemMedium) -> Box<dyn Store> {
    medium.open(1).expect("it opens").remove(0)
}

fn cell() -> Place {
    Place::Cell(DATABASE, Key::new(b"a"))
}

fn put(store: &mut dyn Store, record: &[u8]) {
    store.put(&cell(), record);
    store.submit();
}

#[test]
fn state_read_at_start_survives_power_loss() {
    let mut shown_new = 0;
    for seed in 0..500 {
        let medium = PmemMedium::new(&[DATABASE], false, Prng::new(seed));
        let mut store = open(&medium);
        put(&mut *store, b"old");
        put(&mut *store, b"older");
        medium.lock().capture_after(seed % 100);
        medium.lock().is_ending = true;
        put(&mut *store, b"new");
        drop(store);
        medium.crash(Survival::Prefix);
        let shown = open(&medium).load(&cell());
        medium.crash(Survival::Nothing);
        assert_eq!(open(&medium).load(&cell()), shown, "seed {seed}");
        shown_new += u64::from(shown == Load::Found(Bytes::from_static(b"new")));
    }
    assert!((1..500).contains(&shown_new), "{shown_new} of 500");
}

#[test]
fn wiped_medium_has_forgotten_everything() {
    let medium = PmemMedium::new(&[DATABASE], false, Prng::new(1));
    put(&mut *open(&medium), b"old");
    assert!(!medium.has_forgotten_anything());
    medium.crash(Survival::Nothing);
    medium.wipe();
    assert!(medium.is_recovering());
    assert_eq!(open(&medium).load(&cell()), Load::Lost);
}

#[test]
fn rot_is_found() {
    let medium = PmemMedium::new(&[DATABASE], false, Prng::new(3));
    put(&mut *open(&medium), b"old");
    assert!(medium.damage() && medium.has_forgotten_anything());
}
