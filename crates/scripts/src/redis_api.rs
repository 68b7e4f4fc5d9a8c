//! The library `redis`.

use mlua::{Error, Lua, MultiValue, Result, Table, Value};
use sha1::{Digest, Sha1};

use crate::arguments::{self, Arguments};
use crate::call;
use crate::current::Shared;
use crate::raise::{self, Raised};

/// The version that is told to scripts: 7.4.0, as `INFO` says.
const VERSION: &str = "7.4.0";
const VERSION_NUMBER: i64 = 0x0007_0400;

const LEVELS: [(&str, i64); 4] =
    [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];
const REPLICATION: [(&str, i64); 5] =
    [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];

/// Lines that one run may write to the log, and their length.
const LOGGED_MAX: u32 = 16;
const LOGGED_LEN_MAX: usize = 1_024;

pub(crate) fn library(lua: &Lua, current: &Shared) -> Result<Table> {
    let library = lua.create_table()?;
    let run = current.clone();
    let it = lua.create_function(move |lua, values| call::call(lua, &run, values))?;
    library.raw_set("call", it)?;
    let run = current.clone();
    let it = lua.create_function(move |lua, values| call::protected(lua, &run, values))?;
    library.raw_set("pcall", it)?;
    type Function = fn(&Lua, &Shared, MultiValue) -> Result<Value>;
    let functions: [(&str, Function); 10] = [
        ("sha1hex", sha1_hex),
        ("error_reply", error_reply),
        ("status_reply", status_reply),
        ("set_repl", set_replication),
        ("replicate_commands", |_, _, _| Ok(Value::Boolean(true))),
        ("breakpoint", |_, _, _| Ok(Value::Boolean(false))),
        ("debug", |_, _, _| Ok(Value::Nil)),
        ("setresp", set_resp),
        ("acl_check_cmd", check_command),
        ("log", log),
    ];
    for (name, function) in functions {
        let run = current.clone();
        let it = lua.create_function(move |lua, values| {
            let is_quiet = matches!(name, "debug" | "log" | "setresp" | "set_repl");
            let value = function(lua, &run, values)?;
            Ok(if is_quiet { MultiValue::new() } else { MultiValue::from_iter([value]) })
        })?;
        library.raw_set(name, it)?;
    }
    for (name, number) in LEVELS.into_iter().chain(REPLICATION) {
        library.raw_set(name, number)?;
    }
    library.raw_set("REDIS_VERSION", VERSION)?;
    library.raw_set("REDIS_VERSION_NUM", VERSION_NUMBER)?;
    Ok(library)
}

/// The digest in hexadecimal digits.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha1_hex(lua: &Lua, _: &Shared, values: MultiValue) -> Result<Value> {
    if values.len() != 1 {
        return Err(raise::reply("wrong number of arguments"));
    }
    let text = values.front().and_then(arguments::text).unwrap_or_default();
    Ok(Value::String(lua.create_string(hex_digest(&text))?))
}

/// A table with one field. A wrong argument is answered with a table too.
fn field(lua: &Lua, name: &str, text: Option<Vec<u8>>) -> Result<Value> {
    let table = lua.create_table()?;
    match text {
        Some(text) => table.raw_set(name, lua.create_string(text)?)?,
        None => table.raw_set("err", "ERR wrong number or type of arguments")?,
    }
    Ok(Value::Table(table))
}

