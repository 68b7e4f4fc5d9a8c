//! The library `cjson`: values as JSON.

mod decode;
mod encode;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::arguments::Arguments;
use crate::current::Shared;
use crate::message_pack::charge;

/// Depth that the stack of a thread bears.
const DEPTH_MAX: i64 = 1_000;

/// Options of a run; each run begins with the defaults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    converts_sparse: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_depth: i64,
    decode_depth: i64,
    encode_invalid: Invalid,
    decode_invalid: bool,
    precision: i64,
    keeps_buffer: bool,
}

/// The use of numbers that JSON does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Invalid {
    Error,
    AsTheyAre,
    Null,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            converts_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: DEPTH_MAX,
            decode_depth: DEPTH_MAX,
            encode_invalid: Invalid::Error,
            decode_invalid: true,
            precision: 14,
            keeps_buffer: true,
        }
    }
}

type Configure = fn(&Arguments<'_>, &mut Settings) -> Result<Vec<Value>>;

const OPTIONS: &[(&str, Configure)] = &[
    ("encode_sparse_array", |args, settings| {
        limit(args, 3)?;
        Ok(vec![
            switch(args, 1, &mut settings.converts_sparse)?,
            integer(args, 2, &mut settings.sparse_ratio, 0, i32::MAX.into())?,
            integer(args, 3, &mut settings.sparse_safe, 0, i32::MAX.into())?,
        ])
    }),
    ("encode_max_depth", |args, settings| {
        limit(args, 1)?;
        Ok(vec![integer(args, 1, &mut settings.encode_depth, 1, i32::MAX.into())?])
    }),
    ("decode_max_depth", |args, settings| {
        limit(args, 1)?;
        Ok(vec![integer(args, 1, &mut settings.decode_depth, 1, i32::MAX.into())?])
    }),
    ("encode_number_precision", |args, settings| {
        limit(args, 1)?;
        Ok(vec![integer(args, 1, &mut settings.precision, 1, 14)?])
    }),
    ("encode_keep_buffer", |args, settings| {
        limit(args, 1)?;
        Ok(vec![switch(args, 1, &mut settings.keeps_buffer)?])
    }),
    ("decode_invalid_numbers", |args, settings| {
        limit(args, 1)?;
        Ok(vec![switch(args, 1, &mut settings.decode_invalid)?])
    }),
    ("encode_invalid_numbers", encode_invalid),
];

pub(crate) fn library(lua: &Lua, current: &Shared) -> Result<Table> {
    let library = module(lua, current)?;
    let run = current.clone();
    let new = lua.create_function(move |lua, _: MultiValue| module(lua, &run))?;
    library.raw_set("new", new)?;
    Ok(library)
}

fn module(lua: &Lua, current: &Shared) -> Result<Table> {
    let library = lua.create_table()?;
    let run = current.clone();
    let encode = lua.create_function(move |lua, values| {
        let args = Arguments { lua, function: "encode", values };
        if args.len() != 1 {
            return Err(args.bad(1, "expected 1 argument"));
        }
        let settings = run.borrow().json;
        let text = encode::encode(&args, &settings, &run)?;
        lua.create_string(text)
    })?;
    library.raw_set("encode", encode)?;
    let run = current.clone();
    let decode = lua.create_function(move |lua, values| {
        let args = Arguments { lua, function: "decode", values };
        if args.len() != 1 {
            return Err(args.bad(1, "expected 1 argument"));
        }
        let text = args.string(1)?;
        charge(&run, text.len())?;
        let settings = run.borrow().json;
        decode::decode(&args, &text, &settings)
    })?;
    library.raw_set("decode", decode)?;
    for &(function, configure) in OPTIONS {
        let run = current.clone();
        let call = lua.create_function(move |lua, values| {
            let args = Arguments { lua, function, values };
            let mut settings = run.borrow().json;
            let answers = configure(&args, &mut settings)?;
            run.borrow_mut().json = settings;
            Ok(MultiValue::from_vec(answers))
        })?;
        library.raw_set(function, call)?;
    }
    library.raw_set("null", Value::NULL)?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    Ok(library)
}

fn limit(args: &Arguments<'_>, max: usize) -> Result<()> {
    if args.len() > max { Err(args.bad(max + 1, "found too many arguments")) } else { Ok(()) }
}

fn switch(args: &Arguments<'_>, number: usize, setting: &mut bool) -> Result<Value> {
    match args.get(number) {
        Value::Nil => {}
        Value::Boolean(value) => *setting = *value,
        _ => *setting = option(args, number, &["off", "on"])? == 1,
    }
    Ok(Value::Boolean(*setting))
}

/// The index of a word among others.
fn option(args: &Arguments<'_>, number: usize, words: &[&str]) -> Result<usize> {
    let word = args.string(number)?;
    let at = words.iter().position(|it| it.as_bytes() == word);
    at.ok_or_else(|| {
        args.bad(number, &format!("invalid option '{}'", String::from_utf8_lossy(&word)))
    })
}

fn integer(
    args: &Arguments<'_>,
    number: usize,
    setting: &mut i64,
    min: i64,
    max: i64,
) -> Result<Value> {
    if !args.get(number).is_nil() {
        let value = i64::from(args.integer(number)? as i32);
        if value < min || value > max {
            return Err(args.bad(1, &format!("expected integer between {min} and {max}")));
        }
        *setting = value;
    }
    Ok(Value::Number(*setting as f64))
}

fn encode_invalid(args: &Arguments<'_>, settings: &mut Settings) -> Result<Vec<Value>> {
    limit(args, 1)?;
    settings.encode_invalid = match args.get(1) {
        Value::Nil => settings.encode_invalid,
        Value::Boolean(false) => Invalid::Error,
        Value::Boolean(true) => Invalid::AsTheyAre,
        _ => [Invalid::Error, Invalid::AsTheyAre, Invalid::Null]
            [option(args, 1, &["off", "on", "null"])?],
    };
    Ok(vec![match settings.encode_invalid {
        Invalid::Error => Value::Boolean(false),
        Invalid::AsTheyAre => Value::Boolean(true),
        Invalid::Null => Value::String(args.lua.create_string("null")?),
    }])
}
