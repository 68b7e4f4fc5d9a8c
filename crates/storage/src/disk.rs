//! The `disk` medium: registers in place on an ordinary disk or solid-state drive.
//!
//! The commit point is a staging ring of fixed size: what all workers changed in a turn goes there in one sequential
//! write and one flush. The homes of records are packed bucket pages under a hash directory that is pure arithmetic, so
//! a start reads a bounded part of the store, whatever the number of keys. Records go home later,
//! many at a time, through images that make the rewrite of a page safe. Damage is never taken for age: what was
//! acknowledged and cannot be read is reported as forgotten.
//!
//! It does not lock its directory and does not know whose it is: the caller names the node and cluster by a number
//! (`binding`) that every checksum depends on. It keeps no log and never compacts.
//!
//! Start reading at [`Engine`]; `docs/design/storage-disk.md` draws the bytes and gives the arguments.

mod ahead;
mod aligned;
mod arena;
pub(crate) mod bytes_at;
mod cache;
pub(crate) mod direct;
mod directory;
mod engine;
mod entry;
mod extents;
mod files;
mod handle;
mod index;
mod io;
mod local;
mod merge;
mod page;
mod pages;
mod place;
mod pool;
mod recovery;
mod request;
mod ring;
mod said;
mod shell;
mod sizes;
mod spare;
pub(crate) mod stripe;
mod superblock;
mod survey;
#[cfg(test)]
mod unknown;
mod verify;
mod write_out;

pub use engine::{Config, Engine, OpenError, create};
pub use files::FileMedium;
pub use handle::{Handle, Link};
pub use io::{Done, File, Files, Io, Medium, Write};
pub use local::{LocalKeeper, LocalLink, LocalStore};
pub use merge::{Merged, Merging};
pub use request::{Batch, Request, ScanRequest};
pub use shell::{DiskStore, Keeper, Pump, ShellLink, Waker, create_at, open_at};
pub use verify::{BAD_NAMED_MAX, Bad, Report, verify, verify_at};
