//! `WAIT`.

use base::Nanos;
use node::session::SessionContext;
use types::Reply;

use super::Session;
use crate::pipeline::Answer;
use crate::wait;

impl Session {
    pub(super) fn start_wait(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let Some(wanted) = base::decimal::parse_i64(args[1]) else {
            return self.say_error(cx, "ERR value is not an integer or out of range");
        };
        let Some(millis) = base::decimal::parse_i64(args[2]) else {
            return self.say_error(cx, "ERR timeout is not an integer or out of range");
        };
        let Ok(millis) = u64::try_from(millis) else {
            return self.say_error(cx, "ERR timeout is negative");
        };
        let members = cx.node.config().members.len().max(1);
        let known = (members / 2) as i64;
        if self.pipeline.is_empty() && wanted <= known {
            return self.say(cx, Reply::Integer(known));
        }
        let until = if wanted <= known {
            cx.now
        } else if millis == 0 {
            cx.now + wait::FOR_EVER
        } else {
            cx.now + Nanos::from_millis(millis.min(wait::FOR_EVER.as_millis()))
        };
        self.wait(Answer::Wait(wait::Wait { until, known }));
        self.settle_waits(cx);
    }
}
