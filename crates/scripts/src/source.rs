//! The cost of a compilation, told from the source.
//!
//! Lua walks the list of open jumps at each further jump: its time grows with their square.

use crate::current::Current;

/// A longer source is compiled on a thread for scripts only.
const SHORT_LEN_MAX: usize = 64 << 10;
const SHORT_JUMPS_MAX: usize = 2_048;

/// Jumps of any source. No budget can end a compilation.
const JUMPS_MAX: usize = 32_768;

/// The error of a source that would compile for seconds.
pub(crate) const TOO_MANY_JUMPS: &str =
    "user_script: too many jumps (at most 32768 of 'if', 'or', 'and', 'break')";

/// At most so many jumps.
fn jumps(source: &[u8]) -> usize {
    let count = |word: &[u8]| source.windows(word.len()).filter(|&part| part == word).count();
    [&b"or"[..], b"and", b"if", b"break"].into_iter().map(count).sum()
}

/// A worker may compile the source.
pub(crate) fn compiles_soon(source: &[u8]) -> bool {
    source.len() <= SHORT_LEN_MAX && jumps(source) <= SHORT_JUMPS_MAX
}

/// A thread for scripts may compile the source.
pub(crate) fn compiles(source: &[u8]) -> bool {
    jumps(source) <= JUMPS_MAX
}

/// The error of a source in a source.
pub(crate) fn refusal(source: &[u8]) -> Option<&'static str> {
    (!compiles(source)).then_some(TOO_MANY_JUMPS)
}

/// Counts a compilation. True if the run must end.
pub(crate) fn spend(source: &[u8], current: &mut Current) -> bool {
    let (len, jumps) = (source.len() as u64, jumps(source) as u64);
    current.spend(len + jumps * jumps / 25)
}
