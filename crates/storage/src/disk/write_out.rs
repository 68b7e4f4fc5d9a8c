//! Lets the device begin with what will be flushed.

#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Hands the device what the page cache holds of a range, and waits for nothing. [sync_file_range(2)]
///
/// What comes of it is for the next flush to say, also where the system refuses: this takes no failure away from that.
pub(super) fn write_out(file: &File, range: Range<u64>) {
    let (offset, len) = (range.start as i64, (range.end - range.start) as i64);
    // SAFETY: the descriptor is open as long as `file` is, and the kernel is given no memory.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
}
