//! The reply of `KEY.EXPLAIN`.

use types::Reply;
use types::explain::{Explanation, Held, Record, Replica};

/// A map: key, shard, replicas that agree on the newest round, and a map per replica.
pub(crate) fn reply(explanation: &Explanation) -> Reply {
    Reply::map([
        ("key", Reply::copy(explanation.key.bytes())),
        ("shard", Reply::Integer(i64::from(explanation.key.shard().0))),
        ("agreed", Reply::Integer(agreed(explanation) as i64)),
        ("replicas", Reply::array(explanation.replicas.iter().map(replica))),
    ])
}

fn replica(replica: &Replica) -> Reply {
    let mut fields = vec![
        ("node", Reply::Integer(i64::from(replica.node.0))),
        ("state", Reply::bulk(state(&replica.held))),
    ];
    if let Held::Present(record) = &replica.held {
        fields.extend(record_fields(record));
    }
    Reply::map(fields)
}

fn record_fields(record: &Record) -> [(&'static str, Reply); 5] {
    [
        ("round", Reply::copy(record.round.as_bytes())),
        // Far below the integers that JavaScript holds exactly.
        ("version", Reply::Integer(record.version as i64)),
        ("bytes", Reply::Integer(record.value_len as i64)),
        ("checksum", Reply::bulk(format!("{:016x}", record.checksum))),
        ("pttl", Reply::Integer(record.rest.map_or(-1, |rest| rest.0 as i64))),
    ]
}

fn state(held: &Held) -> &'static str {
    match held {
        Held::Silent => "silent",
        Held::Absent => "absent",
        Held::Present(record) if record.is_tombstone => "deleted",
        Held::Present(_) => "present",
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
        let mut out = Vec::new();
        crate::encoding::put(&mut out, &reply, true);
        resp::Reply::from_bytes(&out).expect("one whole reply");
    }
}
