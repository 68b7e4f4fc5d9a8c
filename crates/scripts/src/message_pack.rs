//! The library `cmsgpack`: values as MessagePack.

use mlua::{Error, Lua, MultiValue, Result, Table, Value};

use crate::arguments::Arguments;
use crate::current::Shared;
use crate::number;
use crate::raise;

/// Tables within tables; deeper ones become nil.
const DEPTH_MAX: usize = 16;
/// Arrays within arrays that are read.
const READ_DEPTH_MAX: usize = 1_000;
/// Values of one call: more do not fit on Lua's stack.
const RESULTS_MAX: usize = 7_900;

pub(crate) fn library(lua: &Lua, current: &Shared) -> Result<Table> {
    let library = lua.create_table()?;
    let run = current.clone();
    let pack = move |lua: &Lua, values: MultiValue| {
        let mut out = Out { bytes: Vec::new(), charged: 0, run: &run };
        pack(&Arguments { lua, function: "pack", values }, &mut out)?;
        out.charge()?;
        lua.create_string(out.bytes)
    };
    library.raw_set("pack", lua.create_function(pack)?)?;
    type Unpack = fn(&Arguments<'_>) -> Result<MultiValue>;
    let functions: [(&'static str, Unpack); 3] = [
        ("unpack", |args| unpack(args, 0, 0)),
        ("unpack_one", |args| unpack(args, 1, args.integer_or(2, 0)?)),
        ("unpack_limit", |args| unpack(args, args.integer(2)?, args.integer_or(3, 0)?)),
    ];
    for (function, call) in functions {
        let run = current.clone();
        let call = lua.create_function(move |lua, values| {
            let args = Arguments { lua, function, values };
            if let Value::String(text) = args.get(1) {
                charge(&run, text.as_bytes().len())?;
            }
            call(&args)
        })?;
        library.raw_set(function, call)?;
    }
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    library.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    library.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(library)
}

/// Each byte costs a few instructions of the machine.
pub(crate) fn charge(current: &Shared, bytes: usize) -> Result<()> {
    match current.borrow_mut().spend_bytes(bytes.saturating_mul(8)) {
        true => Err(raise::halt()),
        false => Ok(()),
    }
}

/// Bytes between two looks at the budget.
const CHARGE_EVERY: usize = 4_096;

/// Packed values, charged while they grow: tables that share parts have no other bound.
struct Out<'a> {
    bytes: Vec<u8>,
    charged: usize,
    run: &'a Shared,
}

impl Out<'_> {
    /// Makes sure of room for more bytes.
    fn grow(&mut self, more: usize) -> Result<()> {
        if self.bytes.len() + more >= self.charged + CHARGE_EVERY {
            self.charge()?;
            let max = self.run.borrow().budget().memory;
            if self.bytes.len() + more > max {
                self.run.borrow_mut().exceed_memory();
                return Err(raise::halt());
            }
        }
        Ok(())
    }

    fn charge(&mut self) -> Result<()> {
        let new = self.bytes.len() - self.charged;
        self.charged = self.bytes.len();
        charge(self.run, new)
    }
}

fn pack(args: &Arguments<'_>, out: &mut Out<'_>) -> Result<()> {
    if args.len() == 0 {
        return Err(args.bad(0, "MessagePack pack needs input."));
    }
    for value in &args.values {
        put(value, 0, out)?;
    }
    Ok(())
}

fn put(value: &Value, depth: usize, out: &mut Out<'_>) -> Result<()> {
    out.grow(if let Value::String(text) = value { text.as_bytes().len() } else { 0 })?;
    let bytes = &mut out.bytes;
    match value {
        Value::String(text) => put_bytes(&text.as_bytes(), bytes),
        Value::Boolean(value) => bytes.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(value) => put_integer(*value, bytes),
        Value::Number(value) => put_number(*value, bytes),
        Value::Table(table) if depth < DEPTH_MAX => put_table(table, depth, out)?,
        _ => bytes.push(0xc0),
    }
    Ok(())
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        len @ 0..32 => out.push(0xa0 | len as u8),
        len @ 32..0x100 => out.extend([0xd9, len as u8]),
        len @ 0x100..0x1_0000 => put_header(0xda, &(len as u16).to_be_bytes(), out),
        len => put_header(0xdb, &(len as u32).to_be_bytes(), out),
    }
    out.extend_from_slice(bytes);
}

