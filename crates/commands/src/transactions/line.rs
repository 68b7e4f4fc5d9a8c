//! A command line that names one key several times, or may name several: it runs on the register of
//! that key.

use types::Applied;
use types::wire::{Malformed, Reader};

use crate::context::{Context, RunResult};
use crate::errors;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;
use crate::space::{Halt, Space};
use crate::table;

pub(super) const MODULE: Module = Module { rows: &[], operations: handlers![Line] };

/// All arguments, the name included.
pub(crate) struct Line<'a> {
    args: Vec<&'a [u8]>,
}

impl<'a> Line<'a> {
    pub(crate) fn of(args: &[&'a [u8]]) -> Line<'a> {
        Line { args: args.to_vec() }
    }
}

impl<'a> Operation<'a> for Line<'a> {
    const CODE: u8 = 23;
    const EXAMPLES: Examples = &[("MSET k v", b"\x17\x04MSET\x01k\x01v")];

    fn encode(&self, out: &mut impl Sink) {
        for arg in &self.args {
            out.blob(arg);
        }
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Line<'a>, Malformed> {
        let mut args = Vec::new();
        while !fields.is_empty() {
            args.push(fields.blob(types::limits::RECORD_LEN_MAX)?);
        }
        Ok(Line { args })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let spec = table::resolve(&self.args)?;
        let keys = spec.key_indexes(&self.args);
        let key = keys.first().map(|&key| self.args[key]).ok_or(errors::NOT_UNDERSTOOD)?;
        let mut space = Space::new(&cx.interpreter(), cx.clock);
        space.load(bytes::Bytes::copy_from_slice(key), cx.view);
        let reply = match space.execute(&self.args) {
            Ok(reply) => reply,
            Err(Halt::Error(error)) => return Err(error),
            Err(Halt::Unloaded(_) | Halt::TooLong) => return Err(errors::RUN_AS_TRANSACTION),
        };
        let change = space.changes().map(|(_, change)| change).next();
        Ok(Applied { change: change.unwrap_or(types::Change::None), reply })
    }
}
