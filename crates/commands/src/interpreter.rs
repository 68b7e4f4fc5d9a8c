//! Runs operations on states: the code of a body selects a handler.

use types::{Applied, Clock, Update, View};

use crate::context::Context;
use crate::lapse;
use crate::operation::{self, Handler};
use crate::scripting::ScriptEngine;
use crate::table;

/// The semantics of all commands. All nodes of a cluster have the same one.
#[derive(Clone, Copy, Debug)]
pub struct Interpreter {
    /// Bytes of the value of one key (`max-value-size`).
    pub max_value_len: usize,
    /// The engine of scripts. Without one, `EVAL` answers an error.
    pub scripts: Option<ScriptEngine>,
}

impl Default for Interpreter {
    fn default() -> Interpreter {
        Interpreter { max_value_len: types::limits::VALUE_LEN_DEFAULT, scripts: None }
    }
}

impl Update for Interpreter {
    fn apply(&self, view: View<'_>, body: &[u8], clock: Clock) -> Applied {
        match lapse::find(view, clock) {
            None => self.run(view, body, clock),
            Some(lapsed) => {
                let applied = self.run(lapse::rest(view, &lapsed), body, clock);
                lapse::after_removal(lapsed, applied)
            }
        }
    }
}

impl Interpreter {
    fn run(&self, view: View<'_>, body: &[u8], clock: Clock) -> Applied {
        let cx = self.context(view, clock);
        let handler = body.split_first().and_then(|(&code, fields)| {
            BY_CODE[usize::from(code)].map(|handler| (handler, fields))
        });
        match handler {
            Some((handler, fields)) => (handler.run)(&cx, fields),
            None => operation::not_understood(),
        }
    }

    /// The elements that an operation names: see [`operation::Operation::names`].
    pub(crate) fn names<'a>(&self, body: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        let (&code, fields) = body.split_first()?;
        (BY_CODE[usize::from(code)]?.names)(fields)
    }

    /// The surroundings of an operation. The caller takes fields that are over off the state.
    pub(crate) fn context<'a>(&self, view: View<'a>, clock: Clock) -> Context<'a> {
        Context { view, clock, max_value_len: self.max_value_len, scripts: self.scripts }
    }
}

/// The compiler fills this array, and rejects two operations with one code.
static BY_CODE: [Option<&Handler>; 256] = build();

const fn build() -> [Option<&'static Handler>; 256] {
    let mut by_code: [Option<&'static Handler>; 256] = [None; 256];
    let mut group = 0;
    while group < table::GROUPS.len() {
        let modules = table::GROUPS[group];
        let mut module = 0;
        while module < modules.len() {
            let handlers = modules[module].operations;
            let mut handler = 0;
            while handler < handlers.len() {
                let code = handlers[handler].code as usize;
                assert!(by_code[code].is_none(), "two operations have the same code");
                assert!(code != 0 && code != 255, "the code is reserved");
                by_code[code] = Some(&handlers[handler]);
                handler += 1;
            }
            module += 1;
        }
        group += 1;
    }
    by_code
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use proptest::prelude::*;
    use types::{Malformed, Reply, TimeToLive};

    use super::*;
    use crate::plan::Plan;

    const CLOCK: Clock = Clock { unix: Millis(1_000_000), seed: 0 };

    fn handlers() -> impl Iterator<Item = &'static Handler> {
        table::GROUPS.iter().flat_map(|modules| *modules).flat_map(|module| module.operations)
    }

    fn handler(body: &[u8]) -> Option<&'static Handler> {
        handlers().find(|handler| body.first() == Some(&handler.code))
    }

    /// Decodes a body and encodes it again.
    fn recode(body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let handler = handler(body).ok_or(Malformed)?;
        Ok((handler.recode)(&body[1..])?.to_vec())
    }

    /// The examples hold each operation to its code, too.
    #[test]
    fn bodies_never_change() {
        for handler in handlers() {
            // No request becomes the lines of a transaction.
            let has_examples = !handler.examples.is_empty() || handler.name.ends_with("Lines");
            assert!(has_examples, "{}: no example", handler.name);
            for (line, body) in handler.examples {
                let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                let command = match crate::plan(&args, CLOCK) {
                    Ok((_, Plan::Key { command, .. } | Plan::PerKey { command, .. })) => command,
                    other => panic!("{line}: {other:?}"),
                };
                assert_eq!(
                    command.body.escape_ascii().to_string(),
                    body.escape_ascii().to_string(),
                    "{line}"
                );
                assert_eq!(body[0], handler.code, "{line}: another operation");
                assert_eq!(recode(body).as_deref(), Ok(*body), "{line}");
            }
        }
    }

    /// A last field without a length may be cut: then another operation of the same kind remains.
    #[test]
    fn truncated_bodies_are_rejected_or_differ() {
        for (line, body) in handlers().flat_map(|handler| handler.examples) {
            for len in 0..body.len() {
                if let Ok(again) = recode(&body[..len]) {
                    assert_eq!(again, body[..len], "{line}: {len} bytes");
                }
            }
            let last = body.last().copied().unwrap_or_default();
            let longer = [body, &[last][..]].concat();
            assert!(recode(&longer).is_err() || recode(&longer) == Ok(longer), "{line}");
        }
    }

    fn apply(body: &[u8]) -> Applied {
        let view = View { value: None, ttl: TimeToLive::Never, ends: None };
        Interpreter::default().apply(view, body, CLOCK)
    }

    #[test]
    fn bodies_of_newer_versions_are_errors() {
        let unknown = Applied::unchanged(crate::errors::NOT_UNDERSTOOD.into());
        let free = (1..255).find(|code| BY_CODE[usize::from(*code)].is_none());
        let free = free.expect("not all codes are used");
        for body in [&b""[..], &[0], &[free], &[255, 1], &[1, 0], &[8, 7, 0, 0], &[21, 4]] {
            assert_eq!(apply(body), unknown, "{body:?}");
            assert_eq!(recode(body), Err(Malformed), "{body:?}");
        }
        let bits = [19, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(apply(&bits), unknown, "an unknown condition");
    }

    proptest! {
        #[test]
        fn random_bodies_recode_or_are_errors(
            code: u8,
            fields in prop::collection::vec(prop_oneof![0..8_u8, any::<u8>()], 0..24),
        ) {
            let body = [&[code][..], &fields].concat();
            match recode(&body) {
                Ok(again) => prop_assert_eq!(recode(&again), Ok(again)),
                Err(Malformed) => {
                    let reply = Reply::from(crate::errors::NOT_UNDERSTOOD);
                    prop_assert_eq!(apply(&body), Applied::unchanged(reply));
                }
            }
        }
    }
}
