//! Threads for programs that would hold up a worker: one for scripts, one for all others. Each
//! lives while it has programs, and runs one after the other. So an endless script holds up
//! scripts only.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use base::Nanos;
use transactions::{Computation, Ran, Stop};
use types::Reply;

use super::mailbox::Mail;
use super::node_status::SharedNodeStatus;
use crate::worker::Input;

/// A run ends so long before the deadline of its request: its commit needs time.
const COMMIT_TIME: Nanos = Nanos::from_millis(100);

const KILLED: &str = "ERR Script killed by user with SCRIPT KILL...";
const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const TOO_MANY: &str =
    "TRYAGAIN too many large transactions wait for their run; it had no effect, retry freely";
const TOO_LONG: &str =
    "TRYAGAIN the run of the transaction takes too long; it had no effect, retry freely";

/// The use of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    Scripts,
    Commands,
}

#[derive(Default)]
pub(crate) struct LongThreads {
    scripts: Mutex<Queue>,
    commands: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// With the worker that waits for it.
    waiting: VecDeque<(usize, Computation)>,
    has_thread: bool,
}

impl Lane {
    fn of(computation: &Computation) -> Lane {
        if computation.program.is_scripted() { Lane::Scripts } else { Lane::Commands }
    }

    fn queue(self, status: &SharedNodeStatus) -> &Mutex<Queue> {
        match self {
            Lane::Scripts => &status.long_threads.scripts,
            Lane::Commands => &status.long_threads.commands,
        }
    }

    fn thread_name(self) -> &'static str {
        match self {
            Lane::Scripts => "scripts",
            Lane::Commands => "commands",
        }
    }

    /// Programs that may wait.
    fn waiting_max(self) -> usize {
        match self {
            Lane::Scripts => 16,
            Lane::Commands => 64,
        }
    }

    /// The answer to one more, and to one whose turn comes too late.
    fn overflow(self) -> &'static str {
        match self {
            Lane::Scripts => BUSY,
            Lane::Commands => TOO_MANY,
        }
    }
}

/// Ends a run when it is killed, when the node stops, and in time.
struct Control {
    status: Arc<SharedNodeStatus>,
    /// Of a script.
    switch: Option<Arc<AtomicBool>>,
    end: Nanos,
}

impl Debug for Control {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.debug_struct("Control").field("end", &self.end).finish_non_exhaustive()
    }
}

impl Stop for Control {
    fn reason(&self) -> Option<&'static str> {
        let is_killed = self.switch.as_ref().is_some_and(|switch| switch.load(Relaxed));
        let ends = is_killed || self.status.is_stopping() || self.status.clocks.now() >= self.end;
        ends.then_some(if self.switch.is_some() { KILLED } else { TOO_LONG })
    }
}

/// Runs a program of a worker. Its result comes by mail, or at once if too many wait.
pub(crate) fn compute(
    status: &Arc<SharedNodeStatus>,
    worker: usize,
    computation: Computation,
) -> Option<Input> {
    let lane = Lane::of(&computation);
    let token = computation.token;
    let mut queue = lane.queue(status).lock().unwrap_or_else(PoisonError::into_inner);
    if queue.waiting.len() >= lane.waiting_max() {
        return Some(refused(token, lane));
    }
    queue.waiting.push_back((worker, computation));
    if !queue.has_thread {
        if start(status, lane).is_err() {
            queue.waiting.pop_back();
            return Some(refused(token, lane));
        }
        queue.has_thread = true;
    }
    None
}

fn refused(token: u64, lane: Lane) -> Input {
    let ran = Ran::Refused(Reply::error(lane.overflow()));
    Input::Computed { token, ran }
}

fn start(status: &Arc<SharedNodeStatus>, lane: Lane) -> io::Result<()> {
    let shared = Arc::clone(status);
    crate::node::guarded(status, lane.thread_name(), move || {
        while let Some((worker, computation)) = next(&shared, lane) {
            let token = computation.token;
            let ran = run(&shared, lane, computation);
            let mail = Mail::Input(Input::Computed { token, ran });
            shared.workers[worker].send_all(&mut vec![mail]);
        }
        Ok(())
    })
    .map(drop)
}

/// The next program. The thread ends without one.
fn next(status: &SharedNodeStatus, lane: Lane) -> Option<(usize, Computation)> {
    let mut queue = lane.queue(status).lock().unwrap_or_else(PoisonError::into_inner);
    let next = queue.waiting.pop_front();
    queue.has_thread = next.is_some();
    next
}

fn run(status: &Arc<SharedNodeStatus>, lane: Lane, computation: Computation) -> Ran {
    let deadline = Nanos(computation.deadline.0.saturating_sub(COMMIT_TIME.0));
    match lane {
        Lane::Scripts => run_script(status, computation, deadline),
        Lane::Commands if status.clocks.now() >= deadline => {
            Ran::Refused(Reply::error(lane.overflow()))
        }
        Lane::Commands => {
            let status = Arc::clone(status);
            let stop: Arc<dyn Stop> = Arc::new(Control { status, switch: None, end: deadline });
            let Computation { program, states, clock, .. } = computation;
            program.run_long(&states, clock, &stop)
        }
    }
}

fn run_script(status: &Arc<SharedNodeStatus>, computation: Computation, deadline: Nanos) -> Ran {
    let Computation { program, states, clock, .. } = computation;
    let now = status.clocks.now();
    let runs = status.client_settings.long_runs();
    let limit = match runs.limit().0 {
        0 => Nanos::MAX,
        millis => now + Nanos::from_millis(millis),
    };
    let end = limit.min(deadline);
    if now >= end {
        return Ran::Refused(Reply::error(Lane::Scripts.overflow()));
    }
    let switch = Some(runs.begin());
    let stop: Arc<dyn Stop> = Arc::new(Control { status: Arc::clone(status), switch, end });
    let ran = program.run_long(&states, clock, &stop);
    runs.end();
    match ran {
        Ran::Done { changes, reply }
            if changes.is_empty() && reply.is_error() && stop.reason().is_some() =>
        {
            Ran::Refused(reply)
        }
        ran => ran,
    }
}
