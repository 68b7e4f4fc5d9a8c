//! The reply of `KEY.EXPLAIN`.

use bytes::Bytes;
use resp::encode;
use types::explain::{Explanation, Held, Record};

/// A map: key, shard, replicas that agree on the newest round, and a map per replica.
pub(crate) fn reply(explanation: &Explanation) -> Bytes {
    let mut out = Vec::new();
    encode::map(&mut out, 4);
    encode::bulk(&mut out, b"key");
    encode::bulk(&mut out, explanation.key.bytes());
    encode::bulk(&mut out, b"shard");
    encode::integer(&mut out, i64::from(explanation.key.shard().0));
    encode::bulk(&mut out, b"agreed");
    encode::integer(&mut out, agreed(explanation) as i64);
    encode::bulk(&mut out, b"replicas");
    encode::array(&mut out, explanation.replicas.len());
    for replica in &explanation.replicas {
        let record = match &replica.held {
            Held::Present(record) => Some(record),
            Held::Silent | Held::Absent => None,
        };
        encode::map(&mut out, if record.is_some() { 7 } else { 2 });
        encode::bulk(&mut out, b"node");
        encode::integer(&mut out, i64::from(replica.node.0));
        encode::bulk(&mut out, b"state");
        encode::bulk(&mut out, state(&replica.held));
        if let Some(record) = record {
            put_record(&mut out, record);
        }
    }
    out.into()
}

fn put_record(out: &mut Vec<u8>, record: &Record) {
    encode::bulk(out, b"round");
    encode::bulk(out, record.round.as_bytes());
    encode::bulk(out, b"version");
    // Far below the integers that JavaScript holds exactly.
    encode::integer(out, record.version as i64);
    encode::bulk(out, b"bytes");
    encode::integer(out, record.value_len as i64);
    encode::bulk(out, b"checksum");
    encode::bulk(out, format!("{:016x}", record.checksum).as_bytes());
    encode::bulk(out, b"pttl");
    encode::integer(out, record.rest.map_or(-1, |rest| rest.0 as i64));
}

fn state(held: &Held) -> &'static [u8] {
    match held {
        Held::Silent => b"silent",
        Held::Absent => b"absent",
        Held::Present(record) if record.is_tombstone => b"deleted",
        Held::Present(_) => b"present",
    }
}

/// Replicas that hold the state of the highest version, or all without a record if no replica has
/// one.
fn agreed(explanation: &Explanation) -> usize {
    let newest = explanation
        .replicas
        .iter()
        .filter_map(|replica| match &replica.held {
            Held::Present(record) => Some(record),
            Held::Silent | Held::Absent => None,
        })
        .max_by_key(|record| record.version);
    let same = |held: &Held| match (held, newest) {
        (Held::Present(record), Some(newest)) => {
            (&record.round, record.checksum) == (&newest.round, newest.checksum)
        }
        (Held::Absent, None) => true,
        _ => false,
    };
    explanation.replicas.iter().filter(|replica| same(&replica.held)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::explain::Replica;
    use types::{Key, NodeId};

    fn record(round: &str, version: u64) -> Held {
        Held::Present(Record {
            round: round.into(),
            version,
            is_tombstone: false,
            value_len: 5,
            checksum: version,
            rest: None,
        })
    }

    fn explanation(held: [Held; 3]) -> Explanation {
        let replicas =
            held.into_iter().zip(1..).map(|(held, id)| Replica { node: NodeId(id), held });
        Explanation { key: Key::new(b"k"), replicas: replicas.collect() }
    }

    #[test]
    fn replicas_of_the_newest_state_agree() {
        let cases = [
            ([record("1.1.1/1", 4), record("1.1.1/1", 4), record("1.1.1/0", 3)], 2),
            ([record("1.1.1/1", 4), Held::Silent, Held::Absent], 1),
            ([Held::Absent, Held::Absent, Held::Silent], 2),
        ];
        for (held, expected) in cases {
            assert_eq!(agreed(&explanation(held)), expected);
        }
    }

    #[test]
    fn reply_is_one_whole_value() {
        let reply = reply(&explanation([record("7.1.1/2", 9), Held::Absent, Held::Silent]));
        resp::Reply::from_bytes(&reply).expect("one whole reply");
    }
}
