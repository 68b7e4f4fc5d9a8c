//! Runs of scripts, on the Lua state of the thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use commands::{ErrorReply, Halt, ScriptCall, ScriptEngine, Space};
use mlua::{Function, Value};
use types::{Reply, Shortage};

use crate::convert;
use crate::current::{Current, Shared};
use crate::redis_api::hex_digest;
use crate::sandbox::{self, Sandbox};
use crate::shebang::{self, Flags};
use crate::source::{self, TOO_MANY_JUMPS};

/// The engine that a node gives to its interpreter.
pub const ENGINE: ScriptEngine = ScriptEngine { run, check };

/// Compiled scripts of a thread.
const COMPILED_MAX: usize = 500;
const COMPILED_LEN_MAX: usize = 8 << 20;

/// Words of `KEYS` and `ARGV` between two looks at the budget.
const WORDS: usize = 256;

/// Garbage after which a run ends with a collection.
const GARBAGE_MAX: usize = 4 << 20;

/// The SHA1 digest of a source, in hexadecimal digits.
#[must_use]
pub fn digest(source: &[u8]) -> String {
    hex_digest(source)
}

/// Runs a script.
fn run(call: &ScriptCall<'_>, space: &mut Space) -> Result<Reply, Halt> {
    with_engine(|engine| engine.run(call, space))
}

/// Compiles a script, if that is soon done. The first run of another one finds its errors.
fn check(source: &[u8]) -> Result<(), ErrorReply> {
    if !source::compiles_soon(source) {
        return Ok(());
    }
    let checked = with_engine(|engine| match engine.compile(source) {
        Ok(_) => Ok(Reply::OK),
        Err(error) => Err(Halt::Error(error)),
    });
    match checked {
        Err(Halt::Error(error)) => Err(error),
        _ => Ok(()),
    }
}

