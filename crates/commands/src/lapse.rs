//! Fields of a hash whose time is over: no operation sees them.
//!
//! An operation that finds such fields runs on the rest, and the rest becomes part of its change. A
//! field that one reply denies is then gone for all later ones, whatever their clocks say.

use types::{Applied, Change, Clock, ExpiryChange, TimeToLive, View};
use values::hash::{Lapsed, lapse};

/// Fields that are over at the time of `clock`, of the value of a key.
pub(crate) fn find(view: View<'_>, clock: Clock) -> Option<Lapsed> {
    lapse(view.value?, clock.unix.0)
}

/// The state without the fields that are over.
pub(crate) fn rest<'a>(view: View<'a>, lapsed: &'a Lapsed) -> View<'a> {
    match lapsed {
        Lapsed::Rest(rest) => View { value: Some(rest), ..view },
        Lapsed::All => View { value: None, ttl: TimeToLive::Never, ends: None },
    }
}

/// The change that leaves this rest.
pub(crate) fn removal(lapsed: Lapsed) -> Change {
    match lapsed {
        Lapsed::Rest(value) => Change::Put { value, expiry: ExpiryChange::Keep },
        Lapsed::All => Change::Delete,
    }
}

/// Both changes as one: the removal, and the change of an operation on the rest.
pub(crate) fn after_removal(lapsed: Lapsed, applied: Applied) -> Applied {
    let Applied { change, reply } = applied;
    let change = match (lapsed, change) {
        (lapsed, Change::None) => removal(lapsed),
        (Lapsed::Rest(value), Change::Expire(expiry)) => Change::Put { value, expiry },
        // The time to live went with the old key.
        (Lapsed::All, Change::Put { value, expiry: ExpiryChange::Keep }) => {
            Change::Put { value, expiry: ExpiryChange::Set(TimeToLive::Never) }
        }
        (_, change) => change,
    };
    Applied { change, reply }
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use types::{Reply, Update};
    use values::Hash;
    use values::hash::Draft;

    use super::*;
    use crate::{Interpreter, Plan, Space};

    const CLOCK: Clock = Clock { unix: Millis(1_000), seed: 0 };
    const NEVER: ExpiryChange = ExpiryChange::Set(TimeToLive::Never);

    /// A hash of fields with their ends.
    fn hash(fields: &[(&str, Option<u64>)]) -> Vec<u8> {
        let names = || fields.iter().map(|(name, _)| name.as_bytes());
        let mut draft = Draft::new(Hash::EMPTY, names(), 0);
        for name in names() {
            draft.set(name, b"1");
        }
        let value = draft.finish().expect("fields");
        let with_ends = Hash::decode(&value).expect("a hash").with_ends();
        let mut draft = Draft::new(Hash::decode(&with_ends).expect("a hash"), names(), 0);
        fields.iter().for_each(|(name, end)| draft.set_end(name.as_bytes(), *end));
        draft.finish().expect("fields").to_vec()
    }

    fn apply(value: &[u8], line: &str) -> Applied {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let ttl = TimeToLive::After(Millis(50));
        let view = View::fresh(Some(value), ttl, CLOCK.unix);
        let interpreter = Interpreter::default();
        let applied = match crate::plan(&args, CLOCK) {
            Ok((_, Plan::Key { command, .. } | Plan::PerKey { command, .. })) => {
                interpreter.apply(view, &command.body, CLOCK)
            }
            other => panic!("{line}: {other:?}"),
        };
        let mut space = Space::new(&interpreter, CLOCK);
        space.load("k".into(), view);
        let reply = space.execute(&args);
        assert_eq!(reply.as_ref(), Ok(&applied.reply), "{line}: a space answers otherwise");
        let change = space.changes().map(|(_, change)| change).next().unwrap_or(Change::None);
        assert_eq!(change, applied.change, "{line}: a space changes otherwise");
        applied
    }

    fn put(fields: &[(&str, Option<u64>)], expiry: ExpiryChange) -> Change {
        Change::Put { value: hash(fields).into(), expiry }
    }

    #[test]
    fn read_removes_fields_that_are_over() {
        let value = hash(&[("a", Some(1_000)), ("b", Some(1_001)), ("c", None)]);
        let rest = put(&[("b", Some(1_001)), ("c", None)], ExpiryChange::Keep);
        for (line, reply) in [
            ("HGET k a", Reply::Null),
            ("HLEN k", Reply::Integer(2)),
            ("HEXISTS k b", Reply::count(true)),
            ("EXISTS k", Reply::count(true)),
            ("HDEL k a", Reply::Integer(0)),
            ("GET k", crate::errors::WRONG_TYPE.into()),
            ("HINCRBY k b 9223372036854775807", crate::errors::INCREMENT_OVERFLOW.into()),
        ] {
            assert_eq!(apply(&value, line), Applied { change: rest.clone(), reply }, "{line}");
        }
        assert_eq!(apply(&hash(&[("a", Some(1_001))]), "HLEN k").change, Change::None);
    }

    #[test]
    fn key_goes_with_its_last_field() {
        let value = hash(&[("a", Some(999)), ("b", Some(1_000))]);
        for (line, reply) in [
            ("HGETALL k", Reply::Map(Vec::new())),
            ("EXISTS k", Reply::count(false)),
            ("TYPE k", Reply::simple("none")),
            ("DEL k", Reply::count(false)),
            ("PERSIST k", Reply::count(false)),
            ("EXPIRE k 5", Reply::count(false)),
        ] {
            assert_eq!(apply(&value, line), Applied { change: Change::Delete, reply }, "{line}");
        }
    }

    #[test]
    fn writes_go_on_from_the_rest() {
        let value = hash(&[("a", Some(1_000)), ("b", Some(1_001)), ("c", None)]);
        let rest = [("b", Some(1_001)), ("c", None)];
        let ttl = ExpiryChange::Set(TimeToLive::After(Millis(9_000)));
        assert_eq!(apply(&value, "EXPIRE k 9").change, put(&rest, ttl));
        assert_eq!(apply(&value, "PERSIST k").change, put(&rest, NEVER));
        let new = [("b", Some(1_001)), ("c", None), ("a", None)];
        let added = Applied { change: put(&new, ExpiryChange::Keep), reply: Reply::Integer(1) };
        assert_eq!(apply(&value, "HSET k a 1"), added);
        assert_eq!(apply(&value, "DEL k").change, Change::Delete);
    }

    #[test]
    fn new_key_has_no_old_time_to_live() {
        let value = hash(&[("a", Some(1_000))]);
        let string = |text: &str, expiry| Change::Put {
            value: values::string::encode(text.as_bytes()),
            expiry,
        };
        assert_eq!(apply(&value, "APPEND k x").change, string("x", NEVER));
        assert_eq!(apply(&value, "SET k x KEEPTTL").change, string("x", NEVER));
        let ttl = ExpiryChange::Set(TimeToLive::After(Millis(5)));
        assert_eq!(apply(&value, "SET k x PX 5").change, string("x", ttl));
    }
}
