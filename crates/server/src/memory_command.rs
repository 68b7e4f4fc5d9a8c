//! `MEMORY DOCTOR`, `MALLOC-STATS`, `PURGE` and `STATS`: the memory of this process.

use commands::SessionVerb;
use node::session::SessionContext;
use types::{Double, Reply};

/// Resident bytes below which redis-server finds nothing to examine.
const EXAMINED_MIN: u64 = 5 << 20;
const EMPTY: &str = "Hi Sam, this instance is empty or is using very little memory, my issues \
detector can't be used in these conditions. Please, leave for your mission on Earth and fill it with some data. \
The new Sam and I will be back to our programming as soon as I finished rebooting.\n";
const HEALTHY: &str = "Hi Sam, I can't find any memory issue in your instance. \
I can only account for what occurs on this base.\n";

/// The reply to one of them.
pub(crate) fn reply(verb: SessionVerb, cx: &SessionContext<'_>) -> Reply {
    match verb {
        SessionVerb::MemoryPurge => Reply::OK,
        SessionVerb::MemoryDoctor => {
            let is_empty = memory_of_process().0 < EXAMINED_MIN;
            Reply::text(if is_empty { EMPTY } else { HEALTHY })
        }
        SessionVerb::MemoryStats => stats(cx),
        _ => Reply::bulk("Stats not supported for the current allocator"),
    }
}

/// Only fields that are known here; `keys` and `dataset` are those of the replica at this node.
fn stats(cx: &SessionContext<'_>) -> Reply {
    let (resident, peak) = memory_of_process();
    let databases = cx.node.databases();
    let keys: u64 = databases.iter().map(|one| one.keys).sum();
    let dataset: u64 = databases.iter().map(|one| one.bytes).sum();
    let number = |value: u64| Reply::Integer(i64::try_from(value).unwrap_or(i64::MAX));
    let percent =
        |part: u64, of: u64| Reply::Double(Double(100.0 * part as f64 / of.max(1) as f64));
    Reply::map([
        ("peak.allocated", number(peak)),
        ("total.allocated", number(resident)),
        ("keys.count", number(keys)),
        ("keys.bytes-per-key", number(dataset / keys.max(1))),
        ("dataset.bytes", number(dataset)),
        ("dataset.percentage", percent(dataset.min(resident), resident)),
        ("peak.percentage", percent(resident, peak)),
    ])
}

/// Bytes of memory of this process: resident now, and at most so far. Zero where the kernel does
/// not tell.
fn memory_of_process() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let bytes = |name| field(name).unwrap_or(0).saturating_mul(1024);
    (bytes("VmRSS:"), bytes("VmHWM:"))
}
