//! Replies as Lua values, and Lua values as replies.

use bytes::Bytes;
use mlua::{Lua, Result, Table, Value};
use types::{Double, Reply};

use crate::arguments;
use crate::number;

/// Tables within tables in a reply. Levels are left for the list of a transaction and a trace.
const DEPTH_MAX: usize = types::REPLY_DEPTH_MAX - 2;
/// Bytes of a reply.
const REPLY_LEN_MAX: usize = commands::REPLIES_LEN_MAX;

/// A reply of a command as a script sees it.
pub(crate) fn to_lua(lua: &Lua, reply: &Reply, resp3: bool) -> Result<Value> {
    if resp3 { to_lua3(lua, reply) } else { to_lua2(lua, reply) }
}

fn to_lua2(lua: &Lua, reply: &Reply) -> Result<Value> {
    match reply {
        Reply::Null | Reply::NullArray => Ok(Value::Boolean(false)),
        Reply::Double(Double(value)) => string(lua, resp::encode::double_text(*value).as_bytes()),
        Reply::Boolean(value) => Ok(Value::Integer(i64::from(*value))),
        Reply::BigNumber(text) | Reply::Verbatim { text, .. } => string(lua, text),
        Reply::Array(all) | Reply::Set(all) => list(lua, all.iter(), to_lua2),
        Reply::Map(all) | Reply::Pairs(all) => {
            list(lua, all.iter().flat_map(|(key, value)| [key, value]), to_lua2)
        }
        Reply::Table(all) => pairs(lua, all, to_lua2),
        other => to_lua_of_both(lua, other),
    }
}

fn to_lua3(lua: &Lua, reply: &Reply) -> Result<Value> {
    match reply {
        Reply::Null | Reply::NullArray => Ok(Value::Nil),
        Reply::Double(Double(value)) => field(lua, "double", Value::Number(*value)),
        Reply::Boolean(value) => Ok(Value::Boolean(*value)),
        Reply::BigNumber(digits) => field(lua, "big_number", string(lua, digits)?),
        Reply::Verbatim { format, text } => {
            let table = lua.create_table()?;
            table.raw_set("string", lua.create_string(text)?)?;
            table.raw_set("format", lua.create_string(format)?)?;
            field(lua, "verbatim_string", Value::Table(table))
        }
        Reply::Array(all) => list(lua, all.iter(), to_lua3),
        Reply::Set(all) => {
            let set = lua.create_table()?;
            for reply in all {
                set.raw_set(to_lua3(lua, reply)?, true)?;
            }
            field(lua, "set", Value::Table(set))
        }
        Reply::Map(all) | Reply::Table(all) => {
            let map = lua.create_table()?;
            for (key, value) in all {
                map.raw_set(to_lua3(lua, key)?, to_lua3(lua, value)?)?;
            }
            field(lua, "map", Value::Table(map))
        }
        Reply::Pairs(all) => pairs(lua, all, to_lua3),
        other => to_lua_of_both(lua, other),
    }
}

fn to_lua_of_both(lua: &Lua, reply: &Reply) -> Result<Value> {
    match reply {
        Reply::Integer(value) => Ok(Value::Number(*value as f64)),
        Reply::Bulk(bytes) => string(lua, bytes),
        Reply::Simple(text) => field(lua, "ok", string(lua, text)?),
        Reply::Error(text) => field(lua, "err", string(lua, text)?),
        _ => Ok(Value::Nil),
    }
}

fn string(lua: &Lua, bytes: &[u8]) -> Result<Value> {
    Ok(Value::String(lua.create_string(bytes)?))
}

fn field(lua: &Lua, name: &str, value: Value) -> Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

type Convert = fn(&Lua, &Reply) -> Result<Value>;

fn list<'a>(
    lua: &Lua,
    replies: impl Iterator<Item = &'a Reply>,
    convert: Convert,
) -> Result<Value> {
    let table = lua.create_table()?;
    for (at, reply) in replies.enumerate() {
        table.raw_set(at + 1, convert(lua, reply)?)?;
    }
    Ok(Value::Table(table))
}

