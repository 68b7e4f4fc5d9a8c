//! The `log` medium: an ordered log of records in a ring of fixed size, for protocols that agree on an order.
//!
//! A batch says where it begins; it replaces everything from there on, so cutting off the end and appending are one
//! step, and one write. Batches that wait together share one stripe: one sequential write, one flush. The front is
//! cut off without writing anything; its space is used again once both superblocks say so. Stripes are those of the
//! `disk` medium's staging ring, and with them its rules by which an unfinished end is told from a rotten one.
//!
//! [`Engine`] is the log without a device: batches in, bytes to store out. [`Log`] drives one on a device and waits.
//! Every record that is kept is in memory too, so the ring's length bounds both. It knows nothing of terms, epochs or
//! snapshots, does not lock its file, and repairs nothing that parity cannot: what it cannot restore it refuses to
//! open, and the node rejoins.
//!
//! Start reading at [`Engine`]; `docs/design/storage-log.md` draws the bytes and gives the arguments.

mod batch;
mod engine;
mod file;
mod open;
mod scan;
mod superblock;
mod verify;

use std::path::Path;

pub use self::engine::{AppendError, Engine, Store, Write};
pub use self::file::{FILE, FileDevice};
pub use self::open::{OpenError, create, open};
pub use self::verify::{Fault, Report, verify};

use crate::disk::stripe::SECTOR;

/// Where the ring begins: before it, a page for each superblock.
const RING_AT: u64 = 8192;
/// Sectors of the shortest ring: the longest stripe is a sixteenth of it.
pub const SECTORS_MIN: u64 = 64;
/// Sectors of the longest ring: 64 GiB.
pub const SECTORS_MAX: u64 = 1 << 27;

/// A file or something like it. Sectors are kept whole or not at all, in any order, until `store` has returned.
pub trait Device {
    /// Bytes.
    ///
    /// # Errors
    /// What the system says.
    fn size(&mut self) -> Result<u64, String>;

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// What the system says, also where there are not so many bytes.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), String>;

    /// Makes these bytes durable.
    ///
    /// # Errors
    /// What the system says; then nothing is known of them, nor of what was stored with a failure before.
    fn store(&mut self, store: &Store) -> Result<(), String>;
}

/// The offset of a position's sector.
fn offset_of(position: u64, ring: u64) -> u64 {
    RING_AT + position % ring * SECTOR as u64
}

/// Sectors of the longest stripe of a ring.
fn stripe_max(ring: u64) -> u64 {
    // The sectors of a stripe are counted in 16 bits.
    (ring / 16).min(1 << 14)
}

/// A log on a device, each step waited for.
#[derive(Debug)]
pub struct Log<D> {
    pub engine: Engine,
    device: D,
}

impl Log<FileDevice> {
    /// Opens the log in a directory that belongs to `binding`.
    ///
    /// # Errors
    /// Any [`OpenError`].
    pub fn open_at(dir: &Path, binding: u64) -> Result<Log<FileDevice>, OpenError> {
        let device = FileDevice::open(dir).map_err(OpenError::Io)?;
        Log::open(device.ok_or(OpenError::Missing)?, binding)
    }

    /// Makes an empty log of `sectors` in a directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn create_at(dir: &Path, binding: u64, sectors: u64) -> Result<(), String> {
        create(&mut FileDevice::create(dir)?, binding, sectors)
    }
}

impl<D: Device> Log<D> {
    /// Opens the log on a device.
    ///
    /// # Errors
    /// Any [`OpenError`].
    pub fn open(mut device: D, binding: u64) -> Result<Log<D>, OpenError> {
        let engine = open(&mut device, binding)?;
        Ok(Log { engine, device })
    }

    /// Makes everything durable that was appended.
    ///
    /// # Errors
    /// When the device fails: then the log is poisoned, and nothing after what was durable may be believed.
    pub fn flush(&mut self) -> Result<(), String> {
        while let Some(store) = self.engine.next_store() {
            let stored = self.device.store(&store);
            self.engine.on_stored(stored);
        }
        self.engine.failure().map_or(Ok(()), |why| Err(why.to_owned()))
    }
}
