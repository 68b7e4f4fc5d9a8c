//! The `palimpsest` program: one file per subcommand.
//!
//! It is a library so that tests can parse arguments and files without a process:
//! [`understand_arguments`], [`understand_file`].
//!
//! Exit codes: 0 good, 1 it ran and found a fault, 2 wrong usage or configuration. An error is one
//! line on stderr with the remedy.

#[macro_use]
mod output;

mod command;
mod config;
mod limits;
mod log;
mod running;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

/// A strongly consistent replicated store that keeps no log and speaks the Redis protocol.
#[derive(Parser)]
#[command(name = "palimpsest", version, about, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a whole cluster on this machine in one process.
    Dev(command::dev::Args),
    /// Run one node of a cluster.
    Serve(Box<config::ServeArgs>),
    /// Show all nodes of the cluster, from the address of one.
    Status(command::status::Args),
    /// Show the group of a database, or let a group go on that has lost all its data.
    Group(command::group::Args),
    /// Measure: throughput, other stores, failover, restart, idling, media.
    Bench(command::bench::Args),
    /// Run the deterministic simulator.
    Sim(command::sim::Args),
    /// Check a data directory offline, slot by slot.
    Verify(command::verify::Args),
    /// Make a node forget its data, so that a cluster that lost a majority can start anew.
    Reset(command::reset::Args),
    /// Show version, commit, and the features of this host.
    Version(command::version::Args),
    /// Print the completion script of a shell.
    Completions(command::pages::CompletionsArgs),
    /// Write the manual pages.
    #[command(hide = true)]
    Man(command::pages::ManArgs),
}

/// Why a subcommand failed.
#[derive(Debug)]
enum Failure {
    /// It ran and found a fault.
    Fault(String),
    /// It could not run: wrong usage, wrong configuration, a directory of another node.
    Usage(String),
    /// It found a fault that is in the log already.
    Logged,
}

impl Failure {
    fn fault(text: impl Into<String>) -> Failure {
        Failure::Fault(text.into())
    }

    fn usage(text: impl Into<String>) -> Failure {
        Failure::Usage(text.into())
    }
}

/// The command line, or the exit code if the program is done.
fn parse() -> Result<Cli, ExitCode> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help || !error.use_stderr() {
        let code = error.exit_code();
        match error.print() {
            Err(why) if !error.use_stderr() => output::give_up(&why),
            _ => return Err(ExitCode::from(code as u8)),
        }
    }
    eprintln!("palimpsest: {}", one_line(&error.to_string()));
    Err(ExitCode::from(2))
}

/// Parses `words`, the first of which is the program's name, and runs no command.
///
/// # Errors
/// The line that the program would print on standard error, or the help.
pub fn understand_arguments(words: &[String]) -> Result<(), String> {
    Cli::try_parse_from(words).map(drop).map_err(|error| one_line(&error.to_string()))
}

/// Parses a configuration file as `serve` does. It reads no file named there and looks up no host.
///
/// # Errors
/// The line that the program would print on standard error.
pub fn understand_file(text: &str) -> Result<node::config::NodeConfig, String> {
    match config::understand(text) {
        Ok(config) => Ok(config.node),
        Err(Failure::Fault(text) | Failure::Usage(text)) => Err(one_line(&text)),
        Err(Failure::Logged) => Err(String::new()),
    }
}

/// The paragraphs of an error as one line.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        if !line.is_empty() {
            line.push_str(if line.ends_with(':') { " " } else { "; " });
        }
        line.push_str(part);
    }
    line
}

/// Runs the program on the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let command = match parse() {
        Ok(cli) => cli.command,
        Err(code) => return code,
    };
    if let Err(Failure::Usage(text) | Failure::Fault(text)) =
        config::environment::check(&Cli::command())
    {
        eprintln!("palimpsest: {}", one_line(&text));
        return ExitCode::from(2);
    }
    let done = match command {
        Command::Dev(args) => command::dev::run(&args),
        Command::Serve(args) => command::serve::run(&args),
        Command::Status(args) => command::status::run(&args),
        Command::Group(args) => command::group::run(&args),
        Command::Bench(args) => command::bench::run(&args),
        Command::Sim(args) => command::sim::run(&args),
        Command::Verify(args) => command::verify::run(&args),
        Command::Reset(args) => command::reset::run(&args),
        Command::Version(args) => command::version::run(&args),
        Command::Completions(args) => command::pages::completions(&args),
        Command::Man(args) => command::pages::man(&args),
    };
    let (code, text) = match done {
        Ok(()) => (0, None),
        Err(Failure::Fault(text)) => (1, Some(text)),
        Err(Failure::Usage(text)) => (2, Some(text)),
        Err(Failure::Logged) => (1, None),
    };
    match text.map(|text| one_line(&text)) {
        Some(text) if log::is_started() => tracing::error!(target: "palimpsest", "{text}"),
        Some(text) => eprintln!("palimpsest: {text}"),
        None => {}
    }
    log::flush();
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_several_lines_become_one() {
        let of = |words: &[&str]| match Cli::try_parse_from(words) {
            Ok(_) => panic!("{words:?} is a good command line"),
            Err(error) => one_line(&error.to_string()),
        };
        assert_eq!(
            of(&["palimpsest", "verify"]),
            "the following required arguments were not provided: <DIR>; Usage: palimpsest verify <DIR>; \
             For more information, try '--help'."
        );
        assert!(of(&["palimpsest", "serve", "--id", "0"]).contains("1..=65535"));
    }
}
