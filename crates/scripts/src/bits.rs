//! The library `bit`: operations on 32 bits.

use mlua::{Error, Lua, Result, Table, Value};

use crate::arguments::{Arguments, numeric};

type Function = fn(&Arguments<'_>) -> Result<Value>;

const FUNCTIONS: &[(&str, Function)] = &[
    ("tobit", |args| signed(operand(args, 1)?)),
    ("bnot", |args| signed(!operand(args, 1)?)),
    ("band", |args| fold(args, |a, b| a & b)),
    ("bor", |args| fold(args, |a, b| a | b)),
    ("bxor", |args| fold(args, |a, b| a ^ b)),
    ("lshift", |args| shift(args, |bits, by| bits << by)),
    ("rshift", |args| shift(args, |bits, by| bits >> by)),
    ("arshift", |args| shift(args, |bits, by| (bits.cast_signed() >> by).cast_unsigned())),
    ("rol", |args| shift(args, u32::rotate_left)),
    ("ror", |args| shift(args, u32::rotate_right)),
    ("bswap", |args| signed(operand(args, 1)?.swap_bytes())),
    ("tohex", to_hex),
];

pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    for &(name, function) in FUNCTIONS {
        let call = lua.create_function(move |lua, values| {
            function(&Arguments { lua, function: name, values })
        })?;
        library.raw_set(name, call)?;
    }
    Ok(library)
}

fn signed(bits: u32) -> Result<Value> {
    Ok(Value::Number(f64::from(bits.cast_signed())))
}

/// The low 32 bits of a number.
fn operand(args: &Arguments<'_>, number: usize) -> std::result::Result<u32, Error> {
    args.charge(number)?;
    match numeric(args.get(number)) {
        // Adding 2^52 + 2^51 moves the bits of the number to the end of the double.
        Some(value) => Ok((value + 6_755_399_441_055_744.0).to_bits() as u32),
        None => args.number(number).map(|_| 0),
    }
}

fn fold(args: &Arguments<'_>, operation: fn(u32, u32) -> u32) -> Result<Value> {
    let mut bits = operand(args, 1)?;
    for number in (2..=args.len()).rev() {
        bits = operation(bits, operand(args, number)?);
    }
    signed(bits)
}

fn shift(args: &Arguments<'_>, operation: fn(u32, u32) -> u32) -> Result<Value> {
    let bits = operand(args, 1)?;
    signed(operation(bits, operand(args, 2)? & 31))
}

fn to_hex(args: &Arguments<'_>) -> Result<Value> {
    let bits = operand(args, 1)?;
    let digits = if args.len() < 2 { 8 } else { operand(args, 2)?.cast_signed() };
    let len = digits.unsigned_abs().min(8) as usize;
    let text = match digits < 0 {
        true => format!("{bits:08X}"),
        false => format!("{bits:08x}"),
    };
    Ok(Value::String(args.lua.create_string(&text[8 - len..])?))
}
