//! A log's file. Where the file system lets it, a store goes past the page cache and is durable when it returns
//! (`O_DIRECT` and `O_DSYNC`, open(2)); elsewhere it is written and then flushed.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result as IoResult};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;
use types::Database;

use super::device::{Device, Store, Write};
use crate::disk::direct::DirectFile;

/// The file of a database's log in the data directory.
#[must_use]
pub fn file_of(dir: &Path, database: Database) -> PathBuf {
    dir.join(format!("log-{}", database.0))
}

/// An open file.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    direct: Option<DirectFile>,
}

impl FileDevice {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// The system's reason.
    pub fn create(path: &Path) -> Result<FileDevice, String> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path);
        let file = file.and_then(|file| {
            // The new name must survive too.
            File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
            Ok(file)
        });
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(FileDevice { file, direct: None })
    }

    /// Opens the file; `None` if there is none.
    ///
    /// # Errors
    /// The system's reason.
    pub fn open(path: &Path) -> Result<Option<FileDevice>, String> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file,
        };
        let device = file.and_then(|file| {
            let direct = DirectFile::open(path);
            direct.as_ref().map_or(Ok(()), DirectFile::own)?;
            // A cache may show bytes that are not durable. Writes of the process before are
            // flushed, and bytes that its flush lost are read from the device again.
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
            Ok(FileDevice { file, direct })
        });
        device.map(Some).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn write(&self, Write { offset, bytes }: &Write) -> IoResult<()> {
        match &self.direct {
            Some(direct) => direct.write(bytes, *offset),
            None => self.file.write_all_at(bytes, *offset),
        }
    }
}

impl Device for FileDevice {
    fn size(&mut self) -> Result<u64, String> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| error.to_string())
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        self.file.read_exact_at(into, offset).map_err(|error| error.to_string())
    }

    fn store(&mut self, store: &Store) -> Result<(), String> {
        let stored = store.writes.iter().try_for_each(|write| self.write(write));
        let stored = stored.and_then(|()| match self.direct {
            Some(_) => Ok(()),
            None => self.file.sync_data(),
        });
        stored.map_err(|error| error.to_string())
    }
}
