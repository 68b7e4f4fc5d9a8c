//! `redis.call` and `redis.pcall`: a command on the space of the run.

use commands::spec::Flag;
use commands::{CommandSpec, ErrorReply, Execution, Halt, SessionVerb, Space};
use mlua::{Error, Lua, MultiValue, Value};
use types::Reply;

use crate::current::{self, Current, Shared};
use crate::{convert, number, raise};

const NO_ARGUMENTS: &str = "Please specify at least one argument for this redis lib call";
const NOT_STRINGS: &str = "Lua redis lib command arguments must be strings or integers";
const UNKNOWN: &str = "Unknown Redis command called from script";
const ARITY: &str = "Wrong number of args calling Redis command from script";
const NOT_ALLOWED: &str = "This Redis command is not allowed from script";
const READ_ONLY: &str = "Write commands are not allowed from read-only scripts.";

/// Instructions that a command costs besides its bytes.
const COMMAND_COST: u64 = 100;

/// The end of a call without a reply.
enum Failed {
    /// The error, without a code.
    Text(&'static str),
    /// The error, with its code.
    Reply(ErrorReply),
    Halt,
}

/// `redis.call`: an error is raised.
pub(crate) fn call(lua: &Lua, current: &Shared, values: MultiValue) -> mlua::Result<Value> {
    match run(current, &values) {
        Ok(Reply::Error(text)) => Err(Error::external(raise::Raised::Reply(coded(&text)))),
        Ok(reply) => {
            let resp3 = current.borrow().resp3;
            convert::to_lua(lua, &reply, resp3)
        }
        Err(Failed::Text(text)) => Err(raise::reply(text)),
        Err(Failed::Reply(error)) => {
            Err(Error::external(raise::Raised::Reply(error.text().to_vec())))
        }
        Err(Failed::Halt) => Err(raise::halt()),
    }
}

/// `redis.pcall`: an error is a table.
pub(crate) fn protected(lua: &Lua, current: &Shared, values: MultiValue) -> mlua::Result<Value> {
    let reply = match run(current, &values) {
        Ok(Reply::Error(text)) => return counted_error(lua, &coded(&text)),
        Ok(reply) => reply,
        // As in redis-server, these two errors of `pcall` are tables too.
        Err(Failed::Text(text)) => Reply::error(format!("ERR {text}")),
        Err(Failed::Reply(error)) => error.into(),
        Err(Failed::Halt) => return Err(raise::halt()),
    };
    let resp3 = current.borrow().resp3;
    convert::to_lua(lua, &reply, resp3)
}

/// The error of a command, with the mark that redis-server gives it.
fn counted_error(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(Value::Table(table))
}

/// An error text with a code: one that has a single word gets `ERR`.
pub(crate) fn coded(text: &[u8]) -> Vec<u8> {
    match text.contains(&b' ') {
        true => text.to_vec(),
        false => [b"ERR ", text].concat(),
    }
}

fn run(current: &Shared, values: &MultiValue) -> Result<Reply, Failed> {
    let len =
        |value: &Value| if let Value::String(text) = value { text.as_bytes().len() } else { 0 };
    let sent: usize = values.iter().map(len).sum();
    if sent > current.borrow().budget().memory {
        current.borrow_mut().exceed_memory();
        return Err(Failed::Halt);
    }
    let args = words(values)?;
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    let current = &mut *current.borrow_mut();
    let spec = commands::find(&args).map_err(|_| Failed::Text(UNKNOWN))?;
    let checked = check(spec, &args, current);
    let Some(mut space) = current.space.take() else { return Err(Failed::Halt) };
    if let Err(failed) = checked {
        space.trace_mut().into_iter().for_each(|trace| trace.reject(spec));
        current.space = Some(space);
        return Err(failed);
    }
    let sizes: usize = spec.key_indexes(&args).iter().map(|&key| space.value_len(args[key])).sum();
    let reply = traced(spec, &args, &mut space);
    current.space = Some(space);
    let reply = reply.map_err(|halt| {
        current.halt.get_or_insert(halt);
        Failed::Halt
    })?;
    let is_over = current.spend(COMMAND_COST) || current.spend_bytes(sizes + sent + reply.len());
    if is_over { Err(Failed::Halt) } else { Ok(reply) }
}

/// The arguments as bytes.
fn words(values: &MultiValue) -> Result<Vec<Vec<u8>>, Failed> {
    if values.is_empty() {
        return Err(Failed::Text(NO_ARGUMENTS));
    }
    let word = |value: &Value| match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(value) => Some(number_text(*value as f64).into_bytes()),
        Value::Number(value) => Some(number_text(*value).into_bytes()),
        _ => None,
    };
    values.iter().map(word).collect::<Option<_>>().ok_or(Failed::Text(NOT_STRINGS))
}

