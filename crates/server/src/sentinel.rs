//! Clients of Redis Sentinel: a port of its own tells them which node to use.
//!
//! Any node serves any key. So the answer is this node while it serves, else the nearest node that
//! does. The port speaks the part of the protocol that Redis Sentinel speaks.

mod command;
mod subscriptions;

use commands::errors;
use node::session::SessionContext;
use types::Reply;

use crate::endpoints::{Endpoint, Endpoints};
use crate::session::{Session, is_http};

pub(crate) use self::command::info_line;
use self::subscriptions::Subscriptions;

/// The state of a session at this port.
#[derive(Default)]
pub(crate) struct Sentinel {
    subscriptions: Subscriptions,
}

/// Commands of the table that this port takes as well.
const SHARED: &[&str] =
    &["auth", "client", "command", "hello", "info", "ping", "quit", "reset", "role"];

/// The node that a client should use: this one while it serves, else the nearest that does. This
/// one if none does.
pub(crate) fn master(nodes: &Endpoints) -> &Endpoint {
    let me = nodes.me();
    if me.serves {
        return me;
    }
    let serving = nodes.all.iter().filter(|node| node.serves);
    serving.min_by_key(|node| (node.round_trip.is_none(), node.round_trip)).unwrap_or(me)
}

impl Session {
    pub(crate) fn is_sentinel(&self) -> bool {
        self.sentinel.is_some()
    }

    /// Handles one request at this port.
    pub(crate) fn on_sentinel_request(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        if is_http(args) {
            return self.end_of_http();
        }
        let name = args.first().copied().unwrap_or_default().to_ascii_lowercase();
        if name == b"client" && !is_harmless(args) {
            return self.say_error(cx, "ERR this CLIENT command is not available at this port");
        }
        if SHARED.iter().any(|shared| shared.as_bytes() == name) {
            if self.is_subscribed_in_resp2() && !takes_in_subscription(&name) {
                return self.say(cx, only_in_subscription(&name));
            }
            if name == b"ping" && self.is_subscribed_in_resp2() {
                let said = args.get(1).copied().unwrap_or_default();
                let pong = Reply::array([Reply::bulk("pong"), Reply::copy(said)]);
                return self.say(cx, pong);
            }
            let is_reset = name == b"reset";
            self.on_request(commands::find(args), args, cx);
            if is_reset && let Some(sentinel) = &mut self.sentinel {
                sentinel.subscriptions = Subscriptions::default();
            }
            return;
        }
        let least = match name.as_slice() {
            b"sentinel" | b"subscribe" | b"psubscribe" => 2,
            b"unsubscribe" | b"punsubscribe" => 1,
            b"publish" => 3,
            _ => return self.say(cx, errors::unknown_command(args).into()),
        };
        let text = String::from_utf8_lossy(&name).into_owned();
        if args.len() < least || (name == b"publish" && args.len() > least) {
            return self.say(cx, errors::wrong_arity(&text).into());
        }
        if !self.authenticated && !self.shared.password.is_open() {
            return self.say(cx, Reply::error("NOAUTH Authentication required."));
        }
        if self.is_subscribed_in_resp2() && !takes_in_subscription(&name) {
            return self.say(cx, only_in_subscription(&name));
        }
        match name.as_slice() {
            b"sentinel" => {
                let reply = command::reply(self, args, cx);
                self.say(cx, reply.unwrap_or_else(Reply::from));
            }
            b"publish" => {
                self.say_error(cx, "ERR Only HELLO messages are accepted by Sentinel instances.");
            }
            _ => self.subscribe(&text, &args[1..], cx),
        }
    }

    /// `ROLE` at this port.
    pub(crate) fn sentinel_role(&self) -> Reply {
        let name = Reply::bulk(self.shared.config.sentinel_name.clone());
        Reply::array([Reply::bulk("sentinel"), Reply::array([name])])
    }

    fn is_subscribed_in_resp2(&self) -> bool {
        self.facts.protocol == 2 && self.is_subscribed()
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.sentinel.as_ref().is_some_and(|sentinel| sentinel.subscriptions.count() > 0)
    }
}

/// False for `CLIENT` subcommands that act on other connections.
fn is_harmless(args: &[&[u8]]) -> bool {
    const OTHERS: [&[u8]; 4] = [b"kill", b"pause", b"unblock", b"unpause"];
    let acts_on_others = |name: &[u8]| OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other));
    args.get(1).is_none_or(|name| !acts_on_others(name))
}

/// Commands that a subscriber of RESP2 may send: other replies look like messages.
fn takes_in_subscription(name: &[u8]) -> bool {
    let taken: [&[u8]; 7] =
        [b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ping", b"quit", b"reset"];
    taken.contains(&name)
}

fn only_in_subscription(name: &[u8]) -> Reply {
    let name = String::from_utf8_lossy(name);
    Reply::error(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
         are allowed in this context"
    ))
}
