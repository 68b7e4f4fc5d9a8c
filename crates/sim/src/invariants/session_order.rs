//! Operations of one session on one key take effect in the order of issue, pipelined or not.
//!
//! The linearizability check cannot see this, because pipelined operations overlap.
//! Values that name the operation that wrote them can.
//! Operations of unknown outcome are left out: they may take effect at any time.

use std::collections::BTreeMap;

use checker::model::kv::{Bytes, KvInput, KvOutput};

use crate::clients::{Ended, Op, SimKey};
use crate::workload::mix::Mix;
use crate::workload::operation::{Input, Output};

/// Checks every session and key.
///
/// # Errors
/// The key, and one line that names the operations.
pub fn check(ops: &[Op], keys: &[SimKey]) -> Result<(), (usize, String)> {
    let mut lanes: BTreeMap<(u64, usize), Vec<usize>> = BTreeMap::new();
    for (id, op) in ops.iter().enumerate() {
        lanes.entry((op.session, op.key)).or_default().push(id);
    }
    for ((_, key), lane) in lanes {
        let checked = match keys[key].mix {
            Mix::List => check_lists(ops, &lane),
            Mix::Register | Mix::PlainDelete => check_values(ops, &lane),
            _ => Ok(()),
        };
        checked.map_err(|reason| (key, reason))?;
    }
    Ok(())
}

fn read(op: &Op) -> Option<&Bytes> {
    match (&op.input, &op.ended) {
        (
            Input::Text(KvInput::Get),
            Some((_, Ended::Returned(Output::Text(KvOutput::Value(Some(value)))))),
        ) => Some(value),
        _ => None,
    }
}

fn has_returned(op: &Op) -> bool {
    matches!(op.ended, Some((_, Ended::Returned(_))))
}

fn text(value: &Bytes) -> &str {
    std::str::from_utf8(value.as_slice()).unwrap_or_default()
}

/// A read shows every earlier append of its session that returned, no later one, and all in order.
fn check_lists(ops: &[Op], lane: &[usize]) -> Result<(), String> {
    for &id in lane {
        let Some(list) = read(&ops[id]) else { continue };
        let of_session: Vec<usize> = (text(list).split(',').filter_map(|item| item.parse().ok()))
            .filter(|item| lane.binary_search(item).is_ok())
            .collect();
        let returned: Vec<usize> =
            of_session.iter().copied().filter(|&item| has_returned(&ops[item])).collect();
        if !returned.is_sorted() {
            return Err(format!("session order: read #{id} shows own appends as {returned:?}"));
        }
        if let Some(later) = returned.iter().find(|&&item| item > id) {
            return Err(format!("session order: read #{id} shows own later append #{later}"));
        }
        let appends = lane.iter().copied().take_while(|&item| item < id).filter(|&item| {
            matches!(ops[item].input, Input::Text(KvInput::Append(_))) && has_returned(&ops[item])
        });
        for item in appends {
            if !of_session.contains(&item) {
                return Err(format!("session order: read #{id} misses own append #{item}"));
            }
        }
    }
    Ok(())
}

/// A read shows no later write of its session, and none that a write of its own had replaced.
fn check_values(ops: &[Op], lane: &[usize]) -> Result<(), String> {
    for &id in lane {
        let Some(value) = read(&ops[id]) else { continue };
        let Some(writer) = text(value).strip_prefix('v').and_then(|id| id.parse::<usize>().ok())
        else {
            continue;
        };
        if lane.binary_search(&writer).is_err() || !has_returned(&ops[writer]) {
            continue;
        }
        if writer > id {
            return Err(format!("session order: read #{id} shows own later write #{writer}"));
        }
        let replaced = lane.iter().find(|&&other| {
            other > writer
                && other < id
                && has_returned(&ops[other])
                && matches!(ops[other].input, Input::Text(KvInput::Set(_) | KvInput::Expire(None)))
        });
        if let Some(other) = replaced {
            return Err(format!(
                "session order: read #{id} shows #{writer}, which own write #{other} replaced"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use types::Key;

    use super::*;
    use crate::workload::script::Verb;

    fn op(input: KvInput, output: KvOutput) -> Op {
        let ended = Some((2, Ended::Returned(Output::Text(output))));
        let (client, session, node, key) = (0, 1, 0, 0);
        let (input, verb) = (input.into(), Verb::Plain);
        Op { client, session, node, key, input, verb, ttl_millis: 1, line: None, invoked: 1, ended }
    }

    fn keys(mix: Mix) -> Vec<SimKey> {
        vec![SimKey { key: Key::new(b"k"), mix }]
    }

    fn append(id: usize) -> Op {
        op(KvInput::Append(Bytes::from(&format!("{id},"))), KvOutput::Integer(2))
    }

    fn get(value: &str) -> Op {
        op(KvInput::Get, KvOutput::Value(Some(Bytes::from(value))))
    }

    #[test]
    fn swapped_missing_and_early_appends_are_found() {
        let keys = keys(Mix::List);
        assert_eq!(check(&[append(0), append(1), get("0,1,")], &keys), Ok(()));
        for wrong in ["1,0,", "0,", "0,1,3,"] {
            let ops = [append(0), append(1), get(wrong), append(3)];
            assert!(check(&ops, &keys).is_err(), "{wrong}");
        }
    }

    #[test]
    fn read_of_replaced_own_write_is_found() {
        let keys = keys(Mix::Register);
        let set = |id: usize| op(KvInput::Set(Bytes::from(&format!("v{id}"))), KvOutput::Done);
        assert_eq!(check(&[set(0), set(1), get("v1")], &keys), Ok(()));
        assert!(check(&[set(0), set(1), get("v0")], &keys).is_err());
        assert!(check(&[set(0), get("v2"), set(2)], &keys).is_err());
    }
}
