//! Outcomes that are not a reply, in the words of the contract.

use bytes::Bytes;
use types::Outcome;

use crate::explain;

pub(crate) const CLUSTERDOWN: &[u8] = b"-CLUSTERDOWN not enough replicas answered in time; \
the command had and will have no effect, retry freely\r\n";
pub(crate) const UNKNOWN: &[u8] = b"-UNKNOWN no quorum confirmed the command in time; \
it may or may not take effect, read before retrying\r\n";
pub(crate) const LOADING: &[u8] =
    b"-LOADING this node is still starting, or forgot its state and has not recovered it from a quorum yet\r\n";
pub(crate) const NO_ROOM: &[u8] =
    b"-OOM command not allowed while this node's file system has too little room; \
it had no effect, make room or ask another node\r\n";

/// The reply to a command on a key, as RESP3.
pub(crate) fn reply(outcome: Outcome) -> Bytes {
    match outcome {
        Outcome::Reply(reply) => reply,
        Outcome::NoQuorum => Bytes::from_static(CLUSTERDOWN),
        Outcome::Unknown => Bytes::from_static(UNKNOWN),
        Outcome::Loading => Bytes::from_static(LOADING),
        Outcome::Unsupported("none") => Bytes::from_static(
            b"-ERR this database is not configured, see [[database]] in the configuration\r\n",
        ),
        Outcome::Unsupported(protocol) => Bytes::from(format!(
            "-ERR not supported by protocol '{protocol}': it cannot change a value depending on what it was\r\n"
        )),
        Outcome::Explained(explanation) => explain::reply(&explanation),
        Outcome::Listed { .. } => {
            Bytes::from_static(b"-ERR internal error: a listing for a command\r\n")
        }
    }
}

/// The error of a command of several parts, made of the error of one part. If other parts may have
/// had an effect, the error does not deny it.
pub(crate) fn of_several(error: Bytes, others_changed: bool) -> Bytes {
    match error.as_ref() {
        CLUSTERDOWN | LOADING if others_changed => Bytes::from_static(UNKNOWN),
        _ => error,
    }
}

/// The graver of two errors in the parts of one command: an unknown effect outweighs none.
pub(crate) fn graver(one: Bytes, other: Bytes) -> Bytes {
    let weight = |reply: &Bytes| match reply.as_ref() {
        UNKNOWN => 3,
        CLUSTERDOWN | LOADING => 2,
        other if other.first() == Some(&b'-') => 1,
        _ => 0,
    };
    if weight(&other) > weight(&one) { other } else { one }
}
