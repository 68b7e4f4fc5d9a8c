//! How a conversation begins: `HELLO`, `AUTH`, `SELECT`, and `RESET`.

use std::borrow::Cow;

use node::session::SessionContext;
use node::status::PasswordPort;
use types::limits::DATABASES;
use types::{Reply, SessionId};

use crate::consistency::Consistency;
use crate::session::{Replies, Session};
use crate::transaction::Transaction;
use crate::{client_command, info};

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const HELLO_NO_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
     AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same \
     time";

impl Session {
    pub(crate) fn reset(&mut self, cx: &mut SessionContext<'_>) {
        self.facts.name.clear();
        self.facts.database = 0;
        self.facts.protocol = 2;
        self.replies = Replies::On;
        self.consistency = Consistency::Local;
        self.monitor = None;
        self.transaction = Transaction::default();
        self.authenticated = self.shared.password.is_open();
        self.parser.limits.authenticated = self.authenticated;
        self.shared.clients.put(&self.facts);
        self.say(cx, Reply::simple("RESET"));
    }

    pub(crate) fn select(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let Some(index) = base::decimal::parse_i64(args[1]) else {
            return self.say_error(cx, "ERR value is not an integer or out of range");
        };
        match u8::try_from(index) {
            Ok(index) if self.is_served(index, cx) => {
                self.facts.database = index;
                self.shared.clients.put(&self.facts);
                self.say_ok(cx);
            }
            Ok(index) if usize::from(index) < DATABASES => self.say_error(
                cx,
                &format!(
                    "ERR DB index is out of range: database {index} is not configured on this node"
                ),
            ),
            _ => self.say_error(cx, "ERR DB index is out of range"),
        }
    }

    fn is_served(&self, index: u8, cx: &SessionContext<'_>) -> bool {
        cx.node.config().databases.iter().any(|one| one.database.0 == index)
    }

    pub(crate) fn auth(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let (user, password) = match args {
            [_, _] if self.shared.password.is_open() => {
                return self.say_error(
                    cx,
                    "ERR AUTH <password> called without any password configured for the default user. \
                     Are you sure your configuration is correct?",
                );
            }
            [_, password] => (b"default".as_slice(), *password),
            [_, user, password] => (*user, *password),
            _ => return self.say_error(cx, "ERR syntax error"),
        };
        if self.authenticate(user, password, cx) {
            self.say_ok(cx);
        } else {
            self.say_error(cx, WRONG_PASS);
        }
    }

    fn authenticate(&mut self, user: &[u8], password: &[u8], cx: &SessionContext<'_>) -> bool {
        let valid = self.shared.password.admits(user, password);
        if !valid {
            cx.node.note_wrong_password(self.facts.peer.ip(), PasswordPort::Clients);
        }
        self.authenticated |= valid;
        self.parser.limits.authenticated = self.authenticated;
        valid
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    pub(crate) fn hello(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        match self.say_hello(args, cx) {
            Ok(name) => {
                if let Some(name) = name {
                    self.facts.name = name;
                }
                self.publish(cx);
                let (id, version) = (self.id(), self.facts.protocol);
                let is_sentinel = self.is_sentinel();
                self.say(cx, hello_reply(id, version, is_sentinel));
            }
            Err(text) => self.say_error(cx, &text),
        }
    }

    /// The name that was set, or the text of an error.
    fn say_hello(
        &mut self,
        args: &[&[u8]],
        cx: &SessionContext<'_>,
    ) -> Result<Option<String>, Cow<'static, str>> {
        let version = match args.get(1) {
            None => self.facts.protocol,
            Some(version) => match base::decimal::parse_i64(version) {
                Some(2) => 2,
                Some(3) => 3,
                Some(_) => return Err("NOPROTO unsupported protocol version".into()),
                None => {
                    return Err("ERR Protocol version is not an integer or out of range".into());
                }
            },
        };
        let mut name = None;
        let mut rest = args.get(2..).unwrap_or_default();
        while let Some((option, after)) = rest.split_first() {
            match after {
                [user, password, more @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                    if !self.authenticate(user, password, cx) {
                        return Err(WRONG_PASS.into());
                    }
                    rest = more;
                }
                [value, more @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                    name = Some(client_command::valid_name(value).ok_or(client_command::BAD_NAME)?);
                    rest = more;
                }
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
                }
            }
        }
        if !self.authenticated {
            return Err(HELLO_NO_AUTH.into());
        }
        self.facts.protocol = version;
        Ok(name)
    }
}

fn hello_reply(id: SessionId, version: u8, is_sentinel: bool) -> Reply {
    let mut fields = vec![
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(info::REDIS_VERSION)),
        ("proto", Reply::Integer(i64::from(version))),
        ("id", Reply::Integer(id.0 as i64)),
    ];
    match is_sentinel {
        true => fields.push(("mode", Reply::bulk("sentinel"))),
        false => {
            fields.extend([("mode", Reply::bulk("standalone")), ("role", Reply::bulk("master"))])
        }
    }
    fields.push(("modules", Reply::Array(Vec::new())));
    Reply::map(fields)
}
