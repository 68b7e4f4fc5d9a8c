//! Errors that functions of ours raise in a script.
//!
//! They are no Lua values: `pcall` and the error handler of a run turn them into strings or tables.

use std::fmt::{self, Display, Formatter};

use mlua::{Error, Lua, Value};

/// An error on its way through Lua.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Raised {
    /// A string, with the position of the caller.
    Text(Vec<u8>),
    /// A table with the field `err`.
    Reply(Vec<u8>),
    /// The run is over: no script can catch it.
    Halt,
}

impl Display for Raised {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Raised::Text(text) | Raised::Reply(text) => text.escape_ascii().fmt(out),
            Raised::Halt => out.write_str("the run is over"),
        }
    }
}

impl std::error::Error for Raised {}

/// The name of the chunk that wraps functions of Lua. No error names it.
pub(crate) const WRAPPERS: &str = "=[wrappers]";
const WRAPPERS_SHORT: &str = "[wrappers]";

/// An error at the place of the caller, as `luaL_error` raises it.
pub(crate) fn text(lua: &Lua, message: impl AsRef<[u8]>) -> Error {
    let mut text = position(lua, 1).into_bytes();
    text.extend_from_slice(message.as_ref());
    Error::external(Raised::Text(text))
}

/// An error without a place.
pub(crate) fn bare(message: impl Into<Vec<u8>>) -> Error {
    Error::external(Raised::Text(message.into()))
}

/// A table with `err`; the code `ERR` is put before a text that has none.
pub(crate) fn reply(message: &str) -> Error {
    Error::external(Raised::Reply(format!("ERR {message}").into_bytes()))
}

pub(crate) fn halt() -> Error {
    Error::external(Raised::Halt)
}

/// An error in argument `number` of a function.
pub(crate) fn argument(lua: &Lua, number: usize, function: &str, message: &str) -> Error {
    match number {
        1 if is_method(lua) => text(lua, format!("calling '{function}' on bad self ({message})")),
        _ => {
            let number = number.saturating_sub(usize::from(is_method(lua)));
            text(lua, format!("bad argument #{number} to '{function}' ({message})"))
        }
    }
}

/// The function was called as a method: its first argument has no number.
fn is_method(lua: &Lua) -> bool {
    lua.inspect_stack(0, |debug| debug.names().name_what == Some("method")).unwrap_or(false)
}

/// The error of a function of Lua that one of ours called in its place.
pub(crate) fn of_original(lua: &Lua, function: &str, error: Error) -> Error {
    const UNKNOWN: &str = " to '?' (";
    let Error::RuntimeError(message) = &error else { return error };
    let message = message.split("\nstack traceback:").next().unwrap_or(message);
    let number = message.strip_prefix("bad argument #").and_then(|it| it.split_once(UNKNOWN));
    match number.and_then(|(number, reason)| Some((number.parse().ok()?, reason))) {
        Some((number, reason)) => {
            argument(lua, number, function, reason.strip_suffix(')').unwrap_or(reason))
        }
        None => text(lua, message.replace("'?'", &format!("'{function}'"))),
    }
}

/// The error of a wrapper that one of ours called.
pub(crate) fn of_wrapper(lua: &Lua, error: Error) -> Error {
    let Error::RuntimeError(message) = &error else { return error };
    let message = message.split("\nstack traceback:").next().unwrap_or(message);
    match is_of_wrapper(message.as_bytes()) {
        true => text(lua, without_wrapper(message.as_bytes())),
        false => bare(message),
    }
}

/// `source:line: ` of the function at a level of the stack, or of its caller if it is a wrapper.
fn position(lua: &Lua, mut level: usize) -> String {
    loop {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_wrapper = source.source.as_deref() == Some(WRAPPERS);
            let place = debug.current_line().zip(source.short_src);
            (is_wrapper, place.map(|(line, name)| format!("{name}:{line}: ")))
        });
        match found {
            Some((true, _)) => level += 1,
            Some((false, place)) => return place.unwrap_or_default(),
            None => return String::new(),
        }
    }
}

/// Source and line of the innermost Lua function of the script, for an error handler.
pub(crate) fn place(lua: &Lua) -> Option<(String, usize)> {
    place_from(lua, 1)
}

/// The same from a level of the stack on.
pub(crate) fn place_from(lua: &Lua, mut level: usize) -> Option<(String, usize)> {
    loop {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_ours = !matches!(source.what, "Lua" | "main")
                || source.source.as_deref() == Some(WRAPPERS);
            let name = source.source.map(std::borrow::Cow::into_owned);
            (!is_ours).then(|| (name.unwrap_or_default(), debug.current_line().unwrap_or_default()))
        });
        match found? {
            Some(place) => return Some(place),
            None => level += 1,
        }
    }
}

/// The error that one of our functions raised, in a value that was caught.
pub(crate) fn raised(value: &Value) -> Option<Raised> {
    match value {
        Value::Error(error) => Some(raised_in(error)),
        _ => None,
    }
}

pub(crate) fn raised_in(error: &Error) -> Raised {
    match error {
        Error::CallbackError { cause, .. } | Error::BadArgument { cause, .. } => raised_in(cause),
        Error::WithContext { cause, .. } => raised_in(cause),
        Error::ExternalError(inner) => match inner.downcast_ref::<Raised>() {
            Some(raised) => raised.clone(),
            None => Raised::Text(inner.to_string().into_bytes()),
        },
        Error::MemoryError(_) => Raised::Halt,
        other => Raised::Text(other.to_string().into_bytes()),
    }
}

/// A message of Lua's own that names a wrapper.
pub(crate) fn is_of_wrapper(text: &[u8]) -> bool {
    text.starts_with(WRAPPERS_SHORT.as_bytes())
}

/// A message of Lua's own without the place of a wrapper.
pub(crate) fn without_wrapper(text: &[u8]) -> &[u8] {
    let Some(rest) = text.strip_prefix(WRAPPERS_SHORT.as_bytes()) else { return text };
    match rest.windows(2).position(|two| two == b": ") {
        Some(at) => &rest[at + 2..],
        None => text,
    }
}
