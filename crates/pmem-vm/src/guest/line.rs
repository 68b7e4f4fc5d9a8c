//! The serial line to the host: whole lines, from any thread.
//!
//! The kernel buffers at most [`HELD_BACK_MAX`] written bytes; then a writer waits.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::message::GuestMessage;

/// Bytes that a power cut may lose: a page of the line's driver and the chip's queue.
pub const HELD_BACK_MAX: usize = 4_096 + 16;

const DEVICE: &str = "/dev/ttyS1";

/// The line.
pub struct SerialLine(Mutex<File>);

impl SerialLine {
    /// Opens it.
    ///
    /// # Errors
    /// When this machine has no such line.
    pub fn open() -> Result<SerialLine> {
        let file = OpenOptions::new().write(true).open(DEVICE).context(DEVICE)?;
        Ok(SerialLine(Mutex::new(file)))
    }

    /// Sends a message; waits while the line's buffers are full.
    pub fn send(&self, message: &GuestMessage) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{message}\n");
        if let Err(error) = file.write_all(text.as_bytes()) {
            eprintln!("{message}: {DEVICE}: {error}");
        }
    }
}
