//! Commands on the whole keyspace, and `KEY.EXPLAIN`.

use commands::SessionVerb;
use node::session::SessionContext;
use types::limits::KEY_LEN_MAX;
use types::{Outcome, Reply};

use super::{Hold, Session};
use crate::budget::Cost;
use crate::outcomes;
use crate::pipeline::{Answer, token};
use crate::walk::{Walk, WalkKind};

/// From so many keys on, `DBSIZE` lists them no more.
const LISTED_KEYS_MAX: u64 = 100_000;

impl Session {
    pub(super) fn start_explain(&mut self, key: &[u8], cx: &mut SessionContext<'_>) {
        if key.len() > KEY_LEN_MAX {
            let error = commands::errors::key_too_large(key.len());
            return self.say(cx, error.into());
        }
        let Some(positions) = cx.positions() else {
            return self.say(cx, outcomes::reply(Outcome::Loading));
        };
        let number = self.wait(Answer::Waiting(Cost::default()));
        cx.explain(token(number, 0), self.database(), positions.key(key));
    }

    /// Lists the keys of a small database from a quorum. A large database answers with this node's
    /// count.
    pub(super) fn count_keys(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let database = self.facts.database;
        let figures = cx.node.databases().into_iter().find(|one| one.index == database);
        match figures.filter(|figures| figures.keys >= LISTED_KEYS_MAX) {
            Some(figures) => self.say(cx, Reply::Integer(figures.keys as i64)),
            None => self.start_walk(SessionVerb::DbSize, args, cx),
        }
    }

    pub(super) fn start_walk(
        &mut self,
        verb: SessionVerb,
        args: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) {
        let seed = self.clock(cx).seed;
        match WalkKind::parse(verb, args, self.database(), cx.node, seed) {
            Ok(kind) => {
                let number = self.wait(Answer::Walk(Box::new(Walk::new(kind))));
                self.hold = Hold::Answers;
                self.go_on(number, cx);
            }
            Err(reply) => self.say(cx, reply),
        }
    }
}
