//! The commands that scripts call: counted for statistics, and listed for clients that monitor.

use bytes::Bytes;
use types::Reply;
use types::wire::{Malformed, Reader, put_blob, put_varint};

use crate::spec::{CommandSpec, Flag};
use crate::table;

/// Bytes of the listed calls. Later ones are left out.
const LINES_LEN_MAX: usize = 1 << 20;

/// The calls of scripts in one run of command lines.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Trace {
    counts: Vec<Calls>,
    /// Calls as numbers of words and words. A zero ends those of a command line.
    lines: Option<Vec<u8>>,
    is_cut: bool,
}

/// The calls of one command.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub spec: &'static CommandSpec,
    pub ended: u64,
    /// Some of `ended`.
    pub failed: u64,
    /// Refused before they ran.
    pub rejected: u64,
    pub nanos: u64,
}

impl PartialEq for Calls {
    fn eq(&self, other: &Calls) -> bool {
        let numbers = |it: &Calls| (it.ended, it.failed, it.rejected, it.nanos);
        std::ptr::eq(self.spec, other.spec) && numbers(self) == numbers(other)
    }
}

impl Trace {
    #[must_use]
    pub fn new(has_lines: bool) -> Trace {
        Trace { lines: has_lines.then(Vec::new), ..Trace::default() }
    }

    /// Notes a call that has ended.
    pub fn note(&mut self, spec: &'static CommandSpec, args: &[&[u8]], failed: bool, nanos: u64) {
        let calls = self.of(spec);
        calls.ended += 1;
        calls.failed += u64::from(failed);
        calls.nanos += nanos;
        if self.lines.is_some() && !spec.has(Flag::Admin) {
            self.list(args);
        }
    }

    /// Notes a call that was refused.
    pub fn reject(&mut self, spec: &'static CommandSpec) {
        self.of(spec).rejected += 1;
    }

    /// Later calls are those of the next command line.
    pub fn end_line(&mut self) {
        if let Some(lines) = &mut self.lines {
            lines.push(0);
        }
    }

    #[must_use]
    pub fn counts(&self) -> &[Calls] {
        &self.counts
    }

    /// The calls of each command line, if they are listed.
    #[must_use]
    pub fn lines(&self) -> Option<Vec<Vec<Vec<&[u8]>>>> {
        read_lines(self.lines.as_ref()?).ok()
    }

    fn of(&mut self, spec: &'static CommandSpec) -> &mut Calls {
        let at = self.counts.iter().position(|calls| std::ptr::eq(calls.spec, spec));
        let at = at.unwrap_or_else(|| {
            self.counts.push(Calls { spec, ended: 0, failed: 0, rejected: 0, nanos: 0 });
            self.counts.len() - 1
        });
        &mut self.counts[at]
    }

    fn list(&mut self, args: &[&[u8]]) {
        let Some(lines) = &mut self.lines else { return };
        let len: usize = args.iter().map(|arg| arg.len() + 5).sum();
        self.is_cut |= lines.len() + len > LINES_LEN_MAX;
        if !self.is_cut {
            put_varint(lines, args.len() as u64);
            args.iter().for_each(|arg| put_blob(lines, arg));
        }
    }

