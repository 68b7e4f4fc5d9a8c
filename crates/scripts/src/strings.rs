//! Functions of the library `string` whose cost Lua does not count.

use mlua::{Lua, MultiValue, Result, Value};

use crate::arguments::Arguments;
use crate::current::Shared;
use crate::pattern::Matcher;
use crate::raise;

/// `string.rep`.
pub(crate) fn repeat(lua: &Lua, current: &Shared, values: MultiValue) -> Result<mlua::String> {
    let args = Arguments { lua, function: "rep", values };
    let text = args.string(1)?;
    let count = usize::try_from(i64::from(args.integer(2)? as i32)).unwrap_or(0);
    let len = text.len().saturating_mul(count);
    let memory = current.borrow().budget().memory;
    if len > memory {
        current.borrow_mut().exceed_memory();
        return Err(raise::halt());
    }
    if current.borrow_mut().spend_bytes(len) {
        return Err(raise::halt());
    }
    lua.create_string(text.repeat(if text.is_empty() { 0 } else { count }))
}

/// Bytes of a pattern that make it one.
const SPECIALS: &[u8] = b"^$*+?.([%-";

type Run = fn(&Arguments<'_>, &Shared) -> Result<MultiValue>;

/// The functions of patterns. `scan` is for `gsub` with a function or a table.
pub(crate) const PATTERN_FUNCTIONS: [(&str, Run); 4] = [
    ("find", |args, current| search(args, current, true)),
    ("match", |args, current| search(args, current, false)),
    ("scan", scan),
    ("gsub", substitute),
];

/// The place where a search begins: the argument counts from the end if it is negative.
fn first_place(args: &Arguments<'_>, number: usize, len: usize) -> Result<usize> {
    let place = args.integer_or(number, 1)?;
    let place = if place < 0 { place.saturating_add(len as i64 + 1) } else { place };
    Ok(usize::try_from(place - 1).unwrap_or(0).min(len))
}

fn search(args: &Arguments<'_>, current: &Shared, is_find: bool) -> Result<MultiValue> {
    let (text, pattern) = (args.string(1)?, args.string(2)?);
    let from = first_place(args, 3, text.len())?;
    let is_plain = !matches!(args.get(4), Value::Nil | Value::Boolean(false));
    let number = |at: usize| Value::Number(at as f64);
    let end = pattern.iter().position(|&byte| byte == 0).unwrap_or(pattern.len());
    if is_find && (is_plain || !pattern[..end].iter().any(|byte| SPECIALS.contains(byte))) {
        let found = find_bytes(&text[from..], &pattern);
        charge_bytes(current, text.len() - from)?;
        let places = |at: usize| vec![number(from + at + 1), number(from + at + pattern.len())];
        return Ok(MultiValue::from_vec(found.map_or_else(|| vec![Value::Nil], places)));
    }
    let mut matcher = Matcher::new(args.lua, current, &text, &pattern);
    let is_anchored = matcher.takes_anchor();
    let Some((start, end)) = matcher.search(from, is_anchored)? else {
        return Ok(MultiValue::from_vec(vec![Value::Nil]));
    };
    let mut values = if is_find { vec![number(start + 1), number(end)] } else { Vec::new() };
    if !is_find || matcher.has_captures() {
        values.extend(matcher.values(start, end)?);
    }
    Ok(MultiValue::from_vec(values))
}

fn find_bytes(text: &[u8], wanted: &[u8]) -> Option<usize> {
    match wanted {
        [] => Some(0),
        [first, rest @ ..] => {
            let mut from = 0;
            while let Some(at) = text[from..].iter().position(|byte| byte == first) {
                if text[from + at + 1..].starts_with(rest) {
                    return Some(from + at);
                }
                from += at + 1;
            }
            None
        }
    }
}

fn charge_bytes(current: &Shared, bytes: usize) -> Result<()> {
    let is_over = current.borrow_mut().spend_bytes(bytes);
    if is_over { Err(raise::halt()) } else { Ok(()) }
}

/// First and last place of a match, and its captures. The fourth argument lets `^` be an anchor.
fn scan(args: &Arguments<'_>, current: &Shared) -> Result<MultiValue> {
    let (text, pattern) = (args.string(1)?, args.string(2)?);
    let from = first_place(args, 3, text.len())?;
    let mut matcher = Matcher::new(args.lua, current, &text, &pattern);
    let is_anchored = matches!(args.get(4), Value::Boolean(true)) && matcher.takes_anchor();
    let Some((start, end)) = matcher.search(from, is_anchored)? else {
        return Ok(MultiValue::from_vec(vec![Value::Nil]));
    };
    let places = [Value::Number((start + 1) as f64), Value::Number(end as f64)];
    let values = places.into_iter().chain(matcher.values(start, end)?);
    Ok(values.collect())
}

/// The replacement of each match of `gsub`.
enum By {
    Text(Vec<u8>),
    /// A function or a table.
    Value(Value, &'static str),
}

/// `gsub`.
fn substitute(args: &Arguments<'_>, current: &Shared) -> Result<MultiValue> {
    let (text, pattern) = (args.string(1)?, args.string(2)?);
    let by = match args.get(3) {
        value @ Value::Function(_) => By::Value(value.clone(), "function"),
        value @ Value::Table(_) => By::Value(value.clone(), "table"),
        value => match crate::arguments::text(value) {
            Some(text) => By::Text(text),
            None => return Err(args.bad(3, "string/function/table expected")),
        },
    };
    let max = args.integer_or(4, text.len() as i64 + 1)?;
    let memory = current.borrow().budget().memory;
    let mut matcher = Matcher::new(args.lua, current, &text, &pattern);
    let is_anchored = matcher.takes_anchor();
    let (mut out, mut count, mut at) = (Vec::new(), 0_i64, 0);
    while count < max {
        let Some((start, end)) = matcher.search(at, is_anchored)? else { break };
        out.extend_from_slice(&text[at..start]);
        count += 1;
        let len = out.len();
        match &by {
            By::Text(by) => put_text(&matcher, by, (start, end), &mut out)?,
            By::Value(by, kind) => {
                let place = (start, end);
                put_value(args, current, &matcher, (by, kind), place, &mut out)?;
            }
        }
        if out.len() > memory {
            current.borrow_mut().exceed_memory();
            return Err(raise::halt());
        }
        charge_bytes(current, out.len() - len)?;
        at = end;
        if end == start {
            let Some(byte) = text.get(at) else { break };
            out.push(*byte);
            at += 1;
        }
        if is_anchored {
            break;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    let values = [Value::String(args.lua.create_string(out)?), Value::Number(count as f64)];
    Ok(values.into_iter().collect())
}

fn put_text(
    matcher: &Matcher<'_>,
    by: &[u8],
    (start, end): (usize, usize),
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut bytes = by.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, byte == b'%') {
            (byte, false) => out.push(byte),
            _ => match bytes.next() {
                Some(b'0') => out.extend_from_slice(&matcher.text[start..end]),
                Some(digit @ b'1'..=b'9') => {
                    let value = matcher.value(usize::from(digit - b'1'), start, end)?;
                    out.extend(crate::arguments::text(&value).unwrap_or_default());
                }
                Some(&other) => out.push(other),
                None => out.push(0),
            },
        }
    }
    Ok(())
}

fn put_value(
    args: &Arguments<'_>,
    current: &Shared,
    matcher: &Matcher<'_>,
    (by, kind): (&Value, &str),
    (start, end): (usize, usize),
    out: &mut Vec<u8>,
) -> Result<()> {
    let Some(replace) = current.borrow().replace.clone() else { return Err(raise::halt()) };
    let captures = MultiValue::from_vec(matcher.values(start, end)?);
    let (is_done, value): (bool, Value) = replace.call((by, kind, captures))?;
    if !is_done {
        return Err(raised_again(current, value));
    }
    match value {
        Value::Nil | Value::Boolean(false) => out.extend_from_slice(&matcher.text[start..end]),
        value => match crate::arguments::text(&value) {
            Some(text) => out.extend(text),
            None => {
                let found = crate::arguments::type_name(&value);
                return Err(args.error(format!("invalid replacement value (a {found})")));
            }
        },
    }
    Ok(())
}

/// The error of a function that was called here.
fn raised_again(current: &Shared, error: Value) -> mlua::Error {
    match error {
        Value::Error(error) => *error,
        Value::Table(table) => match table.raw_get::<Value>("err") {
            Ok(Value::String(text)) => raise::Raised::Reply(text.as_bytes().to_vec()).into(),
            _ => raise::bare("error object is a table"),
        },
        Value::String(text) if *text.as_bytes() == *b"not enough memory" => {
            current.borrow_mut().exceed_memory();
            raise::halt()
        }
        other => raise::bare(crate::arguments::text(&other).unwrap_or_default()),
    }
}
