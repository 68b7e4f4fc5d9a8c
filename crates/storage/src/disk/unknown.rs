//! Stores of later versions, and records in them, are refused and left as they are.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use types::limits::SPACES;
use types::{Database, Key};

use super::bytes_at::{put_u16, put_u64};
use super::entry::{Entry, Kind, entry_checksum};
use super::page::Packer;
use super::place::{COPIES, PAGE, primary_place};
use super::stripe::StripeWriter;
use super::superblock::FORMAT;
use super::{Config, File, FileMedium, LocalGuard, OpenError, create, verify_at};
use crate::{Completion, Load, Place, Store as _};

const BINDING: u64 = 7;

struct Scratch(PathBuf);

impl Scratch {
    /// A directory with an empty store.
    fn new(name: &str) -> Scratch {
        let name = format!("palimpsest-unknown-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        let mut medium = FileMedium::create(&path).expect("files can be made");
        create(&mut medium, BINDING, &config()).expect("there is room");
        Scratch(path)
    }

    fn edit(&self, file: File, edit: impl FnOnce(&mut [u8])) {
        let path = self.0.join(file.name());
        let mut bytes = std::fs::read(&path).expect("it is there");
        edit(&mut bytes);
        std::fs::write(path, bytes).expect("it can be written");
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        let read = |file: File| std::fs::read(self.0.join(file.name())).expect("it is there");
        File::ALL.into_iter().map(read).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config() -> Config {
    Config { ring_bytes: 64 << 10, spare_pages: 32, initial_level: 1, ..Config::default() }
}

type Opened = Result<(LocalGuard<FileMedium>, Vec<super::LocalStore<FileMedium>>), OpenError>;

fn open(dir: &Path) -> Opened {
    let medium = FileMedium::open(dir).expect("the files are there");
    LocalGuard::open(medium, BINDING, 1, &config())
}

/// A whole record of a register.
fn record(kind: u8, database: u8, key: &Key, body: &[u8]) -> Vec<u8> {
    let kind = Kind(kind);
    let (hash, key_len) = (key.hash(), key.bytes().len());
    let checksum = entry_checksum(BINDING, hash, database, kind, body);
    let mut raw = Vec::new();
    Entry { hash, checksum, kind, database, key_len, body }.append_to(&mut raw);
    raw
}

/// Kinds and databases of whole records that this version does not know.
const UNKNOWN: [(u8, u8); 5] = [(5, 0), (6, 3), (7, 0), (0x81, 0), (1, SPACES as u8)];

#[test]
fn superblock_of_another_format_is_refused() {
    for (copies, found) in [(0..COPIES, FORMAT + 1), (1..COPIES, FORMAT + 1), (0..COPIES, 2)] {
        let scratch = Scratch::new(&format!("superblock-{}-{found}", copies.start));
        scratch.edit(File::Slots, |bytes| {
            for copy in copies {
                let page = &mut bytes[copy as usize * PAGE..][..PAGE];
                put_u16(page, 12, found);
                let sum = base::checksum::checksum(copy, &page[8..]);
                put_u64(page, 0, sum);
            }
        });
        let before = scratch.bytes();
        let opened = open(&scratch.0).err();
        let verified = verify_at(&scratch.0, BINDING, &mut |_| ()).err();
        for error in [opened, verified] {
            let text = error.map(|error| error.to_string()).unwrap_or_default();
            let expected = format!("slots has format {found}, this version knows {FORMAT}: ");
            assert!(text.starts_with(&expected), "{text}");
        }
        assert_eq!(scratch.bytes(), before);
    }
}

#[test]
fn unknown_record_in_the_ring_is_refused() {
    for (kind, database) in UNKNOWN {
        let scratch = Scratch::new(&format!("ring-{kind}-{database}"));
        let key = Key::new(b"key");
        let mut writer = StripeWriter::new();
        writer.push(&record(1, 0, &Key::new(b"other"), b"otherrecord"));
        writer.push(&record(kind, database, &key, b"keyrecord"));
        // Positions begin at the length of the ring.
        let stripe = writer.finish(BINDING, config().ring_bytes / 512);
        scratch.edit(File::Ring, |bytes| bytes[..stripe.len()].copy_from_slice(&stripe));
        let before = scratch.bytes();
        let error = open(&scratch.0).err().map(|error| error.to_string()).unwrap_or_default();
        let named = format!("a record has kind {kind:#04x} in database {database}, this version");
        assert!(error.starts_with(&format!("ring: {named}")), "{error}");
        let report = verify_at(&scratch.0, BINDING, &mut |_| ()).expect("it is a store");
        let is_named = report.bad.iter().any(|bad| bad.to_string().contains(&named));
        assert!(is_named, "{:?}", report.bad);
        assert_eq!(scratch.bytes(), before);
    }
}

#[test]
fn unknown_record_in_a_page_stops_the_store() {
    for (kind, database) in UNKNOWN {
        let scratch = Scratch::new(&format!("page-{kind}-{database}"));
        let key = Key::new(b"key");
        let bucket = key.hash() >> 63;
        let raw = record(kind, database, &key, b"keyrecord");
        let mut packer = Packer::default();
        packer.push(Entry::known(&raw));
        let place = primary_place(bucket);
        let page = packer.pack().finish((bucket, 1, 0), place, Vec::new(), BINDING);
        let (_, image) = page.images(place).next().expect("it has a page");
        let (start, image) = (place.offset as usize, Bytes::copy_from_slice(image));
        scratch.edit(File::Slots, |bytes| bytes[start..start + PAGE].copy_from_slice(&image));
        let before = scratch.bytes();
        let named = format!("a record has kind {kind:#04x} in database {database}, this version");
        let report = verify_at(&scratch.0, BINDING, &mut |_| ()).expect("it is a store");
        let is_named = report.bad.iter().any(|bad| bad.to_string().contains(&named));
        assert!(is_named, "{:?}", report.bad);

        let (keeper, mut stores) = open(&scratch.0).expect("its ring is known");
        assert_eq!(stores[0].load(&Place::Cell(Database(0), key)), Load::Pending);
        let text = format!("slots: {named}");
        let is_told =
            |it: &Completion| matches!(it, Completion::Failed(why) if why.starts_with(&text));
        let mut heard = Vec::new();
        for _ in 0..1_000 {
            keeper.drive();
            stores[0].poll(&mut heard);
            if heard.iter().any(is_told) {
                break;
            }
        }
        assert!(heard.iter().any(is_told), "{heard:?}");
        keeper.rest();
        drop((keeper, stores));
        assert_eq!(scratch.bytes(), before);
    }
}