    /// The reply with this trace, for [`Trace::unwrap`].
    pub(crate) fn wrap(&self, reply: Reply) -> Reply {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, self.counts.len() as u64);
        for calls in &self.counts {
            put_blob(&mut bytes, calls.spec.name.as_bytes());
            for number in [calls.ended, calls.failed, calls.rejected, calls.nanos] {
                put_varint(&mut bytes, number);
            }
        }
        bytes.push(u8::from(self.lines.is_some()));
        bytes.extend_from_slice(self.lines.as_deref().unwrap_or_default());
        Reply::Array(vec![reply, Reply::Bulk(bytes.into())])
    }

    /// The reply of lines that were asked for with a trace. An error has none.
    #[must_use]
    pub fn unwrap(reply: Reply) -> (Reply, Option<Trace>) {
        let Reply::Array(mut parts) = reply else { return (reply, None) };
        let trace = match parts.pop() {
            Some(Reply::Bulk(bytes)) => Trace::read(&bytes).ok(),
            _ => None,
        };
        (parts.pop().unwrap_or(Reply::Null), trace)
    }

    fn read(bytes: &Bytes) -> Result<Trace, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut counts = Vec::new();
        for _ in 0..reader.varint()? {
            let name = reader.blob(bytes.len())?;
            let mut number = || reader.varint();
            let (ended, failed, rejected, nanos) = (number()?, number()?, number()?, number()?);
            // A newer version may know more commands.
            if let Some(spec) = table::lookup_full(name) {
                counts.push(Calls { spec, ended, failed, rejected, nanos });
            }
        }
        let has_lines = reader.u8()? != 0;
        let lines = has_lines.then(|| reader.rest().to_vec());
        Ok(Trace { counts, lines, is_cut: false })
    }
}

fn read_lines(bytes: &[u8]) -> Result<Vec<Vec<Vec<&[u8]>>>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut all = vec![Vec::new()];
    while !reader.is_empty() {
        match reader.varint()? {
            0 => all.push(Vec::new()),
            words => {
                let mut call = Vec::new();
                for _ in 0..words {
                    call.push(reader.blob(bytes.len())?);
                }
                all.last_mut().into_iter().for_each(|calls| calls.push(call.clone()));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> &'static CommandSpec {
        table::lookup_full(name.as_bytes()).expect("it is a command")
    }

    fn noted(has_lines: bool) -> Trace {
        let mut trace = Trace::new(has_lines);
        trace.note(spec("get"), &[b"get", b"k"], false, 7);
        trace.note(spec("object|encoding"), &[b"object", b"encoding", b""], true, 5);
        trace.end_line();
        trace.end_line();
        trace.reject(spec("get"));
        trace.note(spec("get"), &[b"GET", b"\0"], false, 1);
        trace
    }

    #[test]
    fn trace_comes_back_from_its_reply() {
        for has_lines in [false, true] {
            let trace = noted(has_lines);
            let wrapped = trace.wrap(Reply::Integer(3));
            assert_eq!(Trace::unwrap(wrapped), (Reply::Integer(3), Some(trace)));
        }
        let get = noted(false).counts()[0];
        assert_eq!((get.ended, get.failed, get.rejected, get.nanos), (2, 0, 1, 8));
        let error = Reply::error("ERR x");
        assert_eq!(Trace::unwrap(error.clone()), (error, None));
    }

    #[test]
    fn calls_are_listed_by_command_line() {
        assert_eq!(noted(false).lines(), None);
        let lines: Vec<Vec<Vec<&[u8]>>> = vec![
            vec![vec![b"get", b"k"], vec![b"object", b"encoding", b""]],
            vec![],
            vec![vec![b"GET", b"\0"]],
        ];
        assert_eq!(noted(true).lines(), Some(lines));
    }

    #[test]
    fn listed_calls_are_bounded() {
        let (mut trace, long) = (Trace::new(true), vec![b'x'; LINES_LEN_MAX / 2]);
        for _ in 0..4 {
            trace.note(spec("get"), &[b"get", &long], false, 0);
        }
        trace.note(spec("get"), &[b"get", b"short"], false, 0);
        assert_eq!(trace.lines().map(|lines| lines[0].len()), Some(1));
        assert_eq!(trace.counts()[0].ended, 5);
    }

    #[test]
    fn malformed_traces_are_none() {
        for bytes in [&b""[..], b"\x05", b"\x01\xff", b"\x01\x03get\x01"] {
            let reply = Reply::Array(vec![Reply::Null, Reply::copy(bytes)]);
            assert_eq!(Trace::unwrap(reply), (Reply::Null, None));
        }
    }
}
