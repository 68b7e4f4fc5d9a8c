//! The end of `EXEC`: its lines are counted by command. The session executes the commands of the
//! connection among them, once the others have run.

use base::Nanos;
use bytes::Bytes;
use commands::{CommandSpec, Execution, SessionVerb};
use node::session::SessionContext;
use types::{Outcome, Reply};

use crate::counts::Verdict;
use crate::session::Session;

/// An `EXEC` under way.
#[derive(Debug)]
pub(crate) struct Executing {
    /// Of the request in the pipeline.
    pub(crate) number: u64,
    /// The rows of its lines, in order.
    specs: Vec<&'static CommandSpec>,
    local: LocalLines,
    /// Lines that monitors see once all have run, among the calls of their scripts.
    shown: Vec<Vec<Bytes>>,
    began: Nanos,
}

/// Lines that the session executes, each with its place.
pub(crate) type LocalLines = Vec<(usize, Vec<Bytes>)>;

/// True for a command that the session executes at once, whatever the state of the connection.
pub(crate) fn is_local(spec: &CommandSpec) -> bool {
    use SessionVerb::{
        Auth, ClientPause, ClientReply, DbSize, Discard, Exec, FlushAll, FlushDb, Hello,
        KeyExplain, Keys, Monitor, Multi, Quit, RandomKey, Reset, Scan, ScriptExists, ScriptFlush,
        ScriptKill, ScriptLoad, Wait, Watch,
    };
    match spec.execution {
        Execution::Session(
            Auth | ClientPause | ClientReply | DbSize | Discard | Exec | FlushAll | FlushDb | Hello
            | KeyExplain | Keys | Monitor | Multi | Quit | RandomKey | Reset | Scan | ScriptExists
            | ScriptFlush | ScriptKill | ScriptLoad | Wait | Watch,
        ) => false,
        Execution::Session(_) => true,
        _ => false,
    }
}

/// Takes the lines out that the session executes.
pub(crate) fn split(
    lines: Vec<Vec<Bytes>>,
) -> (Vec<&'static CommandSpec>, Vec<Vec<Bytes>>, LocalLines) {
    let (mut specs, mut others, mut local) = (Vec::new(), Vec::new(), LocalLines::new());
    for (place, line) in lines.into_iter().enumerate() {
        let Ok(spec) = commands::find(&line.iter().map(AsRef::as_ref).collect::<Vec<_>>()) else {
            continue;
        };
        specs.push(spec);
        match is_local(spec) {
            true => local.push((place, line)),
            false => others.push(line),
        }
    }
    (specs, others, local)
}

impl Executing {
    pub(crate) fn new(
        specs: Vec<&'static CommandSpec>,
        local: LocalLines,
        shown: Vec<Vec<Bytes>>,
        began: Nanos,
    ) -> Executing {
        Executing { number: 0, specs, local, shown, began }
    }
}

impl Session {
    /// The outcome for the client, if it is that of an `EXEC`.
    pub(crate) fn on_executed(
        &mut self,
        number: u64,
        outcome: Outcome,
        cx: &mut SessionContext<'_>,
    ) -> Outcome {
        let Some(executing) = self.executing.take_if(|it| it.number == number) else {
            return outcome;
        };
        let is_overtaken = outcome == Outcome::Reply(Reply::NullArray);
        let from = if is_overtaken { executing.shown.len().saturating_sub(1) } else { 0 };
        self.show_executed(&executing.shown[from..], cx);
        match outcome {
            Outcome::Reply(Reply::Array(replies)) => {
                Outcome::Reply(Reply::Array(self.complete(executing, replies, cx)))
            }
            other => other,
        }
    }

    /// Takes the line of an `EXEC` whose lines monitors see later.
    pub(crate) fn shows_later(&mut self, args: &[&[u8]]) -> bool {
        let Some(executing) = self.executing.as_mut().filter(|it| !it.shown.is_empty()) else {
            return false;
        };
        executing.shown.push(args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect());
        true
    }

    /// An `EXEC` has failed before it ran.
    pub(crate) fn end_executing(&mut self, number: u64, cx: &SessionContext<'_>) {
        if let Some(executing) = self.executing.take_if(|it| it.number == number) {
            self.show_executed(&executing.shown, cx);
        }
    }

    /// Executes the lines of the connection, and counts all.
    pub(crate) fn complete(
        &mut self,
        executing: Executing,
        mut replies: Vec<Reply>,
        cx: &mut SessionContext<'_>,
    ) -> Vec<Reply> {
        let Executing { specs, local, began, .. } = executing;
        for (place, line) in local {
            let args: Vec<&[u8]> = line.iter().map(AsRef::as_ref).collect();
            let reply = self.execute_local(&args, cx);
            replies.insert(place.min(replies.len()), reply);
        }
        let time = Nanos(cx.moment.since(began).0 / specs.len().max(1) as u64);
        for (spec, reply) in specs.into_iter().zip(&replies) {
            let verdict = if reply.is_error() { Verdict::Failed } else { Verdict::Answered };
            self.recorder.end(spec, verdict, time);
        }
        replies
    }

    fn execute_local(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) -> Reply {
        let Ok(spec) = commands::find(args) else { return Reply::Null };
        let Execution::Session(verb) = spec.execution else { return Reply::Null };
        let before = self.captured.replace(Vec::new());
        self.execute(verb, args, cx);
        let captured = std::mem::replace(&mut self.captured, before);
        captured.and_then(|mut replies| replies.pop()).unwrap_or(Reply::Null)
    }
}
