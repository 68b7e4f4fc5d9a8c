//! The targets, one file each. A target is deterministic: the same bytes, the same steps.

mod commands;
mod config;
mod disk;
mod dumps;
mod frames;
mod handshake;
mod identity;
mod image;
mod messages;
mod outcomes;
mod payloads;
mod pmem;
mod replies;
mod requests;
mod scripts;

/// A function of any bytes, which panics when something does not hold.
#[derive(Clone, Copy)]
pub struct Target {
    /// As on the command line, and the name of the program in `fuzz/`.
    pub name: &'static str,
    /// What it holds.
    pub claim: &'static str,
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Inputs that a test draws: about a second's worth.
    pub short: u64,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    requests::TARGET,
    replies::TARGET,
    frames::TARGET,
    handshake::TARGET,
    payloads::TARGET,
    messages::TARGET,
    outcomes::TARGET,
    commands::TARGET,
    dumps::TARGET,
    scripts::TARGET,
    disk::TARGET,
    pmem::TARGET,
    identity::TARGET,
    config::TARGET,
];

/// The target of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs the target of this name.
///
/// # Panics
/// If there is none, or it finds something.
pub fn run(name: &str, data: &[u8]) {
    let target = find(name).unwrap_or_else(|| panic!("there is no target {name:?}"));
    (target.run)(data);
}
