//! The Lua state of a thread, with the globals that scripts see.

use mlua::{
    Error, Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value,
    VmState,
};

use crate::arguments::Arguments;
use crate::current::{HOOK_EVERY, Shared};
use crate::{bits, json, message_pack, packed, raise, redis_api, source, strings};

const CALLBACKS: &str = include_str!("callbacks.lua");
const WRAPPERS: &str = include_str!("wrappers.lua");

/// Globals of Lua that scripts do not see.
const REMOVED: &[&str] =
    &["dofile", "loadfile", "print", "newproxy", "module", "require", "package", "debug", "io"];

pub(crate) struct Sandbox {
    pub(crate) lua: Lua,
    /// The globals behind those that scripts see.
    pub(crate) globals: Table,
    /// Calls a function under the error handler.
    pub(crate) run: Function,
    /// Undoes raw writes into read-only tables.
    pub(crate) tidy: Function,
}

impl Sandbox {
    pub(crate) fn new(current: &Shared) -> Result<Sandbox> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(libraries, options)?;
        let globals = lua.globals();
        for name in REMOVED {
            globals.raw_set(*name, Value::Nil)?;
        }
        narrow_strings(&lua, &globals, current)?;
        replace_random(&lua, &globals, current)?;
        count_callbacks(&lua, &globals, current)?;
        let (shown, run, tidy, replace) = wrap(&lua, &globals, current)?;
        check_tables(&lua, &globals)?;
        current.borrow_mut().replace = Some(replace);
        lua.set_app_data(current.clone());
        lua.set_globals(shown)?;
        count_instructions(&lua, current, HOOK_EVERY)?;
        Ok(Sandbox { lua, globals, run, tidy })
    }
}

fn narrow_strings(lua: &Lua, globals: &Table, current: &Shared) -> Result<()> {
    let library: Table = globals.raw_get("string")?;
    let run = current.clone();
    let repeat = lua.create_function(move |lua, values| strings::repeat(lua, &run, values))?;
    library.raw_set("rep", repeat)?;
    for (name, call) in strings::PATTERN_FUNCTIONS {
        // Scripts know it as an iterator only.
        let function = if name == "scan" { "gmatch" } else { name };
        let run = current.clone();
        let call = lua
            .create_function(move |lua, values| call(&Arguments { lua, function, values }, &run))?;
        library.raw_set(name, call)?;
    }
    for (function, change) in strings::CHANGES {
        let run = current.clone();
        let call = lua.create_function(move |lua, values| {
            strings::change(&Arguments { lua, function, values }, &run, change)
        })?;
        library.raw_set(function, call)?;
    }
    let tables: Table = globals.raw_get("table")?;
    count_before(lua, &library, current, "format", strings::format)?;
    count_before(lua, &tables, current, "concat", strings::concat)?;
    count_before(lua, globals, current, "tonumber", strings::to_number)
}

