//! The `log` medium: an ordered log of records in a ring of fixed size, for protocols that agree on
//! an order. [`Logged`] keeps logs beside a store.
//!
//! A batch says where it begins and replaces everything from there on. So cutting off the end and
//! appending are one step, and one write. Batches that wait together share one stripe: one
//! sequential write, one flush. The front is cut off without a write; its space is used again once
//! both superblocks say so. Stripes are those of the `disk` medium's ring, with its rules that tell
//! an unfinished end from a rotten one.
//!
//! [`Engine`] is the log without a device: batches in, bytes to store out. [`Log`] drives one on a
//! device and waits. Every kept record is in memory too, so the ring's length bounds both. The log
//! knows no terms, epochs or snapshots, and does not lock its file. Parity is its only repair: it
//! refuses to open a log that is damaged beyond that, and the node rejoins.
//!
//! Start reading at [`Engine`]; `docs/design/storage-log.md` draws the bytes and gives the
//! arguments.

mod batch;
mod device;
mod engine;
mod file;
mod logged;
mod open;
mod scan;
mod superblock;
mod threaded;
mod verify;

use std::path::Path;

pub use self::device::{Device, SECTORS_MAX, SECTORS_MIN, Store, Write};
pub use self::engine::{AppendError, Engine};
pub use self::file::{FileDevice, file_of};
pub use self::logged::{Driver, Logged, OpenLog};
pub use self::open::{OpenError, create, open};
pub use self::threaded::{Threaded, Waker};
pub use self::verify::{Fault, Report, verify};

/// A log on a device, each step waited for.
#[derive(Debug)]
pub struct Log<D> {
    pub engine: Engine,
    device: D,
}

impl Log<FileDevice> {
    /// Opens the log of this path that belongs to `binding`.
    ///
    /// # Errors
    /// Any [`OpenError`].
    pub fn open_at(path: &Path, binding: u64) -> Result<Log<FileDevice>, OpenError> {
        let device = FileDevice::open(path).map_err(OpenError::Io)?;
        Log::open(device.ok_or(OpenError::Missing)?, binding)
    }

    /// Makes an empty log of `sectors` at this path.
    ///
    /// # Errors
    /// The system's reason.
    pub fn create_at(path: &Path, binding: u64, sectors: u64) -> Result<(), String> {
        create(&mut FileDevice::create(path)?, binding, sectors)
    }
}

impl<D: Device> Log<D> {
    /// The log and its device, for a [`Driver`].
    #[must_use]
    pub fn into_parts(self) -> (Engine, D) {
        (self.engine, self.device)
    }

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
    /// When the device fails: then the log is poisoned, and only its durable part may be believed.
    pub fn flush(&mut self) -> Result<(), String> {
        while let Some(store) = self.engine.next_store() {
            let stored = self.device.store(&store);
            self.engine.on_stored(stored);
        }
        self.engine.failure().map_or(Ok(()), |why| Err(why.to_owned()))
    }
}
