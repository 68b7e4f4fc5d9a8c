//! `SENTINEL …`: the reads, in the shape of Redis Sentinel. Changes are refused.

use commands::{ErrorReply, errors, glob};
use node::session::SessionContext;
use types::Reply;

use super::master;
use crate::endpoints::{Endpoint, Endpoints};
use crate::info;
use crate::session::Session;

const NO_MASTER: &str = "ERR No such master with that name";

/// Subcommands with the least and the greatest number of arguments, and their help.
const SUBCOMMANDS: &[(&str, usize, usize, &str, &str)] = &[
    ("ckquorum", 3, 3, "CKQUORUM <master-name>", "Tells whether enough nodes are up to serve."),
    (
        "get-master-addr-by-name",
        3,
        3,
        "GET-MASTER-ADDR-BY-NAME <master-name>",
        "Answers host and port of the node to use.",
    ),
    ("info-cache", 3, usize::MAX, "INFO-CACHE <master-name> [...]", "Answers INFO of this node."),
    (
        "is-master-down-by-addr",
        6,
        6,
        "IS-MASTER-DOWN-BY-ADDR <ip> <port> <current-epoch> <runid>",
        "Tells whether the node at an address is down.",
    ),
    ("master", 3, 3, "MASTER <master-name>", "Describes the node to use."),
    ("masters", 2, 2, "MASTERS", "Describes the node to use, as a list of one."),
    ("myid", 2, 2, "MYID", "Answers the id of this node."),
    ("pending-scripts", 2, 2, "PENDING-SCRIPTS", "Answers an empty list: there are no scripts."),
    ("replicas", 3, 3, "REPLICAS <master-name>", "Describes the other nodes."),
    ("sentinels", 3, 3, "SENTINELS <master-name>", "Describes the other nodes' sentinel ports."),
    ("slaves", 3, 3, "SLAVES <master-name>", "Describes the other nodes."),
    ("help", 2, 2, "HELP", "Shows this help."),
];

/// Subcommands that would change the answers of this port, or that test a sentinel.
const REFUSED: &[(&str, &str)] = &[
    ("config", "settings are flags of 'palimpsest serve'"),
    ("debug", "there are no timers of a sentinel to set"),
    ("failover", "every node takes writes, so there is no master to replace"),
    ("flushconfig", "there is no file of a sentinel"),
    ("monitor", "the members of a cluster are those of --cluster"),
    ("remove", "the members of a cluster are those of --cluster"),
    ("set", "settings are flags of 'palimpsest serve'"),
    ("simulate-failure", "kill a node instead"),
];

/// Silence after which a node counts as down, in milliseconds.
const DOWN_AFTER: u64 = 3_000;

pub(super) fn reply(
    session: &Session,
    args: &[&[u8]],
    cx: &SessionContext<'_>,
) -> Result<Reply, ErrorReply> {
    let wanted = args[1].to_ascii_lowercase();
    let text = String::from_utf8_lossy(&wanted).into_owned();
    if let Some((name, reason)) = REFUSED.iter().find(|(name, _)| *name == text) {
        let text = format!("ERR 'sentinel {name}' is not supported: {reason}");
        return Err(ErrorReply::new(text.as_bytes()));
    }
    if text == "reset" && args.len() == 3 {
        // No state is kept, so a reset ends at once.
        let name = session.shared.config.sentinel_name.as_bytes();
        return Ok(Reply::count(glob::matches(args[2], name, glob::Case::Sensitive)));
    }
    let found = SUBCOMMANDS.iter().find(|(name, ..)| *name == text);
    let Some((name, least, most, ..)) = found else {
        return Err(errors::unknown_subcommand(args[0], args[1]));
    };
    if !(*least..=*most).contains(&args.len()) {
        return Err(errors::wrong_arity(&format!("sentinel|{name}")));
    }
    let nodes = Endpoints::of(cx);
    let view = View { session, nodes: &nodes, up_ms: cx.node.status().up.0 };
    Ok(view.reply(name, args, cx))
}