fn put_header(kind: u8, len: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(len);
}

fn put_number(value: f64, out: &mut Vec<u8>) {
    let integer = number::to_i64(value);
    if value.is_finite() && integer as f64 == value && value < 9_223_372_036_854_775_808.0 {
        return put_integer(integer, out);
    }
    let short = value as f32;
    if f64::from(short) == value {
        put_header(0xca, &short.to_be_bytes(), out);
    } else {
        put_header(0xcb, &value.to_be_bytes(), out);
    }
}

fn put_integer(value: i64, out: &mut Vec<u8>) {
    match value {
        -32..=127 => out.push(value as u8),
        128..=0xff => out.extend([0xcc, value as u8]),
        0x100..=0xffff => put_header(0xcd, &(value as u16).to_be_bytes(), out),
        0x1_0000..=0xffff_ffff => put_header(0xce, &(value as u32).to_be_bytes(), out),
        0x1_0000_0000.. => put_header(0xcf, &value.to_be_bytes(), out),
        -128..=-33 => out.extend([0xd0, value as u8]),
        -0x8000..=-129 => put_header(0xd1, &(value as i16).to_be_bytes(), out),
        -0x8000_0000..=-0x8001 => put_header(0xd2, &(value as i32).to_be_bytes(), out),
        _ => put_header(0xd3, &value.to_be_bytes(), out),
    }
}

fn put_len(kinds: [u8; 3], len: usize, out: &mut Vec<u8>) {
    match len {
        0..=15 => out.push(kinds[0] | len as u8),
        16..=0xffff => put_header(kinds[1], &(len as u16).to_be_bytes(), out),
        _ => put_header(kinds[2], &(len as u32).to_be_bytes(), out),
    }
}

fn put_table(table: &Table, depth: usize, out: &mut Out<'_>) -> Result<()> {
    let mut pairs = Vec::new();
    table.for_each(|key: Value, value: Value| {
        pairs.push((key, value));
        Ok(())
    })?;
    if is_array(&pairs) {
        let len = table.raw_len();
        put_len([0x90, 0xdc, 0xdd], len, &mut out.bytes);
        for index in 1..=len {
            put(&table.raw_get(index)?, depth + 1, out)?;
        }
    } else {
        put_len([0x80, 0xde, 0xdf], pairs.len(), &mut out.bytes);
        for (key, value) in &pairs {
            put(key, depth + 1, out)?;
            put(value, depth + 1, out)?;
        }
    }
    Ok(())
}

/// The keys are the numbers from 1 to their count. An empty table is an array.
fn is_array(pairs: &[(Value, Value)]) -> bool {
    let index = |key: &Value| match key {
        Value::Integer(key) => i32::try_from(*key).ok().filter(|key| *key > 0),
        Value::Number(key) => Some(*key as i32).filter(|it| f64::from(*it) == *key && *it > 0),
        _ => None,
    };
    let mut max = 0;
    for (key, _) in pairs {
        match index(key) {
            Some(key) => max = max.max(key),
            None => return false,
        }
    }
    usize::try_from(max) == Ok(pairs.len())
}

enum Bad {
    Short,
    Format,
    Other(Error),
}

impl From<Error> for Bad {
    fn from(error: Error) -> Bad {
        Bad::Other(error)
    }
}

fn unpack(args: &Arguments<'_>, limit: i64, offset: i64) -> Result<MultiValue> {
    let data = args.string(1)?;
    if offset < 0 || limit < 0 {
        let text = format!(
            "Invalid request to unpack with offset of {} and limit of {}.",
            offset as i32,
            data.len() as i32
        );
        return Err(args.error(text));
    }
    if offset as usize > data.len() {
        let text = format!(
            "Start offset {} greater than input length {}.",
            offset as i32,
            data.len() as i32
        );
        return Err(args.error(text));
    }
    let is_all = limit == 0 && offset == 0;
    let limit = if is_all { i64::from(i32::MAX) } else { limit };
    let mut reader = Reader { lua: args.lua, left: &data[offset as usize..] };
    let mut values: Vec<Value> = Vec::new();
    while !reader.left.is_empty() && (values.len() as i64) < limit {
        if values.len() >= RESULTS_MAX {
            return Err(args.error(
                "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)",
            ));
        }
        match reader.value(0) {
            Ok(value) => values.push(value),
            Err(Bad::Short) => return Err(args.error("Missing bytes in input.")),
            Err(Bad::Format) => return Err(args.error("Bad data format in input.")),
            Err(Bad::Other(error)) => return Err(error),
        }
    }
    if !is_all {
        let next = match reader.left.len() {
            0 => -1,
            left => (data.len() - left) as i64,
        };
        values.insert(0, Value::Number(next as f64));
    }
    Ok(MultiValue::from_vec(values))
}

