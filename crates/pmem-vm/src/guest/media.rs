//! The medium alone on real DAX: create, write in batches, reopen, verify; and its own file tests.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use storage::pmem::{Pmem, verify};
use storage::volatile::Beginning;
use storage::{Load, Place, Store};
use types::positions::PUBLIC;
use types::{Database, Key};

use super::PROGRAMS;
use super::line::SerialLine;
use crate::message::GuestMessage;

const BINDING: u64 = 7;
const KEYS: u64 = 1_000;
const TURNS: u64 = 20;

/// Runs all checks in folders of their own below `mount`, which are removed again.
///
/// # Errors
/// The first that fails.
pub fn check(mount: &Path, line: &SerialLine) -> Result<()> {
    let dir = mount.join("media");
    std::fs::create_dir_all(&dir).context("a folder on the mount")?;
    write(&dir)?;
    line.send(&GuestMessage::Passed("a file is made with MAP_SYNC and written in batches".into()));
    read(&dir)?;
    line.send(&GuestMessage::Passed(
        "it opens again, holds the written records, and verifies".into(),
    ));
    std::fs::remove_dir_all(&dir).context("removing the folder")?;
    let tests = mount.join("tests");
    std::fs::create_dir_all(&tests).context("a folder on the mount")?;
    let status = Command::new(Path::new(PROGRAMS).join("storage-tests"))
        .args(["file::", "--test-threads=1"])
        .env("TMPDIR", &tests)
        .status()
        .context("the storage crate's tests")?;
    ensure!(status.success(), "the storage crate's tests of files fail here: {status}");
    line.send(&GuestMessage::Passed("the storage crate's tests of files".into()));
    std::fs::remove_dir_all(&tests).context("removing the folder")
}

fn place(key: u64) -> Place {
    Place::Cell(Database(0), Key::new(&key.to_le_bytes()))
}

fn record(key: u64, turn: u64) -> Vec<u8> {
    // The length changes with every batch, so that registers move.
    let words = 1 + (key + turn * 7) % 40;
    (key << 32 | turn).to_le_bytes().repeat(words as usize)
}

fn open(dir: &Path) -> Result<Pmem> {
    let pmem = Pmem::open(dir, BINDING, Beginning::New).context("the medium does not open")?;
    ensure!(!pmem.is_emulated(), "the medium takes this for emulated persistent memory");
    Ok(pmem)
}

fn write(dir: &Path) -> Result<()> {
    let pmem = open(dir)?;
    ensure!(pmem.was_created(), "there was a file already");
    let mut store = pmem.store(0);
    for turn in 0..TURNS {
        for key in 0..KEYS {
            store.put(&place(key), &record(key, turn));
        }
        store.submit();
    }
    Ok(())
}

fn read(dir: &Path) -> Result<()> {
    let pmem = open(dir)?;
    let mut store = pmem.store(1);
    for key in 0..KEYS {
        let expected = Load::Found(record(key, TURNS - 1).into());
        let found = store.load(&place(key));
        ensure!(found == expected, "key {key}: {found:?}");
    }
    drop((store, pmem));
    let report = verify(dir, BINDING, &PUBLIC, &mut |_| ()).context("verify")?;
    ensure!(report.registers == KEYS && report.faults_count == 0, "verify: {report:?}");
    Ok(())
}
