//! `CLIENT …`.

use std::borrow::Cow;

use base::Nanos;
use base::decimal::parse_i64;
use commands::SessionVerb;
use node::session::SessionContext;
use types::Reply;

use crate::clients::ClientFacts;
use crate::consistency::Consistency;
use crate::session::{Replies, Session};

pub(crate) const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";

/// A name may be shown in a line of a list.
pub(crate) fn valid_name(name: &[u8]) -> Option<String> {
    let printable = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    printable.then(|| String::from_utf8_lossy(name).into_owned())
}

pub(crate) fn execute(
    session: &mut Session,
    verb: SessionVerb,
    args: &[&[u8]],
    cx: &mut SessionContext<'_>,
) {
    match verb {
        SessionVerb::ClientId => {
            let id = session.id().0 as i64;
            session.say(cx, Reply::Integer(id));
        }
        SessionVerb::ClientGetName => {
            let name = session.facts.name.clone();
            let is_set = !name.is_empty();
            session.say(cx, if is_set { Reply::bulk(name) } else { Reply::Null });
        }
        SessionVerb::ClientSetName => match valid_name(args[2]) {
            Some(name) => {
                session.facts.name = name;
                session.publish(cx);
                session.say_ok(cx);
            }
            None => session.say_error(cx, BAD_NAME),
        },
        SessionVerb::ClientSetInfo => set_info(session, args, cx),
        SessionVerb::ClientInfo => {
            let line = session.facts.line(cx.now, &session.shared.counts) + "\n";
            session.say(cx, Reply::text(line));
        }
        SessionVerb::ClientList => match listed(session, args, cx) {
            Ok(lines) => session.say(cx, Reply::text(lines)),
            Err(text) => session.say_error(cx, &text),
        },
        SessionVerb::ClientKill => match kill(session, args, cx.now) {
            Ok(reply) => {
                cx.node.step_sessions();
                session.say(cx, reply);
                session.closing |= session.is_killed();
            }
            Err(text) => session.say_error(cx, &text),
        },
        SessionVerb::ClientReply => reply(session, args[2], cx),
        SessionVerb::ClientUnblock | SessionVerb::ClientPause if args.len() > 4 => {
            let subcommand = String::from_utf8_lossy(args[1]);
            let text = format!(
                "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try CLIENT HELP."
            );
            session.say_error(cx, &text);
        }
        SessionVerb::ClientUnblock => unblock(session, args, cx),
        SessionVerb::ClientGetRedir => session.say(cx, Reply::Integer(-1)),
        SessionVerb::ClientTrackingInfo => session.say(
            cx,
            Reply::map([
                ("flags", Reply::set([Reply::bulk("off")])),
                ("redirect", Reply::Integer(-1)),
                ("prefixes", Reply::Array(Vec::new())),
            ]),
        ),
        SessionVerb::ClientConsistency => match Consistency::parse(args[2]) {
            Some(level) => {
                session.consistency = level;
                session.say_ok(cx);
            }
            None => session.say_error(cx, "ERR syntax error"),
        },
        SessionVerb::ClientNoEvict | SessionVerb::ClientNoTouch => match args[2] {
            flag if flag.eq_ignore_ascii_case(b"on") || flag.eq_ignore_ascii_case(b"off") => {
                session.say_ok(cx);
            }
            _ => session.say_error(cx, "ERR syntax error"),
        },
        SessionVerb::ClientPause => pause(session, args, cx),
        SessionVerb::ClientUnpause => {
            session.shared.pause.end();
            cx.node.step_sessions();
            session.say_ok(cx);
        }
        other => session.say_error(cx, &format!("ERR '{other:?}' is not supported by this server")),
    }
}

fn set_info(session: &mut Session, args: &[&[u8]], cx: &mut SessionContext<'_>) {
    let Some(value) = valid_name(args[3]) else {
        let attribute = String::from_utf8_lossy(args[2]).to_lowercase();
        let text =
            format!("ERR {attribute} cannot contain spaces, newlines or special characters.");
        return session.say_error(cx, &text);
    };
    if args[2].eq_ignore_ascii_case(b"lib-name") {
        session.facts.library = value;
    } else if args[2].eq_ignore_ascii_case(b"lib-ver") {
        session.facts.library_version = value;
    } else {
        let option = String::from_utf8_lossy(args[2]);
        return session.say_error(cx, &format!("ERR Unrecognized option '{option}'"));
    }
    session.publish(cx);
    session.say_ok(cx);
}

type Filter = Box<dyn Fn(&ClientFacts) -> bool>;

/// `CLIENT LIST [TYPE type] [ID id …]`.
fn listed(
    session: &Session,
    args: &[&[u8]],
    cx: &SessionContext<'_>,
) -> Result<String, Cow<'static, str>> {
    let fits: Filter = match &args[2..] {
        [] => Box::new(|_| true),
        [option, kind] if option.eq_ignore_ascii_case(b"type") => of_type(kind)?,
        [option, ids @ ..] if option.eq_ignore_ascii_case(b"id") && !ids.is_empty() => {
            let ids: Option<Vec<i64>> = ids.iter().map(|id| parse_i64(id)).collect();
            let ids = ids.ok_or("ERR Invalid client ID")?;
            Box::new(move |client| ids.contains(&(client.id.0 as i64)))
        }
        _ => return Err("ERR syntax error".into()),
    };
    let (clients, counts) = (session.shared.clients.all(), &session.shared.counts);
    let lines = clients.iter().filter(|client| fits(client));
    Ok(lines.map(|one| one.line(cx.now, counts) + "\n").collect())
}

