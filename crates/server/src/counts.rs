//! Counters of commands and errors, for `INFO commandstats` and `INFO errorstats`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use commands::CommandSpec;

/// Kinds of errors counted apart, as in Redis.
const ERROR_KINDS_MAX: usize = 128;

pub(crate) struct Counts {
    /// Sorted by the address of the row, which is how a command is found again.
    commands: Vec<CommandCount>,
    errors: Mutex<BTreeMap<String, u64>>,
    pub total: AtomicU64,
}

struct CommandCount {
    spec: &'static CommandSpec,
    calls: AtomicU64,
    rejected: AtomicU64,
}

impl Counts {
    pub(crate) fn new() -> Counts {
        let rows = commands::table::rows();
        let mut commands: Vec<CommandCount> = rows
            .flat_map(|row| std::iter::once(row).chain(row.subcommands))
            .map(|spec| CommandCount {
                spec,
                calls: AtomicU64::new(0),
                rejected: AtomicU64::new(0),
            })
            .collect();
        commands.sort_by_key(|count| std::ptr::from_ref(count.spec).addr());
        Counts { commands, errors: Mutex::default(), total: AtomicU64::new(0) }
    }

    fn of(&self, spec: &'static CommandSpec) -> Option<&CommandCount> {
        self.at(std::ptr::from_ref(spec).addr())
    }

    fn at(&self, address: usize) -> Option<&CommandCount> {
        let at = self
            .commands
            .binary_search_by_key(&address, |count| std::ptr::from_ref(count.spec).addr())
            .ok()?;
        Some(&self.commands[at])
    }

    /// The command whose row is at this address.
    pub(crate) fn name_at(&self, address: usize) -> Option<&'static str> {
        self.at(address).map(|count| count.spec.name)
    }

    pub(crate) fn called(&self, spec: &'static CommandSpec) {
        self.total.fetch_add(1, Relaxed);
        if let Some(count) = self.of(spec) {
            count.calls.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn rejected(&self, spec: &'static CommandSpec) {
        if let Some(count) = self.of(spec) {
            count.rejected.fetch_add(1, Relaxed);
        }
    }

    /// Counts an error reply by its first word.
    pub(crate) fn error(&self, reply: &[u8]) {
        let word = reply[1..].split(|byte| *byte == b' ' || *byte == b'\r').next();
        let word = String::from_utf8_lossy(word.unwrap_or_default()).into_owned();
        if let Ok(mut errors) = self.errors.lock()
            && (errors.len() < ERROR_KINDS_MAX || errors.contains_key(&word))
        {
            *errors.entry(word).or_default() += 1;
        }
    }

    pub(crate) fn reset(&self) {
        for count in &self.commands {
            count.calls.store(0, Relaxed);
            count.rejected.store(0, Relaxed);
        }
        self.total.store(0, Relaxed);
        if let Ok(mut errors) = self.errors.lock() {
            errors.clear();
        }
    }

    /// Name, calls and rejected calls of every command that was called.
    pub(crate) fn commands(&self) -> Vec<(&'static str, u64, u64)> {
        let mut called: Vec<_> = self
            .commands
            .iter()
            .map(|c| (c.spec.name, c.calls.load(Relaxed), c.rejected.load(Relaxed)))
            .filter(|(_, calls, rejected)| calls + rejected > 0)
            .collect();
        called.sort_unstable();
        called
    }

    pub(crate) fn errors_total(&self) -> u64 {
        self.errors().iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        self.errors.lock().map(|errors| errors.clone().into_iter().collect()).unwrap_or_default()
    }
}
