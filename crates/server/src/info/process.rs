//! Facts about this process and its machine, as Linux tells them.

use std::fs::read_to_string;

/// Memory of this process in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Memory {
    /// Allocated and resident, without mapped files.
    pub used: u64,
    /// All that is resident.
    pub resident: u64,
}

/// Processor seconds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cpu {
    pub user: f64,
    pub system: f64,
    pub user_of_children: f64,
    pub system_of_children: f64,
}

/// `None` where the system does not tell.
pub(crate) fn memory() -> Option<Memory> {
    let status = read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| kilobytes(&status, name).map(|count| count << 10);
    let shared = field("RssShmem:").unwrap_or(0);
    Some(Memory { used: field("RssAnon:")? + shared, resident: field("VmRSS:")? })
}

pub(crate) fn system_memory() -> Option<u64> {
    kilobytes(&read_to_string("/proc/meminfo").ok()?, "MemTotal:").map(|count| count << 10)
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Of the whole process; the kernel counts in hundredths of a second.
pub(crate) fn cpu() -> Option<Cpu> {
    parse_cpu(&read_to_string("/proc/self/stat").ok()?)
}

/// Of the thread that started the process.
pub(crate) fn cpu_of_main_thread() -> Option<Cpu> {
    let path = format!("/proc/self/task/{}/stat", std::process::id());
    parse_cpu(&read_to_string(path).ok()?)
}

fn parse_cpu(stat: &str) -> Option<Cpu> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(|field| field.parse::<f64>().ok());
    let mut seconds = || Some(ticks.next()?? / 100.0);
    Some(Cpu {
        user: seconds()?,
        system: seconds()?,
        user_of_children: seconds()?,
        system_of_children: seconds()?,
    })
}

pub(crate) fn os() -> String {
    let release = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let name = if cfg!(target_os = "linux") { "Linux" } else { std::env::consts::OS };
    [name, release.trim(), std::env::consts::ARCH].join(" ").replace("  ", " ")
}

/// Bytes in the unit that people read, as in Redis.
pub(crate) fn human(bytes: u64) -> String {
    let units = [(1_u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.2}{name}", bytes as f64 / *unit as f64),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 9 0 0 0 150 25 3 4 20 0 1 0 9 0";
        let cpu = parse_cpu(stat).unwrap();
        assert_eq!((cpu.user, cpu.system), (1.5, 0.25));
        assert_eq!((cpu.user_of_children, cpu.system_of_children), (0.03, 0.04));
        assert!(parse_cpu("nothing").is_none());
    }

    #[test]
    fn sizes_are_written_as_in_redis() {
        for (bytes, text) in [
            (0, "0B"),
            (1_023, "1023B"),
            (32_768, "32.00K"),
            (1_091_160, "1.04M"),
            (25_276_510_208, "23.54G"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn this_process_uses_memory_and_time() {
        let memory = memory().unwrap();
        assert!(memory.used > 0 && memory.resident >= memory.used);
        assert!(system_memory().unwrap() > memory.resident);
        assert!(cpu().is_some() && cpu_of_main_thread().is_some());
    }
}