/// All clients are normal ones.
fn of_type(kind: &[u8]) -> Result<Filter, String> {
    let is = |name: &str| kind.eq_ignore_ascii_case(name.as_bytes());
    if is("normal") {
        Ok(Box::new(|_| true))
    } else if ["master", "replica", "slave", "pubsub"].into_iter().any(is) {
        Ok(Box::new(|_| false))
    } else {
        Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(kind)))
    }
}

/// `CLIENT KILL addr` or `CLIENT KILL ID id | ADDR addr | LADDR addr | TYPE type | USER user |
/// MAXAGE seconds | SKIPME yes/no …`.
fn kill(session: &Session, args: &[&[u8]], now: Nanos) -> Result<Reply, Cow<'static, str>> {
    if let [_, _, address] = args {
        let address = String::from_utf8_lossy(address);
        return match session.shared.clients.kill(|client| client.peer.to_string() == address) {
            0 => Err("ERR No such client".into()),
            _ => Ok(Reply::OK),
        };
    }
    let mut filters: Vec<Filter> = Vec::new();
    let mut skips_me = true;
    for pair in args[2..].chunks(2) {
        let [option, value] = pair else { return Err("ERR syntax error".into()) };
        if option.eq_ignore_ascii_case(b"skipme") {
            skips_me = match value {
                yes if yes.eq_ignore_ascii_case(b"yes") => true,
                no if no.eq_ignore_ascii_case(b"no") => false,
                _ => return Err("ERR syntax error".into()),
            };
        } else {
            filters.push(filter(option, value, now)?);
        }
    }
    let mine = session.id();
    let fits = |client: &ClientFacts| {
        (!skips_me || client.id != mine) && filters.iter().all(|fits| fits(client))
    };
    Ok(Reply::Integer(session.shared.clients.kill(fits) as i64))
}

/// The clients that one pair of `CLIENT KILL` selects.
fn filter(option: &[u8], value: &[u8], now: Nanos) -> Result<Filter, Cow<'static, str>> {
    let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
    let text = String::from_utf8_lossy(value).into_owned();
    if is("id") {
        let id = parse_i64(value).filter(|id| *id > 0);
        let id = id.ok_or("ERR client-id should be greater than 0")?;
        Ok(Box::new(move |client| client.id.0 == id as u64))
    } else if is("addr") {
        Ok(Box::new(move |client| client.peer.to_string() == text))
    } else if is("laddr") {
        Ok(Box::new(move |client| client.local.to_string() == text))
    } else if is("maxage") {
        let seconds = parse_i64(value).ok_or("ERR maxage is not an integer or out of range")?;
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        let seconds = seconds.ok_or("ERR maxage should be greater than 0")?;
        Ok(Box::new(move |client| client.age(now) >= seconds))
    } else if is("type") {
        Ok(of_type(value)?)
    } else if is("user") && text == "default" {
        Ok(Box::new(|_| true))
    } else if is("user") {
        Err(format!("ERR No such user '{text}'").into())
    } else {
        Err("ERR syntax error".into())
    }
}

/// No command of this server blocks on a key, so there is no client to wake.
fn unblock(session: &mut Session, args: &[&[u8]], cx: &mut SessionContext<'_>) {
    let is_reason = |reason: &&[u8]| {
        reason.eq_ignore_ascii_case(b"timeout") || reason.eq_ignore_ascii_case(b"error")
    };
    if !args.get(3).is_none_or(is_reason) {
        session.say_error(cx, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    } else if parse_i64(args[2]).is_none() {
        session.say_error(cx, "ERR value is not an integer or out of range");
    } else {
        session.say(cx, Reply::Integer(0));
    }
}

/// `CLIENT PAUSE timeout [WRITE | ALL]`.
fn pause(session: &mut Session, args: &[&[u8]], cx: &mut SessionContext<'_>) {
    let only_writes = match args.get(3) {
        None => false,
        Some(kind) if kind.eq_ignore_ascii_case(b"all") => false,
        Some(kind) if kind.eq_ignore_ascii_case(b"write") => true,
        Some(_) => return session.say_error(cx, "ERR CLIENT PAUSE mode must be WRITE or ALL"),
    };
    let Some(millis) = parse_i64(args[2]) else {
        return session.say_error(cx, "ERR timeout is not an integer or out of range");
    };
    let Ok(millis) = u64::try_from(millis) else {
        return session.say_error(cx, "ERR timeout is negative");
    };
    let until = Nanos(cx.now.0.saturating_add(millis.saturating_mul(1_000_000)));
    session.shared.pause.begin(cx.now, until, only_writes);
    session.say_ok(cx);
}

fn reply(session: &mut Session, mode: &[u8], cx: &mut SessionContext<'_>) {
    if mode.eq_ignore_ascii_case(b"on") {
        session.replies = Replies::On;
        session.say_ok(cx);
    } else if mode.eq_ignore_ascii_case(b"off") {
        session.replies = Replies::Off;
    } else if mode.eq_ignore_ascii_case(b"skip") {
        if session.replies == Replies::On {
            session.replies = Replies::SkipNext;
        }
    } else {
        session.say_error(cx, "ERR syntax error");
    }
}
