//! Commands of Redis that this store refuses, each with the reason. They are no rows of the table.

use crate::errors::ErrorReply;

/// Names in lower case.
const REFUSED: &[(&str, &str)] = &[
    ("bgrewriteaof", "there is no append-only file"),
    ("bgsave", "there are no snapshots, see the durability of a database"),
    ("debug", "see KEY.EXPLAIN and INFO"),
    ("failover", "every node takes writes, so there is no master to replace"),
    ("migrate", "send the reply of DUMP to RESTORE of the other server"),
    ("module", "there are no modules"),
    ("move", "a key stays in its database"),
    ("psync", "nodes replicate by a protocol of their own"),
    ("replconf", "nodes replicate by a protocol of their own"),
    ("replicaof", "the members of a cluster are those of --cluster"),
    ("save", "there are no snapshots, see the durability of a database"),
    ("shutdown", "stop the process of the node"),
    ("slaveof", "the members of a cluster are those of --cluster"),
    ("swapdb", "a database keeps its number"),
    ("sync", "nodes replicate by a protocol of their own"),
    ("waitaof", "there is no append-only file, see WAIT"),
];

/// The reason of refused subcommands that would change the slots of a node.
const SLOTS: &str = "slots are dealt over the nodes that are up";
/// The reason of refused subcommands that would change the members of a cluster.
const MEMBERS: &str = "the members of a cluster are those of --cluster";
/// The reason of refused subcommands that ask for the keys of a slot.
const SLOT_KEYS: &str = "keys are not kept by slot, see SCAN";

/// Containers, subcommands in lower case, reasons.
const REFUSED_SUBCOMMANDS: &[(&str, &str, &str)] = &[
    ("cluster", "addslots", SLOTS),
    ("cluster", "addslotsrange", SLOTS),
    ("cluster", "bumpepoch", "there are no epochs to raise"),
    ("cluster", "countkeysinslot", SLOT_KEYS),
    ("cluster", "delslots", SLOTS),
    ("cluster", "delslotsrange", SLOTS),
    ("cluster", "failover", "every node takes writes, so there is no master to replace"),
    ("cluster", "flushslots", SLOTS),
    ("cluster", "forget", MEMBERS),
    ("cluster", "getkeysinslot", SLOT_KEYS),
    ("cluster", "meet", MEMBERS),
    ("cluster", "replicate", "every node replicates every key"),
    ("cluster", "reset", "see 'palimpsest reset'"),
    ("cluster", "saveconfig", "nodes keep no file of slots"),
    ("cluster", "set-config-epoch", "there are no epochs to set"),
    ("cluster", "setslot", SLOTS),
];

/// The reply to a refused subcommand.
pub(crate) fn subcommand_error(container: &str, subcommand: &[u8]) -> Option<ErrorReply> {
    let is_named = |(of, refused, _): &&(&str, &str, &str)| {
        *of == container && refused.as_bytes().eq_ignore_ascii_case(subcommand)
    };
    let (_, name, reason) = REFUSED_SUBCOMMANDS.iter().find(is_named)?;
    let text = format!("ERR '{container} {name}' is not supported: {reason}");
    Some(ErrorReply::new(text.as_bytes()))
}

/// The reply to a refused command.
pub(crate) fn error(name: &[u8]) -> Option<ErrorReply> {
    let is_named = |(refused, _): &&(&str, &str)| refused.as_bytes().eq_ignore_ascii_case(name);
    let (name, reason) = REFUSED.iter().find(is_named)?;
    Some(ErrorReply::new(format!("ERR '{name}' is not supported: {reason}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use crate::table;

    #[test]
    fn refused_commands_are_no_rows() {
        for (name, _) in super::REFUSED {
            assert!(table::lookup(name.as_bytes()).is_none(), "{name}");
            assert_eq!(*name, name.to_ascii_lowercase());
        }
    }

    #[test]
    fn refused_subcommands_are_no_rows() {
        for (container, name, _) in super::REFUSED_SUBCOMMANDS {
            assert!(table::lookup(container.as_bytes()).is_some(), "{container}");
            assert!(table::lookup_full(format!("{container}|{name}").as_bytes()).is_none());
            assert_eq!(*name, name.to_ascii_lowercase());
        }
        let error = table::find(&[b"CLUSTER", b"AddSlots", b"1"]).expect_err("refused");
        assert_eq!(
            error.text().as_ref(),
            b"ERR 'cluster addslots' is not supported: slots are dealt over the nodes that are up"
        );
    }

    #[test]
    fn refused_commands_answer_their_reason() {
        let error = table::find(&[b"Move", b"k", b"1"]).expect_err("refused");
        assert_eq!(
            error.text().as_ref(),
            b"ERR 'move' is not supported: a key stays in its database"
        );
    }
}
