//! The registers of configured groups: keys of the system database that only this module touches.

use bytes::Bytes;
use membership::{GroupValue, RegisterResult};
use types::wire::put_blob;
use types::{
    Access, Applied, Change, Clock, Command, Database, ExpiryChange, Malformed, Outcome, Reader,
    Reply, TimeToLive, Update, View,
};

/// The first byte of the commands of this module. No command of users begins with it.
const ESCAPE: u8 = 0xff;
const READ: u8 = 0;
const SWAP: u8 = 1;

/// The key of a group's register in the system database.
#[must_use]
pub fn key(group: Database) -> Vec<u8> {
    format!("group/{}", group.0).into_bytes()
}

/// A linearizable read.
#[must_use]
pub fn read() -> Command {
    Command::new(Access::Read, Bytes::from_static(&[ESCAPE, READ]))
}

/// Writes `new` if the register holds exactly `expected`; `None`: if it is absent.
#[must_use]
pub fn swap(expected: Option<&[u8]>, new: &[u8]) -> Command {
    let mut body = vec![ESCAPE, SWAP, u8::from(expected.is_some())];
    put_blob(&mut body, expected.unwrap_or_default());
    put_blob(&mut body, new);
    Command::new(Access::Update, body.into())
}

/// The value that a swap would write: for observers of a whole cluster.
#[must_use]
pub fn proposed(command: &Command) -> Option<GroupValue> {
    let mut fields = Reader::new(command.body.strip_prefix(&[ESCAPE, SWAP])?);
    fields.u8().ok()?;
    fields.blob(usize::MAX).ok()?;
    let new = fields.blob(usize::MAX).ok()?;
    GroupValue::read(&Bytes::copy_from_slice(new)).ok()
}

/// The end of either command for the membership service.
#[must_use]
pub fn result(outcome: Outcome) -> RegisterResult {
    let value = |reply: Option<Reply>| match reply {
        Some(Reply::Bulk(bytes)) => Some(bytes),
        _ => None,
    };
    match outcome {
        Outcome::Reply(Reply::Array(parts)) => {
            let mut parts = parts.into_iter();
            let done = parts.next() == Some(Reply::Integer(1));
            RegisterResult::Swapped { done, value: value(parts.next()) }
        }
        Outcome::Reply(reply @ (Reply::Bulk(_) | Reply::Null)) => {
            RegisterResult::Read(value(Some(reply)))
        }
        _ => RegisterResult::Unknown,
    }
}

/// Runs the commands of this module, and leaves all others to the users' function.
pub(crate) struct SystemUpdate<'a>(pub(crate) &'a dyn Update);

impl Update for SystemUpdate<'_> {
    fn apply(&self, found: View<'_>, body: &[u8], clock: Clock) -> Applied {
        let [ESCAPE, fields @ ..] = body else { return self.0.apply(found, body, clock) };
        run(found.value, fields).unwrap_or_else(|Malformed| Applied {
            change: Change::None,
            reply: Reply::error("ERR malformed operation on the register of a group"),
        })
    }
}

fn run(found: Option<&[u8]>, fields: &[u8]) -> Result<Applied, Malformed> {
    let mut fields = Reader::new(fields);
    if fields.u8()? == READ {
        return Ok(Applied { change: Change::None, reply: Reply::copy_or_null(found) });
    }
    let is_some = fields.u8()? == 1;
    let expected = fields.blob(usize::MAX)?;
    let new = fields.blob(usize::MAX)?;
    let is_expected = found == is_some.then_some(expected);
    let (change, after) = if is_expected {
        let value = Bytes::copy_from_slice(new);
        let expiry = ExpiryChange::Set(TimeToLive::Never);
        (Change::Put { value, expiry }, Some(new))
    } else {
        (Change::None, found)
    };
    let done = Reply::Integer(i64::from(is_expected));
    Ok(Applied { change, reply: Reply::array([done, Reply::copy_or_null(after)]) })
}

#[cfg(test)]
mod tests {
    use base::Millis;

    use super::*;

    const CLOCK: Clock = Clock { unix: Millis(0), seed: 0 };

    /// Users' commands must not reach it here.
    struct NoUpdate;

    impl Update for NoUpdate {
        fn apply(&self, _found: View<'_>, _body: &[u8], _clock: Clock) -> Applied {
            Applied { change: Change::None, reply: Reply::simple("a user's") }
        }
    }

    fn run(value: &mut Option<Bytes>, command: &Command) -> RegisterResult {
        let found = View { value: value.as_deref(), ttl: TimeToLive::Never, ends: None };
        let applied = SystemUpdate(&NoUpdate).apply(found, &command.body, CLOCK);
        if let Change::Put { value: new, .. } = applied.change {
            *value = Some(new);
        }
        result(Outcome::Reply(applied.reply))
    }

    #[test]
    fn a_swap_takes_effect_only_on_the_expected_value() {
        let mut value = None;
        let bytes = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        let swapped = |done, value| RegisterResult::Swapped { done, value };
        assert_eq!(run(&mut value, &read()), RegisterResult::Read(None));
        assert_eq!(run(&mut value, &swap(Some(b""), b"a")), swapped(false, None));
        assert_eq!(run(&mut value, &swap(None, b"a")), swapped(true, bytes("a")));
        assert_eq!(run(&mut value, &swap(None, b"b")), swapped(false, bytes("a")));
        assert_eq!(run(&mut value, &swap(Some(b"a"), b"")), swapped(true, bytes("")));
        assert_eq!(run(&mut value, &swap(Some(b"a"), b"c")), swapped(false, bytes("")));
        assert_eq!(run(&mut value, &read()), RegisterResult::Read(bytes("")));
    }

    #[test]
    fn malformed_operations_change_nothing_and_their_end_is_unknown() {
        let body = swap(Some(b"abc"), b"def").body;
        for len in 1..body.len() {
            let mut value = Some(Bytes::from_static(b"abc"));
            let command = Command::new(Access::Update, body.slice(..len));
            if len != 2 {
                assert_eq!(run(&mut value, &command), RegisterResult::Unknown, "{len}");
            }
            assert_eq!(value.as_deref(), Some(&b"abc"[..]));
        }
        assert_eq!(result(Outcome::NoQuorum), RegisterResult::Unknown);
    }

    #[test]
    fn commands_of_users_run_as_before() {
        let found = View { value: None, ttl: TimeToLive::Never, ends: None };
        let applied = SystemUpdate(&NoUpdate).apply(found, b"\x01k", CLOCK);
        assert_eq!(applied.reply, Reply::simple("a user's"));
    }
}
