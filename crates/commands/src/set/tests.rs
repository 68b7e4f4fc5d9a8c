//! Random members, scans and sizes of sets, on states of one key. Replies of redis-server are in
//! `tests/conformance`.

use std::collections::BTreeSet;

use base::Millis;
use bytes::Bytes;
use proptest::prelude::*;
use types::{Applied, Change, Clock, ExpiryChange, Reply, TimeToLive, Update, View};
use values::set::{Encoding, Growth, decode};

use crate::plan::Plan;
use crate::{Halt, Interpreter, Space};

fn clock(seed: u64) -> Clock {
    Clock { unix: Millis(1_000), seed }
}

/// Runs a line on the value of its one key.
fn run(interpreter: Interpreter, value: &[u8], line: &str, seed: u64) -> Applied {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let Ok((_, Plan::Key { command, .. })) = crate::plan(&args, clock(seed)) else {
        panic!("{line} is no command on one key")
    };
    let view = View::fresh(Some(value), TimeToLive::Never, Millis(1_000));
    interpreter.apply(view, &command.body, clock(seed))
}

fn set(encoding: Encoding, names: impl IntoIterator<Item = String>) -> Bytes {
    let names: Vec<String> = names.into_iter().collect();
    let mut growth = Growth::new(encoding);
    names.iter().for_each(|name| growth.push(name.as_bytes()));
    growth.encode()
}

fn texts(len: usize) -> Bytes {
    set(Encoding::Listpack, (0..len).map(|number| format!("m{number}")))
}

fn integers(len: usize) -> Bytes {
    set(Encoding::Intset, (0..len).map(|number| number.to_string()))
}

fn members(value: &[u8]) -> Vec<Vec<u8>> {
    decode(value).unwrap().iter().map(<[u8]>::to_vec).collect()
}

fn replied(reply: &Reply) -> Vec<Vec<u8>> {
    let (Reply::Set(all) | Reply::Array(all)) = reply else { panic!("{reply:?}") };
    all.iter().map(bulk).collect()
}

fn bulk(reply: &Reply) -> Vec<u8> {
    let Reply::Bulk(bytes) = reply else { panic!("{reply:?}") };
    bytes.to_vec()
}

fn values() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        (1..20_usize).prop_map(texts),
        (129..200_usize).prop_map(texts),
        (1..200_usize).prop_map(integers),
    ]
}