fn pairs(lua: &Lua, all: &[(Reply, Reply)], convert: Convert) -> Result<Value> {
    let table = lua.create_table()?;
    for (at, (key, value)) in all.iter().enumerate() {
        table.raw_set(at + 1, list(lua, [key, value].into_iter(), convert)?)?;
    }
    Ok(Value::Table(table))
}

/// The result of a script as its reply. `None` if it is too large.
pub(crate) fn to_reply(value: &Value, resp3: bool) -> Result<Option<Reply>> {
    let mut writer = Writer { resp3, len: 0 };
    let reply = writer.reply(value, 0)?;
    Ok((writer.len <= REPLY_LEN_MAX).then_some(reply))
}

struct Writer {
    resp3: bool,
    len: usize,
}

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) -> Bytes {
        self.len = self.len.saturating_add(bytes.len() + 16);
        // Beyond the limit the reply is never sent.
        if self.len > REPLY_LEN_MAX { Bytes::new() } else { Bytes::copy_from_slice(bytes) }
    }

    fn reply(&mut self, value: &Value, depth: usize) -> Result<Reply> {
        self.len = self.len.saturating_add(16);
        if self.len > REPLY_LEN_MAX {
            return Ok(Reply::Null);
        }
        Ok(match value {
            Value::String(text) => Reply::Bulk(self.bytes(&text.as_bytes())),
            Value::Boolean(value) if self.resp3 => Reply::Boolean(*value),
            Value::Boolean(true) => Reply::Integer(1),
            Value::Integer(value) => Reply::Integer(*value),
            Value::Number(value) => Reply::Integer(number::to_i64(*value)),
            Value::Table(_) if depth >= DEPTH_MAX => Reply::error("ERR reached lua stack limit"),
            Value::Table(table) => self.table(table, depth)?,
            _ => Reply::Null,
        })
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<Reply> {
        if let Value::String(text) = table.raw_get("err")? {
            return Ok(Reply::Error(self.line(&text.as_bytes())));
        }
        if let Value::String(text) = table.raw_get("ok")? {
            return Ok(Reply::Simple(self.line(&text.as_bytes())));
        }
        if let value @ (Value::Integer(_) | Value::Number(_)) = table.raw_get("double")? {
            let value = arguments::numeric(&value).unwrap_or_default();
            return Ok(Reply::Double(Double(value)));
        }
        if let Value::String(digits) = table.raw_get("big_number")? {
            return Ok(Reply::BigNumber(self.line(&digits.as_bytes())));
        }
        if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
            && let Value::String(format) = verbatim.raw_get("format")?
            && let Value::String(text) = verbatim.raw_get("string")?
        {
            let mut name = *b"   ";
            format.as_bytes().iter().zip(&mut name).for_each(|(from, to)| *to = *from);
            return Ok(Reply::Verbatim { format: name, text: self.bytes(&text.as_bytes()) });
        }
        if let Value::Table(map) = table.raw_get("map")? {
            let mut all = Vec::new();
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                all.push((self.reply(&key, depth + 1)?, self.reply(&value, depth + 1)?));
            }
            return Ok(Reply::Map(all));
        }
        if let Value::Table(set) = table.raw_get("set")? {
            let mut all = Vec::new();
            for pair in set.pairs::<Value, Value>() {
                all.push(self.reply(&pair?.0, depth + 1)?);
            }
            return Ok(Reply::Set(all));
        }
        let mut all = Vec::new();
        for index in 1.. {
            match table.raw_get(index)? {
                Value::Nil => break,
                value => all.push(self.reply(&value, depth + 1)?),
            }
            if self.len > REPLY_LEN_MAX {
                break;
            }
        }
        Ok(Reply::Array(all))
    }

    /// A text that ends at a null, as strings of C do.
    fn line(&mut self, text: &[u8]) -> Bytes {
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        let text = self.bytes(&text[..end]);
        match text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            true => text
                .iter()
                .map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte })
                .collect(),
            false => text,
        }
    }
}