type Counted = fn(&Arguments<'_>, &Shared, &Function) -> Result<MultiValue>;

/// Puts a function that counts in the place of one that it calls.
fn count_before(
    lua: &Lua,
    library: &Table,
    current: &Shared,
    function: &'static str,
    counted: Counted,
) -> Result<()> {
    let original: Function = library.raw_get(function)?;
    let run = current.clone();
    let call = lua.create_function(move |lua, values| {
        counted(&Arguments { lua, function, values }, &run, &original)
    })?;
    library.raw_set(function, call)
}

/// Lets the hook see the functions that functions of Lua call, and counts compilations.
fn count_callbacks(lua: &Lua, globals: &Table, current: &Shared) -> Result<()> {
    let run = current.clone();
    let refusal = lua.create_function(move |_, text: Value| {
        let Value::String(text) = text else { return Ok(None) };
        let text = text.as_bytes();
        let is_over = source::spend(&text, &mut run.borrow_mut());
        if is_over { Err(raise::halt()) } else { Ok(source::refusal(&text)) }
    })?;
    lua.load(CALLBACKS).set_name(raise::WRAPPERS).call((globals, refusal))
}

/// `math.random` draws from the seed of the run.
fn replace_random(lua: &Lua, globals: &Table, current: &Shared) -> Result<()> {
    let library: Table = globals.raw_get("math")?;
    let run = current.clone();
    let random = lua.create_function(move |lua, values| {
        let args = Arguments { lua, function: "random", values };
        let fraction = run.borrow_mut().random.fraction();
        let integer = |number| args.integer(number).map(|value| f64::from(value as i32));
        match args.len() {
            0 => Ok(fraction),
            1 => {
                let upper = integer(1)?;
                if upper < 1.0 {
                    return Err(args.bad(1, "interval is empty"));
                }
                Ok((fraction * upper).floor() + 1.0)
            }
            2 => {
                let (lower, upper) = (integer(1)?, integer(2)?);
                if lower > upper {
                    return Err(args.bad(2, "interval is empty"));
                }
                Ok((fraction * (upper - lower + 1.0)).floor() + lower)
            }
            _ => Err(args.error("wrong number of arguments")),
        }
    })?;
    library.raw_set("random", random)?;
    let run = current.clone();
    let seed = lua.create_function(move |lua, values| {
        let args = Arguments { lua, function: "randomseed", values };
        let seed = args.integer(1)? as i32;
        run.borrow_mut().random = crate::random::Random::new(seed.cast_unsigned());
        Ok(())
    })?;
    library.raw_set("randomseed", seed)
}

/// Runs the file of wrappers: it makes globals and libraries read-only.
fn wrap(
    lua: &Lua,
    globals: &Table,
    current: &Shared,
) -> Result<(Table, Function, Function, Function)> {
    let run = current.clone();
    let caught = lua.create_function(move |lua, (error, as_text): (Value, bool)| {
        redis_api::caught(lua, &run, error, as_text)
    })?;
    let run = current.clone();
    let handler =
        lua.create_function(move |lua, error: Value| redis_api::explain(lua, &run, error))?;
    let run = current.clone();
    let charge = lua.create_function(move |_, bytes: usize| message_pack::charge(&run, bytes))?;
    let run = current.clone();
    let spoil = lua.create_function(move |_, ()| {
        run.borrow_mut().is_spoilt = true;
        Ok(())
    })?;
    let libraries = lua.create_table()?;
    for name in ["string", "table", "math", "coroutine"] {
        libraries.raw_set(name, globals.raw_get::<Value>(name)?)?;
    }
    libraries.raw_set("redis", redis_api::library(lua, current)?)?;
    libraries.raw_set("cjson", json::library(lua, current)?)?;
    libraries.raw_set("cmsgpack", message_pack::library(lua, current)?)?;
    libraries.raw_set("bit", bits::library(lua)?)?;
    libraries.raw_set("struct", packed::library(lua)?)?;
    let os = lua.create_table()?;
    let run = current.clone();
    os.raw_set("clock", lua.create_function(move |_, _: MultiValue| Ok(run.borrow().seconds()))?)?;
    libraries.raw_set("os", os)?;
    let chunk = lua.load(WRAPPERS).set_name(raise::WRAPPERS);
    chunk.call((globals, caught, handler, charge, spoil, libraries))
}

/// Names the place of wrong arguments, also where a script ends with the call.
fn check_tables(lua: &Lua, globals: &Table) -> Result<()> {
    for function in ["setmetatable", "rawset"] {
        let wrapped: Function = globals.raw_get(function)?;
        let call = lua.create_function(move |lua, values: MultiValue| {
            let args = Arguments { lua, function, values };
            args.table(1)?;
            match (function, args.len(), args.get(2)) {
                ("setmetatable", 2.., Value::Table(_) | Value::Nil) => {}
                ("setmetatable", ..) => return Err(args.bad(2, "nil or table expected")),
                (_, 0..2, _) => return Err(args.bad(2, "value expected")),
                (_, 2, _) => return Err(args.bad(3, "value expected")),
                _ => {}
            }
            let called = wrapped.call::<MultiValue>(args.values);
            called.map_err(|error| raise::of_wrapper(lua, error))
        })?;
        globals.raw_set(function, call)?;
    }
    Ok(())
}

/// Looks at the budget after so many instructions of the thread of Lua that runs.
pub(crate) fn count_instructions(lua: &Lua, current: &Shared, every: u32) -> Result<()> {
    let run = current.clone();
    let triggers = HookTriggers::new().every_nth_instruction(every);
    lua.set_global_hook(triggers, move |lua, _| {
        let memory = lua.used_memory();
        let (is_over, next) = {
            let mut run = run.borrow_mut();
            (run.look(memory), run.every)
        };
        if !is_over {
            // Coroutines have a counter each, so one may still be at a former distance.
            if next != every || next != HOOK_EVERY {
                count_instructions(lua, &run, next)?;
            }
            return Ok(VmState::Continue);
        }
        let place = raise::place_from(lua, 0);
        run.borrow_mut().place = place;
        Err(raise::halt())
    })
}

/// A function of a chunk, in the globals that scripts see.
pub(crate) fn compile(lua: &Lua, source: &[u8]) -> std::result::Result<Function, Error> {
    lua.load(source).set_name("@user_script").set_mode(mlua::ChunkMode::Text).into_function()
}