proptest! {
    #[test]
    fn popped_members_leave(value in values(), count in 0..220_usize, seed: u64) {
        let all = members(&value);
        let Applied { change, reply } =
            run(Interpreter::default(), &value, &format!("SPOP k {count}"), seed);
        let popped = replied(&reply);
        prop_assert_eq!(popped.len(), count.min(all.len()));
        let popped: BTreeSet<_> = popped.into_iter().collect();
        prop_assert_eq!(popped.len(), count.min(all.len()));
        let rest: Vec<_> = all.iter().filter(|member| !popped.contains(*member)).cloned().collect();
        match change {
            Change::None => prop_assert_eq!(count, 0),
            Change::Delete => prop_assert!(rest.is_empty()),
            Change::Put { value, expiry } => {
                prop_assert_eq!(members(&value), rest);
                prop_assert_eq!(expiry, ExpiryChange::Keep);
            }
            Change::Expire(_) => prop_assert!(false),
        }
    }

    #[test]
    fn popped_member_leaves(value in values(), seed: u64) {
        let Applied { change, reply } = run(Interpreter::default(), &value, "SPOP k", seed);
        let popped = bulk(&reply);
        let rest: Vec<_> =
            members(&value).into_iter().filter(|member| *member != popped).collect();
        match change {
            Change::Delete => prop_assert!(rest.is_empty()),
            Change::Put { value, .. } => prop_assert_eq!(members(&value), rest),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn random_members_are_members(value in values(), count in -220..220_i64, seed: u64) {
        let all: BTreeSet<_> = members(&value).into_iter().collect();
        let applied = run(Interpreter::default(), &value, &format!("SRANDMEMBER k {count}"), seed);
        prop_assert_eq!(applied.change, Change::None);
        let drawn = replied(&applied.reply);
        prop_assert!(drawn.iter().all(|member| all.contains(member)));
        if count < 0 {
            prop_assert_eq!(drawn.len() as i64, -count);
        } else {
            prop_assert_eq!(drawn.len(), all.len().min(count as usize));
            prop_assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len());
        }
    }

    #[test]
    fn scan_visits_each_member_once(value in values(), count in 1..30_usize) {
        let (mut cursor, mut visited) = (b"0".to_vec(), Vec::new());
        loop {
            let cursor_text = String::from_utf8_lossy(&cursor);
            let line = format!("SSCAN k {cursor_text} COUNT {count}");
            let reply = run(Interpreter::default(), &value, &line, 0).reply;
            let Reply::Array(parts) = reply else { panic!("{reply:?}") };
            visited.extend(replied(&parts[1]));
            cursor = bulk(&parts[0]);
            if cursor == b"0" {
                break;
            }
        }
        visited.sort_unstable();
        let mut all = members(&value);
        all.sort_unstable();
        prop_assert_eq!(visited, all);
    }

    /// Requests of up to 20 members, so that members are both compared and hashed.
    #[test]
    fn sets_change_as_their_model_does(
        requests in prop::collection::vec(
            (any::<bool>(), prop::collection::vec("[0-9ab]{1,2}", 1..20)), 1..12,
        ),
        seed: u64,
    ) {
        let mut model = BTreeSet::from(["start".to_owned()]);
        let mut value = set(Encoding::Listpack, model.iter().cloned());
        for (adds, names) in requests {
            let before = model.len();
            if adds {
                model.extend(names.iter().cloned());
            } else {
                model.retain(|name| !names.contains(name));
            }
            let line = format!("{} k {}", if adds { "SADD" } else { "SREM" }, names.join(" "));
            let applied = run(Interpreter::default(), &value, &line, seed);
            let changed = Reply::Integer(before.abs_diff(model.len()) as i64);
            prop_assert_eq!(applied.reply, changed);
            match applied.change {
                Change::Put { value: put, .. } => value = put,
                Change::None => prop_assert_eq!(before, model.len()),
                other => prop_assert!(false, "{other:?}"),
            }
            let found: BTreeSet<_> = members(&value).into_iter().collect();
            prop_assert_eq!(found, model.iter().map(|name| name.clone().into_bytes()).collect());
        }
    }
}

#[test]
fn each_member_is_drawn() {
    let value = texts(3);
    for line in ["SPOP k", "SRANDMEMBER k"] {
        let draw = |seed| bulk(&run(Interpreter::default(), &value, line, seed).reply);
        assert_eq!((0..100).map(draw).collect::<BTreeSet<_>>().len(), 3, "{line}");
    }
}

#[test]
fn pops_of_most_members_shrink_a_hash_table() {
    for (count, encoding) in
        [(124, Encoding::Hashtable), (125, Encoding::Listpack), (149, Encoding::Listpack)]
    {
        let applied = run(Interpreter::default(), &texts(150), &format!("SPOP k {count}"), 7);
        let Change::Put { value, .. } = applied.change else { panic!("members are left") };
        assert_eq!(decode(&value).unwrap().encoding(), encoding, "{count}");
    }
}

#[test]
fn random_members_fit_a_reply() {
    for count in [i64::MIN + 1, -100_000_000] {
        let line = format!("SRANDMEMBER k {count}");
        let reply = run(Interpreter::default(), &texts(3), &line, 0).reply;
        assert!(reply.is_error(), "{count}");
    }
}

#[test]
fn set_has_a_greatest_size() {
    let interpreter = Interpreter { max_value_len: 20, scripts: None };
    let error =
        |len| Reply::error(format!("ERR value too large: {len} bytes, and max-value-size is 20"));
    let value = texts(5);
    assert_eq!(value.len(), 17);
    let applied = run(interpreter, &value, "SADD k a b", 0);
    assert_eq!(applied, Applied::unchanged(error(21)));
    assert!(!run(interpreter, &value, "SADD k ab", 0).reply.is_error());
    let large = texts(9);
    assert!(!run(interpreter, &large, "SREM k m1", 0).reply.is_error());
    assert!(!run(interpreter, &large, "SADD k m1", 0).reply.is_error());

    let mut space = Space::new(&interpreter, clock(0));
    let view = |value| View::fresh(value, TimeToLive::Never, Millis(1_000));
    space.load("a".into(), view(Some(&value)));
    space.load("b".into(), view(Some(&integers(3))));
    let execute = |space: &mut Space, line: &str| {
        space.execute(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    };
    let halt = execute(&mut space, "SUNIONSTORE b a b").expect_err("too large");
    assert_eq!(halt, Halt::Error(crate::errors::value_too_large(23, 20)));
    let halt = execute(&mut space, "SMOVE b a 1").map(drop);
    assert_eq!(halt, Ok(()));
    assert_eq!(
        execute(&mut space, "SMOVE b a 2").map(drop),
        Err(Halt::Error(crate::errors::value_too_large(21, 20)))
    );
    assert_eq!(
        execute(&mut space, "SMISMEMBER b 1 2"),
        Ok(Reply::array([0, 1].map(Reply::Integer)))
    );
}
