//! How much of a file system a data directory takes, and how much is left.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Unit of `st_blocks`, independent of the file system's block size.
const BLOCK: u64 = 512;

/// Bytes of a data directory and of the file system below it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Allocated to the files of the directory.
    pub used: u64,
    /// Free for this process.
    pub free: u64,
    /// Size of the file system.
    pub size: u64,
}

/// Asks the file system; cheap for a data directory, which holds few files.
///
/// # Errors
/// When the directory cannot be read.
pub fn usage(dir: &Path) -> io::Result<Usage> {
    let mut used = 0;
    for entry in fs::read_dir(dir)? {
        // A file that has just been removed takes no space.
        used += entry?.metadata().map_or(0, |metadata| metadata.blocks() * BLOCK);
    }
    let system = rustix::fs::statvfs(dir)?;
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
    Ok(Usage { used, free: bytes(system.f_bavail), size: bytes(system.f_blocks) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_with_what_they_take() {
        let dir = std::env::temp_dir().join(format!("palimpsest-usage-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("the temporary directory is writable");
        let before = usage(&dir).expect("it can be read");
        let file = fs::File::create(dir.join("file")).expect("it can be created");
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 100_000], 0).expect("it has room");
        file.sync_all().expect("it can be flushed");
        let after = usage(&dir).expect("it can be read");
        assert!(after.used >= before.used + 100_000, "{before:?} {after:?}");
        assert!(after.size >= after.free, "{after:?}");
        fs::remove_dir_all(&dir).expect("it is there");
        assert!(usage(&dir).is_err());
    }
}