thread_local! {
    static HERE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

fn with_engine(run: impl FnOnce(&mut Engine) -> Result<Reply, Halt>) -> Result<Reply, Halt> {
    HERE.with(|here| {
        // A script calls no script, so the engine is never in use.
        let Ok(mut here) = here.try_borrow_mut() else { return Err(broken("in use")) };
        if here.is_none() {
            *here = Some(Engine::new().map_err(|error| broken(&error.to_string()))?);
        }
        let Some(engine) = &mut *here else { return Err(broken("missing")) };
        // A fault in the engine fails the script, not the node: no run has an effect of its own.
        match catch_unwind(AssertUnwindSafe(|| run(engine))) {
            Ok(ended) => ended,
            Err(_) => {
                *here = None;
                Err(broken("it panicked"))
            }
        }
    })
}

fn broken(reason: &str) -> Halt {
    Halt::Error(ErrorReply::new(format!("ERR the engine of scripts failed: {reason}").as_bytes()))
}

struct Engine {
    sandbox: Sandbox,
    current: Shared,
    compiled: HashMap<Vec<u8>, Compiled>,
    compiled_len: usize,
    used: u64,
    /// Bytes in use after the last collection.
    quiet: usize,
}

#[derive(Clone)]
struct Compiled {
    function: Function,
    flags: Flags,
    digest: Rc<str>,
    used: u64,
}

impl Engine {
    fn new() -> mlua::Result<Engine> {
        let current: Shared = Rc::default();
        let sandbox = Sandbox::new(&current)?;
        let quiet = sandbox.lua.used_memory();
        let compiled = HashMap::new();
        Ok(Engine { sandbox, current, compiled, compiled_len: 0, used: 0, quiet })
    }

    fn run(&mut self, call: &ScriptCall<'_>, space: &mut Space) -> Result<Reply, Halt> {
        let is_known = self.compiled.contains_key(call.source);
        if !is_known && space.budget().is_short() && !source::compiles_soon(call.source) {
            return Err(Halt::TooLong);
        }
        let script = self.compile(call.source)?;
        check_flags(script.flags, call, space)?;
        let ended = self.execute(&script, call, space);
        if ended.is_err() || self.current.borrow().is_spoilt {
            self.forget(call.source);
        }
        self.collect();
        ended
    }

    fn execute(
        &mut self,
        script: &Compiled,
        call: &ScriptCall<'_>,
        space: &mut Space,
    ) -> Result<Reply, Halt> {
        let lua = &self.sandbox.lua;
        let memory = lua.used_memory();
        let limit = memory + space.budget().memory;
        let interpreter = space.interpreter();
        let clock = space.clock();
        let taken = std::mem::replace(space, Space::new(&interpreter, clock));
        let mut current = Current::of(taken, memory);
        let is_declared = script.flags.is_declared;
        current.is_read_only = call.is_read_only || is_declared && script.flags.no_writes;
        current.allows_growth = is_declared && script.flags.allow_oom;
        current.replace = self.current.borrow_mut().replace.take();
        *self.current.borrow_mut() = current;
        let ran = lua.set_memory_limit(limit).and_then(|_| self.enter(script, call));
        let cleared = lua.set_memory_limit(0).and_then(|_| self.sandbox.tidy.call::<()>(()));
        let (halt, place) = {
            let mut current = self.current.borrow_mut();
            if let Some(found) = current.space.take() {
                *space = found;
                space.spend(current.spent());
            }
            if matches!(ran, Err(mlua::Error::MemoryError(_))) {
                current.exceed_memory();
            }
            (current.halt.take(), current.place.take())
        };
        if let Some(halt) = halt {
            return Err(with_place(halt, &script.digest, place));
        }
        match ran.and_then(|reply| cleared.map(|()| reply)) {
            Ok(reply) => Ok(as_c_text(reply)),
            Err(error) => Err(broken(&error.to_string())),
        }
    }

    fn enter(&self, script: &Compiled, call: &ScriptCall<'_>) -> mlua::Result<Reply> {
        let Sandbox { lua, globals, run, .. } = &self.sandbox;
        for (name, words) in [("KEYS", call.keys), ("ARGV", call.args)] {
            let table = lua.create_table_with_capacity(words.len(), 0)?;
            for (at, word) in words.iter().enumerate() {
                table.raw_set(at + 1, lua.create_string(word)?)?;
                // Lua finds words with one hash slowly.
                if (at + 1) % WORDS == 0 && self.current.borrow_mut().look(lua.used_memory()) {
                    return Err(crate::raise::halt());
                }
            }
            globals.raw_set(name, table)?;
        }
        self.current.borrow_mut().look(lua.used_memory());
        let every = self.current.borrow().every;
        sandbox::count_instructions(lua, &self.current, every)?;
        let (is_done, value): (bool, Value) = run.call(&script.function)?;
        if !is_done {
            return self.failure(&value, &script.digest);
        }
        let resp3 = self.current.borrow().resp3;
        let reply = convert::to_reply(&value, resp3)?;
        Ok(reply.unwrap_or_else(|| commands::errors::REPLIES_TOO_LARGE.into()))
    }

    /// The reply to a script that raised an error.
    fn failure(&self, error: &Value, digest: &str) -> mlua::Result<Reply> {
        let Value::Table(table) = error else {
            // No handler ran: the memory or the run is over.
            let lua = &self.sandbox.lua;
            let error = crate::redis_api::caught(lua, &self.current, error.clone(), true);
            let text = error.ok().and_then(|value| crate::arguments::text(&value));
            let text = text.unwrap_or_else(|| b"execution failure".to_vec());
            let text = [b"ERR Error running script ", digest.as_bytes(), b", ", &text].concat();
            return Ok(Reply::error(text));
        };
        let text = |name: &str| -> mlua::Result<Option<Vec<u8>>> {
            Ok(crate::arguments::text(&table.raw_get(name)?))
        };
        let mut reply = text("err")?.unwrap_or_else(|| b"ERR unknown error".to_vec());
        if let (Some(source), Some(line)) = (text("source")?, text("line")?) {
            for part in [b" script: ", digest.as_bytes(), b", on ", &source, b":", &line, b"."] {
                reply.extend_from_slice(part);
            }
        }
        Ok(Reply::Error(ErrorReply::new(&reply).text().clone()))
    }

    fn compile(&mut self, source: &[u8]) -> Result<Compiled, ErrorReply> {
        self.used += 1;
        if let Some(compiled) = self.compiled.get_mut(source) {
            compiled.used = self.used;
            return Ok(compiled.clone());
        }
        if !source::compiles(source) {
            return Err(error(&format!("Error compiling script (new function): {TOO_MANY_JUMPS}")));
        }
        let (flags, len) = shebang::parse(source).map_err(|text| error(&text))?;
        let function = sandbox::compile(&self.sandbox.lua, &source[len..]).map_err(|it| {
            let text = match it {
                mlua::Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            };
            error(&format!("Error compiling script (new function): {text}"))
        })?;
        let digest = hex_digest(source).into();
        let compiled = Compiled { function, flags, digest, used: self.used };
        self.keep(source, compiled.clone());
        Ok(compiled)
    }

    fn keep(&mut self, source: &[u8], compiled: Compiled) {
        self.compiled_len += source.len();
        self.compiled.insert(source.to_vec(), compiled);
        while self.compiled.len() > COMPILED_MAX || self.compiled_len > COMPILED_LEN_MAX {
            let oldest = self.compiled.iter().min_by_key(|(_, it)| it.used);
            let Some(oldest) = oldest.map(|(source, _)| source.clone()) else { return };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, source: &[u8]) {
        if self.compiled.remove(source).is_some() {
            self.compiled_len -= source.len();
        }
    }

    /// Frees the garbage of the run, if it is much.
    fn collect(&mut self) {
        let lua = &self.sandbox.lua;
        if lua.used_memory() > self.quiet + GARBAGE_MAX {
            // Without finalizers a collection raises no error.
            let _ = lua.gc_collect();
            self.quiet = lua.used_memory();
        }
    }
}

fn check_flags(flags: Flags, call: &ScriptCall<'_>, space: &Space) -> Result<(), ErrorReply> {
    if !flags.is_declared || flags.no_writes {
        return Ok(());
    }
    if call.is_read_only {
        return Err(error("Can not execute a script with write flag using *_ro command."));
    }
    if space.permission().shortage != Shortage::None && !flags.allow_oom {
        return Err(ErrorReply::new(
            b"OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
        ));
    }
    Ok(())
}

fn error(text: &str) -> ErrorReply {
    ErrorReply::new(format!("ERR {text}").as_bytes())
}

/// The error of a killed script, with its digest and its place.
fn with_place(halt: Halt, digest: &str, place: Option<(String, usize)>) -> Halt {
    match halt {
        Halt::Error(error) => {
            let on = place.map(|(source, line)| format!(", on {source}:{line}."));
            let on = on.unwrap_or_default();
            let text = [error.text(), &b" script: "[..], digest.as_bytes(), on.as_bytes()];
            let text = text.concat();
            Halt::Error(ErrorReply::new(&text))
        }
        halt => halt,
    }
}

/// An error text ends at its first zero byte. So no script can answer with a private error.
fn as_c_text(reply: Reply) -> Reply {
    match reply {
        Reply::Error(text) => {
            let len = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
            Reply::Error(if len == 0 { "ERR".into() } else { text.slice(..len) })
        }
        reply => reply,
    }
}
