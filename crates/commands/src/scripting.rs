//! Scripts: rows, and the call of the engine that runs them.
//!
//! The engine is in a crate of its own, above this one: [`ScriptEngine`] is the way to it.

use std::fmt::Debug;
use std::sync::Arc;

use base::decimal::parse_i64;
use types::Reply;

use crate::errors::{self, ErrorReply};
use crate::plan::Arguments;
use crate::space::{Halt, Space};
use crate::work::WORK_MAX;

crate::module::modules! {
    eval,
    script,
}

/// Hexadecimal digits of a digest.
pub const DIGEST_LEN: usize = 40;

/// One run of a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptCall<'a> {
    pub source: &'a [u8],
    pub keys: &'a [&'a [u8]],
    pub args: &'a [&'a [u8]],
    /// No command of it may write.
    pub is_read_only: bool,
}

/// The limits of one run: of a script, or of the commands on a space. A run beyond them has no
/// effect.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Instructions of the virtual machine, and bytes moved at a rate of [`BYTES_PER_INSTRUCTION`].
    pub instructions: u64,
    /// Bytes of its values.
    pub memory: usize,
    /// Nanoseconds of its commands, about.
    pub work: u64,
    /// Asked now and then; ends the run.
    pub interrupt: Option<Arc<dyn Interrupt>>,
}

/// Bytes that cost as much as one instruction.
pub const BYTES_PER_INSTRUCTION: u64 = 64;

/// Tells a long run to end.
pub trait Interrupt: Debug + Send + Sync {
    /// The error with which the run ends now.
    fn ends(&self) -> Option<&'static str>;
}

impl Budget {
    /// The budget of a run that holds up a worker.
    pub const SHORT: Budget =
        Budget { instructions: 200_000, memory: 8 << 20, work: WORK_MAX, interrupt: None };

    /// The run may move to a thread of its own.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.interrupt.is_none()
    }
}

/// Runs a script on a space. An error after its first command is a reply: its changes count.
#[derive(Clone, Copy, Debug)]
pub struct ScriptEngine {
    pub run: fn(&ScriptCall<'_>, &mut Space) -> Result<Reply, Halt>,
    /// The error of a source that does not compile.
    pub check: fn(&[u8]) -> Result<(), ErrorReply>,
}

/// Runs `EVAL` and its variants. A digest is unknown here: sessions put the source in its place.
pub(crate) fn run(arguments: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let args = arguments.all;
    let count = count_of_keys(args)?;
    if is_by_digest(arguments.spec.name) {
        return Err(errors::NO_SCRIPT.into());
    }
    let engine = space.interpreter().scripts.ok_or(errors::NO_SCRIPT_ENGINE)?;
    let (keys, rest) = args[3..].split_at(count);
    let is_read_only = arguments.spec.name == "eval_ro";
    let call = ScriptCall { source: args[1], keys, args: rest, is_read_only };
    space.set_scripted(true);
    let reply = (engine.run)(&call, space);
    space.set_scripted(false);
    reply
}

/// The number of keys of `EVAL` and its variants.
///
/// # Errors
/// It is no number, or does not fit.
pub(crate) fn count_of_keys(args: &[&[u8]]) -> Result<usize, ErrorReply> {
    let count = args.get(2).and_then(|count| parse_i64(count)).ok_or(errors::NOT_AN_INTEGER)?;
    match usize::try_from(count) {
        Ok(count) if count <= args.len() - 3 => Ok(count),
        Ok(_) => Err(errors::TOO_MANY_KEYS),
        Err(_) if count < 0 => Err(errors::NEGATIVE_KEYS),
        Err(_) => Err(errors::TOO_MANY_KEYS),
    }
}

/// The row names its script by a digest.
#[must_use]
pub fn is_by_digest(name: &str) -> bool {
    matches!(name, "evalsha" | "evalsha_ro")
}