/// An integer in full, any other number as short as it reads back.
fn number_text(value: f64) -> String {
    let integer = number::to_i64(value);
    match value.is_nan() {
        // Dividing zero by zero makes a negative one, and redis-server shows the sign.
        true if value.is_sign_negative() => "-nan".to_owned(),
        false if integer as f64 == value && is_exact(value) => integer.to_string(),
        _ => resp::encode::double_text(value),
    }
}

/// Redis shows greater integers as it shows fractions.
fn is_exact(value: f64) -> bool {
    const LIMIT: f64 = (i64::MAX / 2) as f64;
    (-LIMIT..=LIMIT).contains(&value)
}

/// The one place that decides whether a script may run a command.
fn check(spec: &CommandSpec, args: &[&[u8]], current: &Current) -> Result<(), Failed> {
    spec.check_arity(args.len()).map_err(|_| Failed::Text(ARITY))?;
    if spec.has(Flag::NoScript) {
        return Err(Failed::Text(NOT_ALLOWED));
    }
    if !is_supported(spec) {
        let text = format!("ERR '{}' is not supported inside scripts", spec.name);
        return Err(Failed::Reply(ErrorReply::new(text.as_bytes())));
    }
    if current.is_read_only && spec.may_write() {
        return Err(Failed::Text(READ_ONLY));
    }
    match current.permission().refusal(spec) {
        Some(error) => Err(Failed::Reply(error)),
        None => Ok(()),
    }
}

fn is_supported(spec: &CommandSpec) -> bool {
    match spec.execution {
        Execution::Session(verb) => matches!(verb, SessionVerb::Ping | SessionVerb::Time),
        Execution::Container => false,
        _ => true,
    }
}

/// Runs a command, and notes it in the trace of the space. An error is a reply.
fn traced(spec: &'static CommandSpec, args: &[&[u8]], space: &mut Space) -> Result<Reply, Halt> {
    let began = space.trace_mut().map(|_| current::nanos());
    let reply = execute(spec, args, space).or_else(|halt| match halt {
        Halt::Error(error) => Ok(error.into()),
        halt => Err(halt),
    })?;
    if let (Some(began), Some(trace)) = (began, space.trace_mut()) {
        trace.note(spec, args, reply.is_error(), current::nanos().saturating_sub(began));
    }
    Ok(reply)
}

fn execute(spec: &CommandSpec, args: &[&[u8]], space: &mut Space) -> Result<Reply, Halt> {
    match spec.execution {
        Execution::Session(SessionVerb::Ping) => Ok(match args {
            [_] => Reply::simple("PONG"),
            [_, text] => Reply::copy(text),
            _ => commands::errors::wrong_arity("ping").into(),
        }),
        Execution::Session(SessionVerb::Time) => {
            let unix = space.clock().unix.0;
            let numbers = [unix / 1_000, unix % 1_000 * 1_000];
            Ok(Reply::array(numbers.iter().map(|number| Reply::bulk(number.to_string()))))
        }
        _ => space.execute(args),
    }
}
