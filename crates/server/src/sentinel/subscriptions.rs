//! Messages to clients of Redis Sentinel that wait for a change of the node to use.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use commands::glob;
use node::session::SessionContext;
use resp::encode;
use types::NodeId;

use super::master;
use crate::endpoints::{Endpoint, Endpoints};
use crate::session::Session;

/// Channels and patterns of one client.
const COUNT_MAX: usize = 1_024;
/// Bytes of the name of one of them.
const NAME_LEN_MAX: usize = 1_024;
/// How often the nodes are looked at for a subscriber.
const LOOK_EVERY: Nanos = Nanos::from_millis(250);

/// Channels and patterns of one client, and the nodes as it knows them.
#[derive(Default)]
pub(super) struct Subscriptions {
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
    known: Option<Known>,
    look_at: Nanos,
}

/// The nodes at the last look.
struct Known {
    master: (String, u16),
    serving: BTreeMap<NodeId, bool>,
}

impl Subscriptions {
    pub(super) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    fn names(&mut self, kind: &str) -> &mut BTreeSet<Vec<u8>> {
        if kind.starts_with('p') { &mut self.patterns } else { &mut self.channels }
    }
}

impl Session {
    /// `SUBSCRIBE`, `PSUBSCRIBE`, `UNSUBSCRIBE`, `PUNSUBSCRIBE`.
    pub(super) fn subscribe(&mut self, name: &str, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let resp3 = self.facts.protocol == 3;
        let Some(sentinel) = &mut self.sentinel else { return };
        let subscriptions = &mut sentinel.subscriptions;
        let is_new = !name.contains("unsub");
        if is_new {
            let is_long = args.iter().any(|arg| arg.len() > NAME_LEN_MAX);
            if is_long || subscriptions.count() + args.len() > COUNT_MAX {
                return self.say_error(cx, "ERR too many subscriptions of one client");
            }
        }
        let mut wanted: Vec<Option<Vec<u8>>> = args.iter().map(|arg| Some(arg.to_vec())).collect();
        if wanted.is_empty() {
            wanted = subscriptions.names(name).iter().cloned().map(Some).collect();
        }
        if wanted.is_empty() {
            wanted.push(None);
        }
        for one in wanted {
            if let Some(one) = &one {
                match is_new {
                    true => drop(subscriptions.names(name).insert(one.clone())),
                    false => drop(subscriptions.names(name).remove(one)),
                }
            }
            header(cx.out, 3, resp3);
            encode::bulk(cx.out, name.as_bytes());
            match (&one, resp3) {
                (Some(one), _) => encode::bulk(cx.out, one),
                (None, true) => encode::null(cx.out),
                (None, false) => encode::null_bulk(cx.out),
            }
            encode::integer(cx.out, subscriptions.count() as i64);
        }
        self.look_at_nodes(cx);
    }

    /// Tells a subscriber the changes since the last look.
    pub(crate) fn look_at_nodes(&mut self, cx: &mut SessionContext<'_>) {
        let resp3 = self.facts.protocol == 3;
        let name = self.shared.config.sentinel_name.clone();
        let Some(sentinel) = &mut self.sentinel else { return };
        let subscriptions = &mut sentinel.subscriptions;
        if subscriptions.count() == 0 {
            subscriptions.known = None;
            return;
        }
        if subscriptions.known.is_none() || cx.now >= subscriptions.look_at {
            subscriptions.look_at = cx.now + LOOK_EVERY;
            let nodes = Endpoints::of(cx);
            for (channel, text) in subscriptions.look(&name, &nodes) {
                subscriptions.publish(cx.out, channel, &text, resp3);
            }
        }
        let at = subscriptions.look_at;
        self.arm(at, cx);
    }
}

impl Subscriptions {
    /// Messages about the changes since the last look.
    fn look(&mut self, name: &str, nodes: &Endpoints) -> Vec<(&'static str, String)> {
        let one = master(nodes);
        let now = Known {
            master: (one.host.clone(), one.port),
            serving: nodes.all.iter().map(|node| (node.node, node.serves)).collect(),
        };
        let Some(before) = self.known.replace(now) else { return Vec::new() };
        let mut messages = Vec::new();
        let mut lost_master = false;
        for node in &nodes.all {
            let served = before.serving.get(&node.node).copied().unwrap_or(false);
            if served == node.serves {
                continue;
            }
            let channel = if node.serves { "-sdown" } else { "+sdown" };
            messages.push((channel, instance(node, name, one)));
            // Clients that another sentinel sent to this node move away from it too.
            if !node.serves && one.serves {
                lost_master |=
                    (node.host.as_str(), node.port) == (&before.master.0, before.master.1);
                messages.push(("+switch-master", switch(name, (&node.host, node.port), one)));
            }
        }
        if !lost_master && (before.master.0.as_str(), before.master.1) != (&one.host, one.port) {
            messages
                .push(("+switch-master", switch(name, (&before.master.0, before.master.1), one)));
        }
        messages
    }

    fn publish(&self, out: &mut Vec<u8>, channel: &str, text: &str, resp3: bool) {
        if self.channels.contains(channel.as_bytes()) {
            header(out, 3, resp3);
            ["message", channel, text].iter().for_each(|part| encode::bulk(out, part.as_bytes()));
        }
        for pattern in &self.patterns {
            if glob::matches(pattern, channel.as_bytes(), glob::Case::Sensitive) {
                header(out, 4, resp3);
                encode::bulk(out, b"pmessage");
                encode::bulk(out, pattern);
                [channel, text].iter().for_each(|part| encode::bulk(out, part.as_bytes()));
            }
        }
    }
}

fn header(out: &mut Vec<u8>, len: usize, resp3: bool) {
    if resp3 { encode::push(out, len) } else { encode::array(out, len) }
}

fn switch(name: &str, (host, port): (&str, u16), to: &Endpoint) -> String {
    format!("{name} {host} {port} {} {}", to.host, to.port)
}

/// `node` in the words of Redis Sentinel, as a master or as a replica of `master`.
fn instance(node: &Endpoint, name: &str, master: &Endpoint) -> String {
    let (host, port) = (&node.host, node.port);
    if node.node == master.node {
        return format!("master {name} {host} {port}");
    }
    format!("slave {host}:{port} {host} {port} @ {name} {} {}", master.host, master.port)
}
