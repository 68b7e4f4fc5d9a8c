//! The serial line to the host: whole lines, from any thread.
//!
//! The kernel holds back at most [`HELD_BACK_MAX`] bytes of what was written; then a writer waits.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::said::Said;

/// Bytes that may be on their way when the power goes: a page of the line's driver and the chip's own queue.
pub const HELD_BACK_MAX: usize = 4_096 + 16;

const DEVICE: &str = "/dev/ttyS1";

/// The line.
pub struct Line(Mutex<File>);

impl Line {
    /// Opens it.
    ///
    /// # Errors
    /// When this machine has no such line.
    pub fn open() -> Result<Line> {
        let file = OpenOptions::new().write(true).open(DEVICE).context(DEVICE)?;
        Ok(Line(Mutex::new(file)))
    }

    /// Says something; waits while too much is on its way.
    pub fn say(&self, said: &Said) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{said}\n");
        if let Err(error) = file.write_all(text.as_bytes()) {
            eprintln!("{said}: {DEVICE}: {error}");
        }
    }
}
