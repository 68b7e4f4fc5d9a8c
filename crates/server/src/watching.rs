//! A session's part in `SLOWLOG`, `LATENCY` and `MONITOR`.

use base::{Millis, Nanos};
use bytes::Bytes;
use commands::spec::Flag;
use commands::{CommandSpec, SessionVerb};
use node::session::SessionContext;

use crate::counts::Verdict;
use crate::pipeline::Ended;
use crate::recorder::{Call, read_clock};
use crate::redact::redacted;
use crate::session::{Replies, Session};
use crate::slowlog::Entry;
use crate::{monitor, words};

impl Session {
    /// Records a request that the pipeline has completed.
    pub(crate) fn record(&self, ended: Ended, cx: &SessionContext<'_>) {
        let Ended { call, verdict, words } = ended;
        let time = cx.moment.since(call.began);
        self.recorder.end(call.spec, verdict, time);
        if self.shared.slow.concerns(time) && verdict != Verdict::Rejected {
            let words = words.map(|at| self.pipeline.words(at)).unwrap_or_default();
            self.note_slow(call.spec, time, words, cx.unix);
        }
    }

    /// Records a request that was executed at once.
    pub(crate) fn record_now(&self, call: Call, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let now = read_clock(cx);
        let time = now.since(call.began);
        // The next request of this step begins here.
        cx.moment = now;
        let verdict = if self.has_failed { Verdict::Failed } else { Verdict::Answered };
        self.recorder.end(call.spec, verdict, time);
        if self.shared.slow.concerns(time) {
            let words = words::shown(&redacted(call.spec, args));
            self.note_slow(call.spec, time, words, cx.unix);
        }
    }

    #[cold]
    fn note_slow(&self, spec: &CommandSpec, time: Nanos, words: Vec<Bytes>, unix: Millis) {
        let (slow, unix_secs) = (&self.shared.slow, unix.0 / 1_000);
        let exceeds = |threshold: Option<Nanos>| threshold.is_some_and(|least| time >= least);
        if exceeds(slow.monitor.threshold()) {
            slow.monitor.add(spec, time, unix_secs);
        }
        if exceeds(slow.log.threshold()) && !spec.has(Flag::SkipSlowlog) {
            let words = if words.is_empty() {
                vec![Bytes::from_static(spec.name.as_bytes())]
            } else {
                words
            };
            let (client, name) = (self.facts.peer.to_string(), self.facts.name.clone());
            slow.log.push(Entry { unix_secs, time, words, client, name });
        }
    }

    /// Shows a request that is executed to all monitors.
    pub(crate) fn show_to_monitors(
        &self,
        spec: &CommandSpec,
        args: &[&[u8]],
        cx: &SessionContext<'_>,
    ) {
        if self.shared.monitors.is_empty() || spec.has(Flag::Admin) {
            return;
        }
        let args = redacted(spec, args);
        let micros = self.monitor_micros(cx);
        let line = monitor::line(micros, self.facts.database, &self.facts.peer, &args);
        self.shared.monitors.show(&line);
    }

    /// The time that a line shows, in microseconds of Unix time.
    pub(crate) fn monitor_micros(&self, cx: &SessionContext<'_>) -> u64 {
        cx.unix.0 * 1_000 + read_clock(cx).since(cx.now).as_micros()
    }

    /// `MONITOR`.
    pub(crate) fn start_monitor(&mut self, cx: &mut SessionContext<'_>) {
        self.say_ok(cx);
        if self.monitor.is_none() {
            self.monitor = Some(self.shared.monitors.join());
        }
    }

    /// Passes lines to a client that monitors.
    pub(crate) fn look_at_monitor(&mut self, cx: &mut SessionContext<'_>) {
        let Some(monitor) = &self.monitor else { return };
        if monitor.is_overrun() {
            return self.end_now();
        }
        let is_heard = self.replies == Replies::On;
        while self.pipeline.is_empty() && cx.has_room() {
            let Some(line) = monitor.next() else { break };
            if is_heard {
                cx.out.extend_from_slice(&line);
            }
        }
        self.arm(cx.now + monitor::LOOK_EVERY, cx);
    }

    /// `SLOWLOG …`, `LATENCY …`.
    pub(crate) fn watch_command(
        &mut self,
        verb: SessionVerb,
        args: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) {
        use SessionVerb::{SlowlogGet, SlowlogLen, SlowlogReset};
        let (slow, counts) = (&self.shared.slow, &self.shared.counts);
        let reply = match verb {
            SlowlogGet | SlowlogLen | SlowlogReset => slow.log.reply(verb, args),
            _ => slow.monitor.reply(verb, args, cx.unix.0 / 1_000, || {
                if slow.tracks() { counts.since_reset() } else { Default::default() }
            }),
        };
        match reply {
            Ok(reply) => self.say(cx, reply),
            Err(text) => self.say_error(cx, &text),
        }
    }
}
