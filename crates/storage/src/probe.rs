//! Storage facilities of this host, asked of the host itself.
//!
//! No answer is remembered and no file is left behind. Speed is measured on request only.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use base::Micros;
use rustix::fs::{Mode, OFlags};

use crate::pmem::mapped;
use crate::pmem::persist::CacheFlush;

/// Rounds that [`flush_latency`] takes at most.
pub const ROUNDS_MAX: usize = 1_000;

const BLOCK_LEN: usize = 4096;

/// Facilities that do not depend on a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    pub cache_flush: CacheFlush,
    /// The kernel sets up an io_uring for this process; containers often forbid it.
    pub has_io_uring: bool,
}

/// Looks at the CPU and the kernel.
#[must_use]
pub fn host() -> Host {
    Host { cache_flush: CacheFlush::detect(), has_io_uring: has_io_uring() }
}

/// True where files in `dir` can be mapped with MAP_SYNC: DAX on persistent memory.
///
/// # Errors
/// Those of making an unnamed file there.
pub fn is_dax(dir: &Path) -> io::Result<bool> {
    let file = unnamed_file(dir)?;
    file.set_len(BLOCK_LEN as u64)?;
    mapped::is_dax(&file, BLOCK_LEN)
}

/// The median time of `rounds` writes of 4 KiB in place, each with its own fdatasync, in a file in `dir`.
///
/// # Errors
/// Those of writing there.
pub fn flush_latency(dir: &Path, rounds: usize) -> io::Result<Micros> {
    let rounds = rounds.clamp(1, ROUNDS_MAX);
    let file = unnamed_file(dir)?;
    // The first write allocates, which must not count.
    file.write_all_at(&[0; BLOCK_LEN], 0)?;
    file.sync_all()?;
    let mut micros = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let begun = Instant::now();
        file.write_all_at(&[round as u8; BLOCK_LEN], 0)?;
        file.sync_data()?;
        micros.push(begun.elapsed().as_micros() as u64);
    }
    micros.sort_unstable();
    Ok(Micros(micros[rounds / 2]))
}

fn unnamed_file(dir: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?))
}

/// Sets up the smallest ring and closes it again. [io_uring_setup(2)]
fn has_io_uring() -> bool {
    // struct io_uring_params, all zero: no flags asked for.
    let mut params = [0_u64; 15];
    // SAFETY: the kernel writes at most the 120 bytes of io_uring_params, which `params` has; a descriptor that
    // comes back is ours and closed at once.
    unsafe {
        let fd = libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr());
        if fd < 0 {
            return false;
        }
        libc::close(fd as i32);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_leaves_no_file_behind() {
        let dir = std::env::temp_dir().join(format!("palimpsest-probe-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch directory can be made");
        assert!(is_dax(&dir).is_ok());
        assert!(flush_latency(&dir, 3).is_ok());
        assert_eq!(std::fs::read_dir(&dir).expect("readable").count(), 0);
        std::fs::remove_dir_all(&dir).expect("it is empty");
    }

    #[test]
    fn the_cpu_of_an_x86_host_can_write_lines_back() {
        let expected = cfg!(not(target_arch = "x86_64"));
        assert_eq!(host().cache_flush == CacheFlush::Missing, expected);
    }
}
