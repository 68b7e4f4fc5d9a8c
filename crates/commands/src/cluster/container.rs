//! `CLUSTER` and its subcommands. Sessions execute those that ask for nodes.

use types::Reply;

use super::{ALWAYS, LOCAL, LOCAL_ADMIN};
use crate::errors::ErrorReply;
use crate::hash_slot;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const CHANGING: &[&str] = &["nondeterministic_output"];
const NODE: &[Argument] = &[Argument::string("node-id")];

const ROW: CommandSpec = CommandSpec {
    name: "cluster",
    arity: AtLeast(2),
    since: "3.0.0",
    summary: "Holds commands of cluster clients.",
    complexity: "Depends on subcommand.",
    subcommands: CLUSTER_COMMANDS,
    ..CLUSTER
};

const CLUSTER_COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "cluster|count-failure-reports",
        arity: Exactly(3),
        since: "3.0.0",
        summary: "Answers 1 for a node that this node does not reach, else 0.",
        complexity: "O(N) where N is the number of nodes",
        arguments: NODE,
        flags: LOCAL_ADMIN,
        tips: CHANGING,
        execution: session(SessionVerb::ClusterCountFailureReports),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|help",
        arity: Exactly(2),
        since: "5.0.0",
        summary: "Shows this help.",
        flags: ALWAYS,
        execution: HELP,
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|info",
        arity: Exactly(2),
        since: "3.0.0",
        summary: "Describes the state of the cluster.",
        flags: LOCAL,
        tips: CHANGING,
        execution: session(SessionVerb::ClusterInfo),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|keyslot",
        arity: Exactly(3),
        since: "3.0.0",
        summary: "Answers the slot of a key.",
        complexity: "O(N) where N is the length of the key",
        arguments: &[Argument::string("key")],
        flags: LOCAL,
        execution: Table(keyslot),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|links",
        arity: Exactly(2),
        since: "7.0.0",
        summary: "Answers an empty list: nodes have no links of the Redis cluster bus.",
        flags: LOCAL,
        tips: CHANGING,
        execution: Table(no_links),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|myid",
        arity: Exactly(2),
        since: "3.0.0",
        summary: "Answers the id of this node.",
        flags: LOCAL,
        execution: session(SessionVerb::ClusterMyId),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|myshardid",
        arity: Exactly(2),
        since: "7.2.0",
        summary: "Answers the id of the shard whose master this node is.",
        flags: LOCAL,
        tips: CHANGING,
        execution: session(SessionVerb::ClusterMyShardId),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|nodes",
        arity: Exactly(2),
        since: "3.0.0",
        summary: "Lists the nodes and their slots, one line each.",
        complexity: "O(N) where N is the number of nodes",
        flags: LOCAL,
        tips: CHANGING,
        execution: session(SessionVerb::ClusterNodes),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|replicas",
        arity: Exactly(3),
        since: "5.0.0",
        summary: "Lists the other nodes that are up: each replicates every key.",
        complexity: "O(N) where N is the number of nodes",
        arguments: NODE,
        flags: LOCAL_ADMIN,
        tips: CHANGING,
        execution: session(SessionVerb::ClusterReplicas),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|shards",
        arity: Exactly(2),
        since: "7.0.0",
        summary: "Lists the slots of each node, and the nodes that serve them.",
        complexity: "O(N) where N is the number of nodes",
        flags: ALWAYS,
        tips: CHANGING,
        execution: session(SessionVerb::ClusterShards),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|slaves",
        arity: Exactly(3),
        since: "3.0.0",
        summary: "Lists the other nodes that are up: each replicates every key.",
        complexity: "O(N) where N is the number of nodes",
        arguments: NODE,
        flags: LOCAL_ADMIN,
        tips: CHANGING,
        deprecated: Some(Deprecated { since: "5.0.0", replaced_by: "`CLUSTER REPLICAS`" }),
        execution: session(SessionVerb::ClusterSlaves),
        ..CLUSTER
    },
    CommandSpec {
        name: "cluster|slots",
        arity: Exactly(2),
        since: "3.0.0",
        summary: "Lists ranges of slots, and the nodes that serve them.",
        complexity: "O(N) where N is the number of nodes",
        flags: ALWAYS,
        tips: CHANGING,
        deprecated: Some(Deprecated { since: "7.0.0", replaced_by: "`CLUSTER SHARDS`" }),
        execution: session(SessionVerb::ClusterSlots),
        ..CLUSTER
    },
];

fn keyslot(args: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    Ok(Reply::Integer(i64::from(hash_slot::of(args.all[2]))))
}

fn no_links(_: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    Ok(Reply::Array(Vec::new()))
}