struct Reader<'a> {
    lua: &'a Lua,
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> std::result::Result<&'a [u8], Bad> {
        let (taken, left) = self.left.split_at_checked(len).ok_or(Bad::Short)?;
        self.left = left;
        Ok(taken)
    }

    fn unsigned(&mut self, len: usize) -> std::result::Result<u64, Bad> {
        Ok(self.take(len)?.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn value(&mut self, depth: usize) -> std::result::Result<Value, Bad> {
        let number = |value: f64| Ok(Value::Number(value));
        match self.take(1)?[0] {
            kind @ 0..0x80 => number(f64::from(kind)),
            kind @ 0xe0..=0xff => number(f64::from(kind.cast_signed())),
            kind @ 0xa0..0xc0 => self.bytes(usize::from(kind & 0x1f)),
            kind @ 0x90..0xa0 => self.array(u64::from(kind & 0xf), depth),
            kind @ 0x80..0x90 => self.map(u64::from(kind & 0xf), depth),
            0xc0 => Ok(Value::Nil),
            0xc2 => Ok(Value::Boolean(false)),
            0xc3 => Ok(Value::Boolean(true)),
            0xca => {
                let bits = self.unsigned(4)? as u32;
                number(f64::from(f32::from_bits(bits)))
            }
            0xcb => {
                let bits = self.unsigned(8)?;
                number(f64::from_bits(bits))
            }
            0xcc => self.unsigned(1).and_then(|value| number(value as f64)),
            0xcd => self.unsigned(2).and_then(|value| number(value as f64)),
            0xce => self.unsigned(4).and_then(|value| number(value as f64)),
            // Lua 5.1 has signed integers only.
            0xcf | 0xd3 => self.unsigned(8).and_then(|value| number(value.cast_signed() as f64)),
            0xd0 => self.unsigned(1).and_then(|value| number(f64::from(value as i8))),
            0xd1 => self.unsigned(2).and_then(|value| number(f64::from(value as i16))),
            0xd2 => self.unsigned(4).and_then(|value| number(f64::from(value as i32))),
            0xd9 => self.unsigned(1).and_then(|len| self.bytes(len as usize)),
            0xda => self.unsigned(2).and_then(|len| self.bytes(len as usize)),
            0xdb => self.unsigned(4).and_then(|len| self.bytes(len as usize)),
            0xdc => self.unsigned(2).and_then(|len| self.array(len, depth)),
            0xdd => self.unsigned(4).and_then(|len| self.array(len, depth)),
            0xde => self.unsigned(2).and_then(|len| self.map(len, depth)),
            0xdf => self.unsigned(4).and_then(|len| self.map(len, depth)),
            _ => Err(Bad::Format),
        }
    }

    fn bytes(&mut self, len: usize) -> std::result::Result<Value, Bad> {
        let bytes = self.take(len)?;
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn array(&mut self, len: u64, depth: usize) -> std::result::Result<Value, Bad> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        for index in 1..=len {
            let value = self.value(depth + 1)?;
            table.raw_set(index, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: u64, depth: usize) -> std::result::Result<Value, Bad> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            match key {
                Value::Nil => return Err(raise::bare("table index is nil").into()),
                Value::Number(key) if key.is_nan() => {
                    return Err(raise::bare("table index is NaN").into());
                }
                key => table.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(table))
    }

    fn check_depth(&self, depth: usize) -> std::result::Result<(), Bad> {
        if depth < READ_DEPTH_MAX { Ok(()) } else { Err(Bad::Format) }
    }
}
