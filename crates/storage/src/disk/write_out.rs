//! Lets the device begin with what will be flushed.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, Result};
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Hands the device what the page cache holds of a range, and waits for nothing. [sync_file_range(2)]
///
/// # Errors
/// What a flush would have failed with, which may not say so again: a file system that finds no place for what is to be
/// written may drop it. Where the system does not do this at all, or lacks memory for it, the flush is left to do it.
pub(super) fn write_out(file: &File, range: Range<u64>) -> Result<()> {
    let (offset, len) = (range.start as i64, (range.end - range.start) as i64);
    // SAFETY: the descriptor is open as long as `file` is, and the kernel is given no memory.
    let outcome = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
    };
    if outcome == 0 {
        return Ok(());
    }
    let error = Error::last_os_error();
    let is_left_to_flush = matches!(
        error.raw_os_error(),
        Some(
            libc::ENOSYS
                | libc::EPERM
                | libc::EINVAL
                | libc::EOPNOTSUPP
                | libc::ENOMEM
                | libc::EAGAIN
                | libc::EINTR
        )
    );
    if is_left_to_flush { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_told_at_once() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let pipe = File::from(std::os::fd::OwnedFd::from(reader));
        let error = write_out(&pipe, 0..4096).expect_err("a pipe has no ranges");
        assert_eq!(error.raw_os_error(), Some(libc::ESPIPE));
    }
}
