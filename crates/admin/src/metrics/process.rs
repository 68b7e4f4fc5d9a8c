//! `process_*`: the metrics that every client library of Prometheus exports, under the same names.
//!
//! They come from `/proc`; a system without it gets none of them.

use std::fmt::Error;
use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::writer::{Family, Kind, Unit, Writer};

/// `/proc/self/stat`, as far as it is exported.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

pub(super) fn write(writer: &mut Writer<'_>) -> Result<(), Error> {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some(stat) = parse(&text) else { return Ok(()) };
    let ticks = clock_ticks_per_second() as f64;
    let mut put =
        |kind, name, unit, help, number: f64| writer.one(kind, Family { name, unit, help }, number);
    let cpu = stat.cpu_ticks as f64 / ticks;
    put(Kind::Counter, "process_cpu", Unit::Seconds, "Total user and system CPU time", cpu)?;
    let resident = stat.resident_pages as f64 * page_size() as f64;
    put(Kind::Gauge, "process_resident_memory", Unit::Bytes, "Resident memory size", resident)?;
    let virtual_bytes = stat.virtual_bytes as f64;
    put(Kind::Gauge, "process_virtual_memory", Unit::Bytes, "Virtual memory size", virtual_bytes)?;
    let help = "Number of OS threads in the process";
    put(Kind::Gauge, "process_threads", Unit::None, help, stat.threads as f64)?;
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // One of them is the directory that is being read.
        let open = files.count().saturating_sub(1) as f64;
        put(Kind::Gauge, "process_open_fds", Unit::None, "Number of open file descriptors", open)?;
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        let help = "Maximum number of open file descriptors";
        put(Kind::Gauge, "process_max_fds", Unit::None, help, most as f64)?;
    }
    if let Some(boot) = boot_time(&fs::read_to_string("/proc/stat").unwrap_or_default()) {
        let started = boot as f64 + stat.started_ticks as f64 / ticks;
        let help = "Start time of the process since the Unix epoch in seconds";
        put(Kind::Gauge, "process_start_time", Unit::Seconds, help, started)?;
    }
    Ok(())
}

fn parse(text: &str) -> Option<Stat> {
    // The name of the program is in parentheses, and may hold spaces and parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // `man 5 proc_pid_stat` counts from 1 and counts two fields before these.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        started_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

/// Seconds since the epoch, from `/proc/stat`.
fn boot_time(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_strange_name_is_understood() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 12 0 4242 1000000 300 \
                    18446744073709551615";
        let expected = Stat {
            cpu_ticks: 300,
            threads: 12,
            started_ticks: 4_242,
            virtual_bytes: 1_000_000,
            resident_pages: 300,
        };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("7 (a) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn boot_time_has_its_line() {
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 5\n"), Some(1_700_000_000));
        assert_eq!(boot_time("cpu 1 2\n"), None);
    }
}
