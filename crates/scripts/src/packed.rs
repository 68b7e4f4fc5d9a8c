//! The library `struct`: values as bytes by a format.

use mlua::{Error, Lua, MultiValue, Result, Table, Value};

use crate::arguments::Arguments;
use crate::number;

/// Bytes of an integer.
const INTEGER_LEN_MAX: usize = 32;
/// Alignment of `!` without a number.
const ALIGNMENT_MAX: usize = 8;
/// Values of one call: more do not fit on Lua's stack.
const RESULTS_MAX: usize = 7_900;
/// Bytes that `pack` makes.
const PACKED_LEN_MAX: usize = 64 << 20;

pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    let pack = |lua: &Lua, values: MultiValue| {
        // As in redis-server, a missing argument is nil.
        let nil = (!values.is_empty()).then_some(Value::Nil);
        let values = values.into_iter().chain(nil).collect();
        pack(&Arguments { lua, function: "pack", values })
    };
    library.raw_set("pack", lua.create_function(pack)?)?;
    let unpack =
        |lua: &Lua, values: MultiValue| unpack(&Arguments { lua, function: "unpack", values });
    library.raw_set("unpack", lua.create_function(unpack)?)?;
    let size = |lua: &Lua, values: MultiValue| size(&Arguments { lua, function: "size", values });
    library.raw_set("size", lua.create_function(size)?)?;
    Ok(library)
}

/// A format, read from the front.
struct Format<'a> {
    rest: &'a [u8],
    is_big: bool,
    alignment: usize,
    args: &'a Arguments<'a>,
}

struct Item {
    option: u8,
    len: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8], args: &'a Arguments<'a>) -> Format<'a> {
        // A format ends at a null, as strings of C do.
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Format { rest: &text[..end], is_big: false, alignment: 1, args }
    }

    fn next(&mut self) -> std::result::Result<Option<Item>, Error> {
        let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let len = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let len = self.number(4)?;
                if len > INTEGER_LEN_MAX {
                    return Err(self.args.error(format!(
                        "integral size {len} is larger than limit of {INTEGER_LEN_MAX}"
                    )));
                }
                len
            }
            _ => 0,
        };
        Ok(Some(Item { option, len }))
    }

    fn number(&mut self, default: usize) -> std::result::Result<usize, Error> {
        let len = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if len == 0 {
            return Ok(default);
        }
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        let value = base::decimal::parse_i64(digits.trim_ascii_start())
            .or_else(|| std::str::from_utf8(digits).ok()?.parse().ok())
            .and_then(|value| i32::try_from(value).ok());
        let value = value.ok_or_else(|| self.args.error("integral size overflow"))?;
        Ok(value as usize)
    }

    /// Bytes before an item that begins at `at` otherwise.
    fn padding(&self, at: usize, item: &Item) -> usize {
        if item.len == 0 || item.option == b'c' {
            return 0;
        }
        let len = item.len.min(self.alignment);
        len.wrapping_sub(at & len.wrapping_sub(1)) & len.wrapping_sub(1)
    }

    /// An option that is no item.
    fn control(&mut self, option: u8) -> std::result::Result<(), Error> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let alignment = self.number(ALIGNMENT_MAX)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(self.args.error(text));
                }
                self.alignment = alignment;
            }
            _ => {
                let mut text = b"invalid format option '".to_vec();
                text.extend([option, b'\'']);
                return Err(self.args.bad(1, &String::from_utf8_lossy(&text)));
            }
        }
        Ok(())
    }

    fn put(&self, out: &mut Vec<u8>, little: &[u8]) {
        match self.is_big {
            true => out.extend(little.iter().rev()),
            false => out.extend_from_slice(little),
        }
    }

    fn take(&self, bytes: &[u8]) -> Vec<u8> {
        let mut little = bytes.to_vec();
        if self.is_big {
            little.reverse();
        }
        little
    }
}

fn is_integer(option: u8) -> bool {
    b"bBhHlLTiI".contains(&option)
}

