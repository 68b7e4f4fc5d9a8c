//! `CLIENT …`.

use base::decimal::parse_i64;
use bytes::Bytes;
use commands::SessionVerb;
use node::front::SessionContext;
use resp::encode;

use crate::clients::ClientFacts;
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
            session.say_with(cx, |out| encode::integer(out, id));
        }
        SessionVerb::ClientGetName => {
            let name = session.facts.name.clone();
            session.say_with(cx, |out| match name.as_str() {
                "" => encode::null(out),
                name => encode::bulk(out, name.as_bytes()),
            });
        }
        SessionVerb::ClientSetName => match valid_name(args[2]) {
            Some(name) => {
                session.facts.name = name;
                publish(session, cx);
                session.say_ok(cx);
            }
            None => session.say_error(cx, BAD_NAME),
        },
        SessionVerb::ClientSetInfo => set_info(session, args, cx),
        SessionVerb::ClientInfo => {
            let line = session.facts.line(cx.now) + "\n";
            session.say_with(cx, |out| encode::verbatim(out, *b"txt", line.as_bytes()));
        }
        SessionVerb::ClientList => list(session, cx),
        SessionVerb::ClientKill => kill(session, args, cx),
        SessionVerb::ClientReply => reply(session, args[2], cx),
        SessionVerb::ClientUnblock => session.say(cx, Bytes::from_static(b":0\r\n")),
        SessionVerb::ClientGetRedir => session.say(cx, Bytes::from_static(b":-1\r\n")),
        SessionVerb::ClientTrackingInfo => session.say_with(cx, |out| {
            encode::map(out, 3);
            encode::bulk(out, b"flags");
            encode::set(out, 1);
            encode::bulk(out, b"off");
            encode::bulk(out, b"redirect");
            encode::integer(out, -1);
            encode::bulk(out, b"prefixes");
            encode::array(out, 0);
        }),
        SessionVerb::ClientConsistency => {
            if args[2].eq_ignore_ascii_case(b"linearizable") {
                session.say_ok(cx);
            } else {
                session.say_error(
                    cx,
                    "ERR consistency is LINEARIZABLE on every protocol of this node",
                );
            }
        }
        SessionVerb::ClientNoEvict | SessionVerb::ClientNoTouch => match args[2] {
            flag if flag.eq_ignore_ascii_case(b"on") || flag.eq_ignore_ascii_case(b"off") => {
                session.say_ok(cx);
            }
            _ => session.say_error(cx, "ERR syntax error"),
        },
        SessionVerb::ClientPause | SessionVerb::ClientUnpause => session.say_error(
            cx,
            "ERR 'client|pause' is not supported: a node does not stop others from writing",
        ),
        other => session.say_error(cx, &format!("ERR '{other:?}' is not supported by this server")),
    }
}

fn publish(session: &mut Session, cx: &SessionContext<'_>) {
    session.facts.since.get_or_insert(cx.now);
    session.shared.clients.put(&session.facts);
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
    publish(session, cx);
    session.say_ok(cx);
}

fn list(session: &mut Session, cx: &mut SessionContext<'_>) {
    let lines: String = session
        .shared
        .clients
        .all()
        .iter()
        .map(|client: &ClientFacts| client.line(cx.now) + "\n")
        .collect();
    session.say_with(cx, |out| encode::verbatim(out, *b"txt", lines.as_bytes()));
}

type Filter = Box<dyn Fn(&ClientFacts) -> bool>;

/// `CLIENT KILL addr` or `CLIENT KILL ID id | ADDR addr | LADDR addr | USER user …`.
fn kill(session: &mut Session, args: &[&[u8]], cx: &mut SessionContext<'_>) {
    if let [_, _, address] = args {
        let address = String::from_utf8_lossy(address).into_owned();
        return match session.shared.clients.kill(|client| client.peer.to_string() == address) {
            0 => session.say_error(cx, "ERR No such client"),
            _ => session.say_ok(cx),
        };
    }
    let mut filters: Vec<Filter> = Vec::new();
    let mine = session.id();
    let mut skips_me = true;
    for pair in args[2..].chunks(2) {
        let [option, value] = pair else { return session.say_error(cx, "ERR syntax error") };
        let text = String::from_utf8_lossy(value).into_owned();
        if option.eq_ignore_ascii_case(b"id") {
            let Some(id) = parse_i64(value).filter(|id| *id > 0) else {
                return session.say_error(cx, "ERR client-id should be greater than 0");
            };
            filters.push(Box::new(move |client| client.id.0 == id as u64));
        } else if option.eq_ignore_ascii_case(b"addr") {
            filters.push(Box::new(move |client| client.peer.to_string() == text));
        } else if option.eq_ignore_ascii_case(b"laddr") {
            filters.push(Box::new(move |client| client.local.to_string() == text));
        } else if option.eq_ignore_ascii_case(b"user") {
            filters.push(Box::new(move |_| text == "default"));
        } else if option.eq_ignore_ascii_case(b"skipme") {
            skips_me = value.eq_ignore_ascii_case(b"yes");
        } else {
            return session.say_error(cx, "ERR syntax error");
        }
    }
    let count = session
        .shared
        .clients
        .kill(|client| (!skips_me || client.id != mine) && filters.iter().all(|fits| fits(client)));
    session.say_with(cx, |out| encode::integer(out, count as i64));
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
