//! `./x pmem-vm`: the command line, on the host and in the guest.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::Parser;
use pmem_vm::host::boot::Interrupted;
use pmem_vm::{guest, host};

/// Runs the store on emulated persistent memory in a guest, and cuts its power.
#[derive(Parser)]
#[command(name = "pmem-vm")]
enum Part {
    /// Boots guests and judges them; exit code 0: no fault, 1: a fault, 2: the run could not be
    /// made
    Host(host::Arguments),
    /// The part inside
    Guest(guest::Arguments),
}

fn main() -> ExitCode {
    let done = match Part::parse() {
        Part::Host(arguments) => run(&arguments),
        Part::Guest(arguments) => guest::run(arguments).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) if error.chain().any(|cause| cause.is::<Interrupted>()) => {
            eprintln!("pmem-vm: interrupted; everything was cleaned up");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("pmem-vm: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &host::Arguments) -> Result<bool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
    }
    host::run::run(arguments, &stop)
}