/// The line of `INFO sentinel` about the master.
pub(crate) fn info_line(name: &str, nodes: &Endpoints) -> String {
    let one = master(nodes);
    let status = if one.serves { "ok" } else { "odown" };
    let (slaves, sentinels) = (nodes.all.len() - 1, 1 + others_with_sentinel(nodes).count());
    format!(
        "master0:name={name},status={status},address={}:{},slaves={slaves},sentinels={sentinels}",
        one.host, one.port
    )
}

fn others_with_sentinel(nodes: &Endpoints) -> impl Iterator<Item = (&Endpoint, &(String, u16))> {
    let others = nodes.all.iter().filter(|node| !node.is_self);
    others.filter_map(|node| node.sentinel.as_ref().map(|address| (node, address)))
}

/// The facts for one reply.
struct View<'a> {
    session: &'a Session,
    nodes: &'a Endpoints,
    up_ms: u64,
}

impl View<'_> {
    fn reply(&self, subcommand: &str, args: &[&[u8]], cx: &SessionContext<'_>) -> Reply {
        let is_known = |at: usize| args[at] == self.session.shared.config.sentinel_name.as_bytes();
        match subcommand {
            "masters" => Reply::array([self.master()]),
            "myid" => Reply::bulk(self.nodes.sentinel_id(self.nodes.me())),
            "pending-scripts" => Reply::Array(Vec::new()),
            "help" => help(),
            "is-master-down-by-addr" => self.is_down(args),
            "info-cache" if !args[2..].is_empty() => {
                let known = (2..args.len()).filter(|&at| is_known(at)).take(1);
                Reply::Map(known.map(|at| (Reply::copy(args[at]), self.cached(cx))).collect())
            }
            "get-master-addr-by-name" if !is_known(2) => Reply::NullArray,
            _ if !is_known(2) => Reply::error(NO_MASTER),
            "get-master-addr-by-name" => {
                let one = master(self.nodes);
                Reply::array([one.host.clone(), one.port.to_string()].map(Reply::bulk))
            }
            "master" => self.master(),
            "sentinels" => {
                let others = others_with_sentinel(self.nodes);
                Reply::array(others.map(|(node, address)| self.sentinel(node, address)))
            }
            "ckquorum" => self.quorum(),
            _ => {
                let master = master(self.nodes);
                let others = self.nodes.all.iter().filter(|node| node.node != master.node);
                Reply::array(others.map(|node| self.replica(node, master)))
            }
        }
    }

    /// This node's `INFO`, which is new.
    fn cached(&self, cx: &SessionContext<'_>) -> Reply {
        let info = info::reply(self.session, &[], cx);
        Reply::array([Reply::array([Reply::Integer(0), info])])
    }

    fn is_down(&self, args: &[&[u8]]) -> Reply {
        let Some(port) = base::decimal::parse_i64(args[3]) else {
            return Reply::error("ERR value is not an integer or out of range");
        };
        if base::decimal::parse_i64(args[4]).is_none() {
            return Reply::error("ERR value is not an integer or out of range");
        }
        let is_named =
            |node: &&Endpoint| node.host.as_bytes() == args[2] && i64::from(node.port) == port;
        let is_down = self.nodes.all.iter().find(is_named).is_some_and(|node| !node.serves);
        Reply::array([Reply::count(is_down), Reply::bulk("*"), Reply::Integer(0)])
    }

    fn quorum(&self) -> Reply {
        let usable = self.nodes.all.iter().filter(|node| node.serves).count();
        if usable >= self.majority() {
            return Reply::simple(format!(
                "OK {usable} usable Sentinels. Quorum and failover authorization can be reached"
            ));
        }
        Reply::error(format!(
            "NOQUORUM {usable} usable Sentinels. Not enough available Sentinels to reach the \
             specified quorum for this master. Not enough available Sentinels to reach the \
             majority and authorize a failover"
        ))
    }

    fn majority(&self) -> usize {
        self.nodes.all.len() / 2 + 1
    }

    fn master(&self) -> Reply {
        let node = master(self.nodes);
        let others = others_with_sentinel(self.nodes).count();
        let name = self.session.shared.config.sentinel_name.clone();
        let flags = if node.serves { "master" } else { "s_down,o_down,master" };
        let mut fields = self.common(node, name, (&node.host, node.port), &node.id, flags);
        fields.extend(self.role("master", node));
        fields.extend([
            ("config-epoch", node.node.to_string()),
            ("num-slaves", (self.nodes.all.len() - 1).to_string()),
            ("num-other-sentinels", others.to_string()),
            ("quorum", self.majority().to_string()),
            ("failover-timeout", DOWN_AFTER.to_string()),
            ("parallel-syncs", (self.nodes.all.len() - 1).to_string()),
        ]);
        map(fields)
    }

    fn replica(&self, node: &Endpoint, master: &Endpoint) -> Reply {
        let flags = match (node.is_up, node.serves) {
            (false, _) => "s_down,slave,disconnected",
            (true, false) => "s_down,slave",
            (true, true) => "slave",
        };
        let name = format!("{}:{}", node.host, node.port);
        let mut fields = self.common(node, name, (&node.host, node.port), &node.id, flags);
        fields.extend(self.role("slave", node));
        fields.extend([
            ("master-link-down-time", "0".to_string()),
            ("master-link-status", if node.serves { "ok" } else { "err" }.to_string()),
            ("master-host", master.host.clone()),
            ("master-port", master.port.to_string()),
            ("slave-priority", "100".to_string()),
            ("slave-repl-offset", "0".to_string()),
            ("replica-announced", "1".to_string()),
        ]);
        map(fields)
    }

    fn sentinel(&self, node: &Endpoint, (host, port): &(String, u16)) -> Reply {
        let flags = if node.is_up { "sentinel" } else { "s_down,sentinel,disconnected" };
        let id = self.nodes.sentinel_id(node);
        let mut fields = self.common(node, id.clone(), (host, *port), &id, flags);
        fields.extend([
            ("last-hello-message", node.silent_for.unwrap_or(self.up_ms).to_string()),
            ("voted-leader", "?".to_string()),
            ("voted-leader-epoch", "0".to_string()),
        ]);
        map(fields)
    }

    fn common(
        &self,
        node: &Endpoint,
        name: String,
        (host, port): (&str, u16),
        id: &str,
        flags: &str,
    ) -> Vec<(&'static str, String)> {
        let silent = node.silent_for.unwrap_or(self.up_ms).to_string();
        vec![
            ("name", name),
            ("ip", host.to_string()),
            ("port", port.to_string()),
            ("runid", id.to_string()),
            ("flags", flags.to_string()),
            ("link-pending-commands", "0".to_string()),
            ("link-refcount", "1".to_string()),
            ("last-ping-sent", "0".to_string()),
            ("last-ok-ping-reply", silent.clone()),
            ("last-ping-reply", silent),
            ("down-after-milliseconds", DOWN_AFTER.to_string()),
        ]
    }

    fn role(&self, role: &str, node: &Endpoint) -> [(&'static str, String); 3] {
        [
            ("info-refresh", node.silent_for.unwrap_or(self.up_ms).to_string()),
            ("role-reported", role.to_string()),
            ("role-reported-time", self.up_ms.to_string()),
        ]
    }
}

fn map(fields: Vec<(&'static str, String)>) -> Reply {
    Reply::map(fields.into_iter().map(|(name, value)| (name, Reply::bulk(value))))
}

fn help() -> Reply {
    let head = "SENTINEL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:".to_string();
    let lines = SUBCOMMANDS
        .iter()
        .flat_map(|(_, _, _, syntax, summary)| [syntax.to_string(), format!("    {summary}")]);
    Reply::array(std::iter::once(head).chain(lines).map(Reply::simple))
}