fn pack(args: &Arguments<'_>) -> Result<mlua::String> {
    let text = args.string(1)?;
    let mut format = Format::new(&text, args);
    let mut out = Vec::new();
    let mut at = 0;
    let mut number = 1;
    while let Some(item) = format.next()? {
        let padding = format.padding(at, &item);
        out.extend(std::iter::repeat_n(0, padding));
        at += padding;
        let mut len = item.len;
        match item.option {
            option if is_integer(option) => {
                number += 1;
                let value = args.number(number)?;
                let value = if value < 0.0 { number::to_i64(value) } else { unsigned(value) };
                let mut little = [0; INTEGER_LEN_MAX];
                little[..8].copy_from_slice(&value.to_le_bytes());
                format.put(&mut out, &little[..len]);
            }
            b'x' => out.push(0),
            b'f' => {
                number += 1;
                format.put(&mut out, &(args.number(number)? as f32).to_le_bytes());
            }
            b'd' => {
                number += 1;
                format.put(&mut out, &args.number(number)?.to_le_bytes());
            }
            b'c' | b's' => {
                number += 1;
                let bytes = args.string(number)?;
                if len == 0 {
                    len = bytes.len();
                }
                if bytes.len() < len {
                    return Err(args.bad(number + 1, "string too short"));
                }
                out.extend_from_slice(&bytes[..len]);
                if item.option == b's' {
                    out.push(0);
                    len += 1;
                }
            }
            option => format.control(option)?,
        }
        at += len;
        if out.len() > PACKED_LEN_MAX {
            return Err(args.error("too many bytes"));
        }
    }
    args.lua.create_string(out)
}

/// The conversion of C on x86-64.
fn unsigned(value: f64) -> i64 {
    if value < 9_223_372_036_854_775_808.0 {
        return number::to_i64(value);
    }
    number::to_i64(value - 9_223_372_036_854_775_808.0) ^ i64::MIN
}

fn unpack(args: &Arguments<'_>) -> Result<MultiValue> {
    let (text, data) = (args.string(1)?, args.string(2)?);
    let first = args.integer_or(3, 1)?;
    if first == 0 {
        return Err(args.bad(3, "offset must be 1 or greater"));
    }
    let mut at = (first as usize).wrapping_sub(1);
    let mut format = Format::new(&text, args);
    let mut values: Vec<Value> = Vec::new();
    let short = || args.bad(2, "data string too short");
    while let Some(item) = format.next()? {
        at = at.checked_add(format.padding(at, &item)).ok_or_else(short)?;
        let mut len = item.len;
        if len > data.len() || at > data.len() - len {
            return Err(short());
        }
        if values.len() >= RESULTS_MAX {
            return Err(args.error("stack overflow (too many results)"));
        }
        let bytes = &data[at..at + len];
        match item.option {
            option if is_integer(option) => {
                let value = integer(&format.take(bytes), option.is_ascii_lowercase());
                values.push(Value::Number(value));
            }
            b'x' => {}
            b'f' => {
                let little = format.take(bytes).try_into().unwrap_or_default();
                values.push(Value::Number(f64::from(f32::from_le_bytes(little))));
            }
            b'd' => {
                let little = format.take(bytes).try_into().unwrap_or_default();
                values.push(Value::Number(f64::from_le_bytes(little)));
            }
            b'c' => {
                if len == 0 {
                    let Some(Value::Number(size)) = values.pop() else {
                        return Err(args.error("format 'c0' needs a previous size"));
                    };
                    len = number::to_i64(size) as usize;
                    if len > data.len() || at > data.len() - len {
                        return Err(short());
                    }
                }
                values.push(Value::String(args.lua.create_string(&data[at..at + len])?));
            }
            b's' => {
                let end = data[at..].iter().position(|&byte| byte == 0);
                let end = end.ok_or_else(|| args.error("unfinished string in data"))?;
                values.push(Value::String(args.lua.create_string(&data[at..at + end])?));
                len = end + 1;
            }
            option => format.control(option)?,
        }
        at += len;
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(MultiValue::from_vec(values))
}

fn integer(little: &[u8], is_signed: bool) -> f64 {
    let mut bits: u64 = 0;
    for &byte in little.iter().rev() {
        bits = bits << 8 | u64::from(byte);
    }
    if !is_signed {
        return bits as f64;
    }
    let sign = (little.len() as u32 * 8).wrapping_sub(1);
    let mask = u64::MAX.wrapping_shl(sign);
    if bits & mask != 0 {
        bits |= mask;
    }
    bits.cast_signed() as f64
}

fn size(args: &Arguments<'_>) -> Result<usize> {
    let text = args.string(1)?;
    let mut format = Format::new(&text, args);
    let mut at: usize = 0;
    while let Some(item) = format.next()? {
        at = at.saturating_add(format.padding(at, &item));
        if item.option == b's' {
            return Err(args.bad(1, "option 's' has no fixed size"));
        }
        if item.option == b'c' && item.len == 0 {
            return Err(args.bad(1, "option 'c0' has no fixed size"));
        }
        if !item.option.is_ascii_alphanumeric() {
            format.control(item.option)?;
        }
        at = at.saturating_add(item.len);
    }
    Ok(at)
}