fn only_string(values: &MultiValue) -> Option<Vec<u8>> {
    match values.front() {
        Some(Value::String(text)) if values.len() == 1 => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

fn error_reply(lua: &Lua, _: &Shared, values: MultiValue) -> Result<Value> {
    let coded = |text: Vec<u8>| {
        let text = text.strip_prefix(b"-").unwrap_or(&text);
        call::coded(text.trim_ascii_end())
    };
    field(lua, "err", only_string(&values).map(coded))
}

fn status_reply(lua: &Lua, _: &Shared, values: MultiValue) -> Result<Value> {
    field(lua, "ok", only_string(&values))
}

fn set_replication(_: &Lua, _: &Shared, values: MultiValue) -> Result<Value> {
    if values.len() != 1 {
        return Err(raise::reply("redis.set_repl() requires one argument."));
    }
    let flags = values.front().and_then(arguments::numeric).unwrap_or(0.0) as i64;
    if flags & !3 != 0 {
        return Err(raise::reply(
            "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ));
    }
    Ok(Value::Nil)
}

fn set_resp(_: &Lua, current: &Shared, values: MultiValue) -> Result<Value> {
    if values.len() != 1 {
        return Err(raise::reply("redis.setresp() requires one argument."));
    }
    let version = values.front().and_then(arguments::numeric).unwrap_or(0.0) as i64;
    if version != 2 && version != 3 {
        return Err(raise::reply("RESP version must be 2 or 3."));
    }
    current.borrow_mut().resp3 = version == 3;
    Ok(Value::Nil)
}

/// The one user may run every command.
fn check_command(_: &Lua, _: &Shared, values: MultiValue) -> Result<Value> {
    if values.is_empty() {
        return Err(raise::reply("Please specify at least one argument for this redis lib call"));
    }
    // The name and the subcommand decide.
    let words: Option<Vec<Vec<u8>>> = values.iter().take(2).map(arguments::text).collect();
    let are_words = values.iter().all(arguments::is_text);
    let Some(words) = words.filter(|_| are_words) else {
        return Err(raise::reply("Lua redis lib command arguments must be strings or integers"));
    };
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    match commands::find(&words) {
        Ok(_) => Ok(Value::Boolean(true)),
        Err(_) => Err(raise::reply("Invalid command passed to redis.acl_check_cmd()")),
    }
}

fn log(lua: &Lua, current: &Shared, values: MultiValue) -> Result<Value> {
    let args = Arguments { lua, function: "log", values };
    if args.len() < 2 {
        return Err(raise::reply("redis.log() requires two arguments or more."));
    }
    let Some(level) = arguments::numeric(args.get(1)) else {
        return Err(raise::reply("First argument must be a number (log level)."));
    };
    let level = level as i64;
    if !(0..=3).contains(&level) {
        return Err(raise::reply("Invalid log level."));
    }
    current.borrow_mut().logged += 1;
    if current.borrow().logged > LOGGED_MAX {
        return Ok(Value::Nil);
    }
    let mut text = Vec::new();
    for number in 2..=args.len() {
        if text.len() >= LOGGED_LEN_MAX {
            break;
        }
        if let Some(word) = arguments::text(args.get(number)) {
            if number > 2 {
                text.push(b' ');
            }
            text.extend_from_slice(&word[..word.len().min(LOGGED_LEN_MAX)]);
        }
    }
    text.truncate(LOGGED_LEN_MAX);
    let text = String::from_utf8_lossy(&text);
    match level {
        0 | 1 => tracing::debug!(target: "script", "{text}"),
        2 => tracing::info!(target: "script", "{text}"),
        _ => tracing::warn!(target: "script", "{text}"),
    }
    Ok(Value::Nil)
}

/// The error of a protected call, as its caller sees it: the text of an error of a command.
///
/// # Errors
/// The run is over.
pub(crate) fn caught(lua: &Lua, current: &Shared, error: Value, as_text: bool) -> Result<Value> {
    match raise::raised(&error) {
        Some(Raised::Halt) => {
            if current.borrow().halt.is_none() {
                current.borrow_mut().exceed_memory();
            }
            Err(raise::halt())
        }
        Some(Raised::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
        Some(Raised::Reply(text)) if as_text => Ok(Value::String(lua.create_string(text)?)),
        Some(Raised::Reply(text)) => field(lua, "err", Some(text)),
        None => {
            let is_out_of_memory = |text: &mlua::String| *text.as_bytes() == *b"not enough memory";
            match &error {
                Value::String(text) if is_out_of_memory(text) => {
                    current.borrow_mut().exceed_memory();
                    Err(raise::halt())
                }
                Value::String(text) => {
                    let bytes = text.as_bytes();
                    Ok(Value::String(lua.create_string(raise::without_wrapper(&bytes))?))
                }
                _ => Ok(error),
            }
        }
    }
}

/// The error handler of a run: a table with the text, the source and the line.
pub(crate) fn explain(lua: &Lua, current: &Shared, error: Value) -> Result<Value> {
    let place = raise::place(lua);
    let is_wrappers =
        matches!(&error, Value::String(text) if raise::is_of_wrapper(&text.as_bytes()));
    let mut error = match caught(lua, current, error, false) {
        Ok(error) => error,
        Err(error) => return Ok(Value::Error(Box::new(error))),
    };
    if let (true, Some((source, line)), Value::String(text)) = (is_wrappers, &place, &error) {
        let place = format!("{}:{line}: ", source.trim_start_matches('@'));
        let text = [place.as_bytes(), &text.as_bytes()].concat();
        error = Value::String(lua.create_string(text)?);
    }
    let table = match error {
        Value::Table(table) => table,
        other => {
            let table = lua.create_table()?;
            let text = match arguments::text(&other) {
                Some(text) => text,
                None => other.to_string().map(String::into_bytes).unwrap_or_default(),
            };
            table.raw_set("err", lua.create_string([b"ERR ", &text[..]].concat())?)?;
            table
        }
    };
    if let Some((source, line)) = place {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

impl From<Raised> for Error {
    fn from(raised: Raised) -> Error {
        Error::external(raised)
    }
}
