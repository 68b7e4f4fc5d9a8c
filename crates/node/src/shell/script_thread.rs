//! A thread for programs that would hold up a worker: scripts that run for long. It lives while
//! there are some, and runs one after the other.

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

/// Programs that may wait.
const WAITING_MAX: usize = 16;

/// A run ends so long before the deadline of its request: its commit needs time.
const COMMIT_TIME: Nanos = Nanos::from_millis(100);

const KILLED: &str = "ERR Script killed by user with SCRIPT KILL...";
const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

#[derive(Default)]
pub(crate) struct ScriptThread {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// With the worker that waits for it.
    waiting: VecDeque<(usize, Computation)>,
    has_thread: bool,
}

/// Ends a run when it is killed, when the node stops, and in time.
struct Control {
    status: Arc<SharedNodeStatus>,
    switch: Arc<AtomicBool>,
    end: Nanos,
}

impl Debug for Control {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.debug_struct("Control").field("end", &self.end).finish_non_exhaustive()
    }
}

impl Stop for Control {
    fn reason(&self) -> Option<&'static str> {
        let ends = self.switch.load(Relaxed)
            || self.status.is_stopping()
            || self.status.clocks.now() >= self.end;
        ends.then_some(KILLED)
    }
}

/// Runs a program of a worker. Its result comes by mail, or at once if too many wait.
pub(crate) fn compute(
    status: &Arc<SharedNodeStatus>,
    worker: usize,
    computation: Computation,
) -> Option<Input> {
    let token = computation.token;
    let mut queue = status.script_thread.queue.lock().unwrap_or_else(PoisonError::into_inner);
    if queue.waiting.len() >= WAITING_MAX {
        return Some(busy(token));
    }
    queue.waiting.push_back((worker, computation));
    if !queue.has_thread {
        if start(status).is_err() {
            queue.waiting.pop_back();
            return Some(busy(token));
        }
        queue.has_thread = true;
    }
    None
}

fn busy(token: u64) -> Input {
    let ran = Ran::Refused(Reply::error(BUSY));
    Input::Computed { token, ran }
}

fn start(status: &Arc<SharedNodeStatus>) -> io::Result<()> {
    let shared = Arc::clone(status);
    crate::node::guarded(status, "scripts", move || {
        while let Some((worker, computation)) = next(&shared) {
            let token = computation.token;
            let ran = run(&shared, computation);
            let mail = Mail::Input(Input::Computed { token, ran });
            shared.workers[worker].send_all(&mut vec![mail]);
        }
        Ok(())
    })
    .map(drop)
}

/// The next program. The thread ends without one.
fn next(status: &SharedNodeStatus) -> Option<(usize, Computation)> {
    let mut queue = status.script_thread.queue.lock().unwrap_or_else(PoisonError::into_inner);
    let next = queue.waiting.pop_front();
    queue.has_thread = next.is_some();
    next
}

fn run(status: &Arc<SharedNodeStatus>, computation: Computation) -> Ran {
    let Computation { program, states, clock, deadline, .. } = computation;
    let now = status.clocks.now();
    let runs = status.client_settings.long_runs();
    let limit = match runs.limit().0 {
        0 => Nanos::MAX,
        millis => now + Nanos::from_millis(millis),
    };
    let end = limit.min(Nanos(deadline.0.saturating_sub(COMMIT_TIME.0)));
    if now >= end {
        return Ran::Refused(Reply::error(BUSY));
    }
    let stop: Arc<dyn Stop> =
        Arc::new(Control { status: Arc::clone(status), switch: runs.begin(), end });
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
