//! The `disk` medium: registers in place on an ordinary disk or solid-state drive.
//!
//! A commit is one sequential write of all workers' changes to a ring of fixed size, and one flush.
//! Records go home later, many at a time, to packed bucket pages, through images that make the
//! rewrite of a page safe. The directory of buckets is arithmetic, so a start reads a bounded part
//! of the store, whatever the number of keys. Damage is never taken for age: acknowledged records
//! that cannot be read are reported as forgotten.
//!
//! The medium does not lock its directory. The caller names the node and cluster by a number
//! (`binding`) that every checksum depends on. It keeps no log and never compacts.
//!
//! Start reading at [`Engine`]; `docs/design/storage-disk.md` is an overview, with pages for the
//! bytes and the arguments.

mod aligned;
pub(crate) mod bytes_at;
mod cache;
mod device;
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
mod place;
mod pool;
mod recovery;
mod replies;
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

pub use engine::{Config, Engine, OpenError, create};
pub use files::FileMedium;
pub use handle::{Handle, Link};
pub use io::{Done, File, Files, Io, Medium, Write};
pub use local::{LocalGuard, LocalLink, LocalStore};
pub use request::{Batch, Request, ScanRequest};
pub use shell::{Committer, DiskStore, ShellLink, StoreGuard, Waker, create_at, open_at};
pub use verify::{BAD_NAMED_MAX, Bad, Report, verify, verify_at};
