//! Replies on their way between nodes.

use types::reply::REPLY_DEPTH_MAX;
use types::{Double, Reply, Wire};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "outcomes",
    claim: "a reply of another node is malformed, or shallow, and comes back encoded",
    run,
    seeds,
    short: 300_000,
};

fn run(data: &[u8]) {
    let Ok(reply) = Reply::from_bytes(data) else { return };
    assert!(depth(&reply) <= REPLY_DEPTH_MAX);
    let bytes = reply.to_bytes();
    assert!(bytes.len() <= data.len() && bytes.len() <= reply.len(), "{} bytes", bytes.len());
    assert_eq!(Reply::from_bytes(&bytes), Ok(reply));
}

fn depth(reply: &Reply) -> usize {
    match reply {
        Reply::Array(all) | Reply::Set(all) => 1 + all.iter().map(depth).max().unwrap_or(0),
        Reply::Map(all) | Reply::Pairs(all) | Reply::Table(all) => {
            let both = all.iter().flat_map(|(key, value)| [key, value]);
            1 + both.map(depth).max().unwrap_or(0)
        }
        _ => 0,
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let leaves = || {
        vec![
            Reply::OK,
            Reply::error("ERR no"),
            Reply::Integer(-42),
            Reply::bulk("hello\r\n"),
            Reply::Null,
            Reply::NullArray,
            Reply::Double(Double(2.5e-7)),
            Reply::Boolean(true),
            Reply::text("Some"),
            Reply::BigNumber("-123456789012345678901234567890".into()),
        ]
    };
    let pairs = || leaves().into_iter().zip(leaves()).collect();
    let all = [
        Reply::Array(leaves()),
        Reply::Set(leaves()),
        Reply::Map(pairs()),
        Reply::Pairs(pairs()),
        Reply::Table(vec![(Reply::bulk("stream"), Reply::array([Reply::Array(leaves())]))]),
    ];
    all.iter().chain(&leaves()).map(Wire::to_bytes).collect()
}
