//! `libpmemlog`, if installed, beside our own log: appends to a pool and rewinds a full one.
//!
//! On volatile memory the library flushes by `msync`, unless the environment has
//! `PMEM_IS_PMEM_FORCE=1` when it is loaded. Then it uses the instructions for persistent memory.

mod library;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use self::library::{Library, Pool};
use super::draws::Draws;
use super::pattern::{Name, Pattern};
use crate::{Error, Result};

/// Makes the library treat any memory as persistent.
pub const FORCE: (&str, &str) = ("PMEM_IS_PMEM_FORCE", "1");

/// The log of the library.
pub(super) struct PmemLog {
    pool: Pool,
    draws: Rc<Draws>,
    done: u64,
}

/// A pool in a directory, or why there is none.
pub(super) fn open(
    dir: &Path,
    draws: &Rc<Draws>,
    len: u64,
) -> std::result::Result<PmemLog, String> {
    if std::env::var(FORCE.0).is_ok_and(|value| value == FORCE.1) {
        let library = Rc::new(Library::load()?);
        let path: PathBuf = dir.join("pmemlog");
        let _ = std::fs::remove_file(&path);
        let pool = Pool::create(library, &path, len)?;
        return Ok(PmemLog { pool, draws: Rc::clone(draws), done: 0 });
    }
    Err(format!("libpmemlog: only with {}={} in the environment", FORCE.0, FORCE.1))
}

impl Pattern for PmemLog {
    fn name(&self) -> Name {
        Name { pattern: "log", how: "libpmemlog" }
    }

    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, units: u64) -> Result<()> {
        for n in self.done..self.done + units {
            let value = self.draws.value(n);
            if !self.pool.append(value) {
                self.pool.rewind();
                if !self.pool.append(value) {
                    return Err(Error::Protocol("libpmemlog takes no value".to_string()));
                }
            }
        }
        self.done += units;
        Ok(())
    }

    /// Checks the length of the log.
    fn check(&mut self) -> Result<()> {
        let len = self.pool.len();
        match len > 0 && len.is_multiple_of(self.draws.value_len as u64) {
            true => Ok(()),
            false => Err(Error::Protocol(format!("libpmemlog: a log of {len} bytes"))),
        }
    }
}
