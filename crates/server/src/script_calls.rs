//! The calls of scripts: `INFO commandstats` counts them, and clients that monitor see them.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use commands::Trace;
use node::session::SessionContext;
use types::{Outcome, Reply};

use crate::exec::is_local;
use crate::monitor;
use crate::session::Session;

/// Takes the trace of a transaction's last whole run, for its session. A run and the session
/// follow one another, so they never wait for each other.
#[derive(Debug)]
pub(crate) struct TraceSlot {
    has_lines: bool,
    trace: Mutex<Option<Trace>>,
}

impl TraceSlot {
    pub(crate) fn new(has_lines: bool) -> TraceSlot {
        TraceSlot { has_lines, trace: Mutex::default() }
    }

    /// The trace of a run that begins.
    pub(crate) fn begin(&self) -> Trace {
        Trace::new(self.has_lines)
    }

    /// A later run replaces an earlier one.
    pub(crate) fn put(&self, trace: Trace) {
        *self.trace.lock().unwrap_or_else(PoisonError::into_inner) = Some(trace);
    }

    fn take(&self) -> Option<Trace> {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Session {
    /// Calls of scripts are listed, not only counted.
    pub(crate) fn lists_calls(&self) -> bool {
        !self.shared.monitors.is_empty()
    }

    /// Takes the trace of a transaction that has ended. One whose watched keys changed has none.
    pub(crate) fn take_trace(&mut self, slot: &TraceSlot, is_list: bool, outcome: &Outcome) {
        match outcome {
            Outcome::Reply(Reply::NullArray) if is_list => {}
            Outcome::Reply(_) => self.note_trace(slot.take()),
            _ => {}
        }
    }

    /// Counts the calls of a run, and keeps them for monitors.
    pub(crate) fn note_trace(&mut self, trace: Option<Trace>) {
        let counts = trace.iter().flat_map(Trace::counts);
        counts.for_each(|calls| self.recorder.end_calls(calls));
        self.traced = trace.filter(|_| self.lists_calls());
    }

    /// Shows the calls of one script.
    pub(crate) fn show_traced(&mut self, cx: &SessionContext<'_>) {
        let Some(trace) = self.traced.take() else { return };
        for calls in trace.lines().unwrap_or_default() {
            self.show_calls(&calls, cx);
        }
    }

    /// Shows the lines of an `EXEC` and its own line, each script with its calls.
    pub(crate) fn show_executed(&mut self, lines: &[Vec<Bytes>], cx: &SessionContext<'_>) {
        let trace = self.traced.take();
        let calls = trace.as_ref().and_then(Trace::lines).unwrap_or_default();
        let mut calls = calls.into_iter();
        for line in lines {
            let args: Vec<&[u8]> = line.iter().map(AsRef::as_ref).collect();
            let Ok(spec) = commands::find(&args) else { continue };
            self.show_to_monitors(spec, &args, cx);
            if !is_local(spec) {
                self.show_calls(&calls.next().unwrap_or_default(), cx);
            }
        }
    }

    fn show_calls(&self, calls: &[Vec<&[u8]>], cx: &SessionContext<'_>) {
        for args in calls {
            let micros = self.monitor_micros(cx);
            let line = monitor::line(micros, self.facts.database, &"lua", args);
            self.shared.monitors.show(&line);
        }
    }
}
