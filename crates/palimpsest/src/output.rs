//! Output of commands that end by themselves.
//!
//! The macros here stand in for those of the standard library, which panic if a stream cannot be
//! written. A reader may stop reading, as `head` does. Then the command ends without a word, with
//! the exit code of a program that SIGPIPE ended. Standard output that cannot be written for
//! another reason is a fault. Standard error may be lost.

macro_rules! println {
    () => { $crate::output::to_stdout(format_args!("\n")) };
    ($($text:tt)*) => {
        $crate::output::to_stdout(format_args!("{}\n", format_args!($($text)*)))
    };
}

macro_rules! print {
    ($($text:tt)*) => { $crate::output::to_stdout(format_args!($($text)*)) };
}

macro_rules! eprintln {
    () => { $crate::output::to_stderr(format_args!("\n")) };
    ($($text:tt)*) => {
        $crate::output::to_stderr(format_args!("{}\n", format_args!($($text)*)))
    };
}

macro_rules! eprint {
    ($($text:tt)*) => { $crate::output::to_stderr(format_args!($($text)*)) };
}

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::exit;

/// 128 + SIGPIPE, as shells report it.
const BROKEN_PIPE: i32 = 141;

pub(crate) fn to_stdout(text: Arguments<'_>) {
    if let Err(error) = io::stdout().lock().write_fmt(text) {
        give_up(&error);
    }
}

pub(crate) fn to_stderr(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Ends the process, since standard output cannot be written.
pub(crate) fn give_up(error: &io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        exit(BROKEN_PIPE);
    }
    eprintln!("palimpsest: cannot write to standard output: {error}");
    exit(1);
}
