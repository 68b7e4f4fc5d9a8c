//! Lines on several keys, each a transaction.

use node::config::DatabaseConfig;
use node::session::SessionContext;
use types::{Clock, Once, Outcome};

use super::{Hold, Session};
use crate::budget::Cost;
use crate::outcomes;
use crate::pipeline::{Answer, token};
use crate::program;
use crate::transaction::ONCE_WITHOUT_KEYS;

impl Session {
    /// Runs a command on several keys, or `EXEC`, at most once.
    pub(super) fn run_once(
        &mut self,
        mut once: Once,
        args: &[&[u8]],
        clock: Clock,
        cx: &mut SessionContext<'_>,
    ) {
        once.window = self.shared.limits.once_window();
        if args[0].eq_ignore_ascii_case(b"exec") {
            self.exec(Some(once), cx);
        } else if program::is_script(args) {
            self.eval_under(Some(once), args, cx);
        } else {
            self.transact_line(args, clock, Some(once), cx);
        }
    }

    pub(super) fn has_transactions(&self, cx: &SessionContext<'_>) -> bool {
        let database = self.database();
        let mut databases = cx.node.config().databases.iter();
        databases.find(|one| one.database == database).is_some_and(DatabaseConfig::has_transactions)
    }

    /// Runs a line on several keys.
    pub(super) fn transact_line(
        &mut self,
        args: &[&[u8]],
        clock: Clock,
        once: Option<Once>,
        cx: &mut SessionContext<'_>,
    ) {
        let Some(positions) = cx.positions() else {
            return self.say(cx, outcomes::reply(Outcome::Loading));
        };
        let max = self.shared.limits.max_value_len();
        let transaction = program::of_line(positions, self.database(), args, clock, max);
        if once.is_some() && transaction.keys.is_empty() {
            return self.say_error(cx, ONCE_WITHOUT_KEYS);
        }
        let transaction = transaction.under(once);
        let asked_len = args.iter().map(|arg| arg.len()).sum();
        self.hold = Hold::Answers;
        let number = self.wait(Answer::Waiting(Cost { asked_len, values: 1 }));
        cx.transact(token(number, 0), transaction);
    }
}
