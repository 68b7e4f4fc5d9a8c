//! Functions of the library `string` whose cost Lua does not count.

use mlua::{Function, Lua, MultiValue, Result, Value};

use crate::arguments::Arguments;
use crate::current::{CLOSER_FROM, HOOK_EVERY_MIN, Shared};
use crate::pattern::Matcher;
use crate::raise;
use crate::sandbox::count_instructions;

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
    if len > CLOSER_FROM {
        // The next instructions may walk the text many times.
        current.borrow_mut().every = HOOK_EVERY_MIN;
        count_instructions(lua, current, HOOK_EVERY_MIN)?;
    }
    lua.create_string(text.repeat(if text.is_empty() { 0 } else { count }))
}

type Change = fn(&[u8]) -> Vec<u8>;

/// Functions that make one text of another.
pub(crate) const CHANGES: [(&str, Change); 3] = [
    ("lower", |text| text.to_ascii_lowercase()),
    ("upper", |text| text.to_ascii_uppercase()),
    ("reverse", |text| text.iter().rev().copied().collect()),
];

pub(crate) fn change(args: &Arguments<'_>, current: &Shared, by: Change) -> Result<mlua::String> {
    let text = args.bytes(1)?;
    charge_bytes(current, text.len())?;
    args.lua.create_string(by(&text))
}

/// A digit takes as long as so many bytes that are copied.
const DIGIT_COST: usize = 8;

/// `tonumber`, after its arguments are counted.
pub(crate) fn to_number(
    args: &Arguments<'_>,
    current: &Shared,
    original: &Function,
) -> Result<MultiValue> {
    match args.integer_or(2, 10)? {
        10 if args.len() == 0 => return Err(args.bad(1, "value expected")),
        10 => {}
        base => {
            args.bytes(1)?;
            if !(2..=36).contains(&base) {
                return Err(args.bad(2, "base out of range"));
            }
        }
    }
    if let Value::String(text) = args.get(1) {
        charge_bytes(current, text.as_bytes().len().saturating_mul(DIGIT_COST))?;
    }
    original.call(args.values.clone())
}

/// Instructions for a number that becomes text.
const NUMBER_COST: usize = 8;

/// `string.format`, after its arguments are counted.
pub(crate) fn format(
    args: &Arguments<'_>,
    current: &Shared,
    original: &Function,
) -> Result<MultiValue> {
    let len = |value: &Value| value.as_string().map_or(0, |text| 2 * text.as_bytes().len());
    charge_bytes(current, args.values.iter().map(len).sum())?;
    let made = original.call(args.values.clone());
    made.map_err(|error| raise::of_original(args.lua, args.function, error))
}

/// `table.concat`, after its elements are counted.
pub(crate) fn concat(
    args: &Arguments<'_>,
    current: &Shared,
    original: &Function,
) -> Result<MultiValue> {
    let len = args.get(1).as_table().map_or(0, |table| table.raw_len());
    if current.borrow_mut().spend(len.saturating_mul(NUMBER_COST) as u64) {
        return Err(raise::halt());
    }
    let made = original.call(args.values.clone());
    made.map_err(|error| raise::of_original(args.lua, args.function, error))
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
    let (text, pattern) = (args.bytes(1)?, args.bytes(2)?);
    charge_bytes(current, pattern.len())?;
    let from = first_place(args, 3, text.len())?;
    let is_plain = !matches!(args.get(4), Value::Nil | Value::Boolean(false));
    let number = |at: usize| Value::Number(at as f64);
    let end = pattern.iter().position(|&byte| byte == 0).unwrap_or(pattern.len());
    if is_find && (is_plain || !pattern[..end].iter().any(|byte| SPECIALS.contains(byte))) {
        let found = find_bytes(&text[from..], &pattern, current)?;
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

/// Bytes of a plain search between two looks at the budget.
const COMPARED: usize = 4_096;

fn find_bytes(text: &[u8], wanted: &[u8], current: &Shared) -> Result<Option<usize>> {
    let [first, rest @ ..] = wanted else { return Ok(Some(0)) };
    let (mut from, mut compared) = (0, 0);
    let mut found = None;
    while let Some(at) = text[from..].iter().position(|byte| byte == first) {
        let here = &text[from + at + 1..];
        let same = here.iter().zip(rest).take_while(|(a, b)| a == b).count();
        if same == rest.len() {
            found = Some(from + at);
            compared += same;
            break;
        }
        from += at + 1;
        compared += at + 1 + same;
        if compared >= COMPARED {
            charge_bytes(current, compared)?;
            compared = 0;
        }
    }
    // The last stretch lacks the first byte.
    let rest = if found.is_none() { text.len() - from } else { 0 };
    charge_bytes(current, compared + rest)?;
    Ok(found)
}

fn charge_bytes(current: &Shared, bytes: usize) -> Result<()> {
    let is_over = current.borrow_mut().spend_bytes(bytes);
    if is_over { Err(raise::halt()) } else { Ok(()) }
}

/// First and last place of a match, and its captures. The fourth argument lets `^` be an anchor.
fn scan(args: &Arguments<'_>, current: &Shared) -> Result<MultiValue> {
    let (text, pattern) = (args.bytes(1)?, args.bytes(2)?);
    charge_bytes(current, pattern.len())?;
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
    let (text, pattern) = (args.bytes(1)?, args.bytes(2)?);
    charge_bytes(current, pattern.len())?;
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
