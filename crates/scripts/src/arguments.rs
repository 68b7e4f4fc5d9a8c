//! Arguments of library functions, checked as Lua's own libraries check them.

use std::ops::Deref;

use mlua::{BorrowedBytes, Error, Lua, MultiValue, Value};

use crate::current::Shared;
use crate::number;
use crate::raise;

/// The bytes of an argument.
pub(crate) enum Bytes<'a> {
    Held(BorrowedBytes<'a>),
    Made(Vec<u8>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Held(bytes) => bytes,
            Bytes::Made(bytes) => bytes,
        }
    }
}

/// The arguments of one call.
pub(crate) struct Arguments<'a> {
    pub(crate) lua: &'a Lua,
    pub(crate) function: &'static str,
    pub(crate) values: MultiValue,
}

impl Arguments<'_> {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// An argument, counted from 1; nil if it is missing.
    pub(crate) fn get(&self, number: usize) -> &Value {
        self.values.get(number - 1).unwrap_or(&Value::Nil)
    }

    /// Counts the bytes of an argument: the caller reads them all.
    ///
    /// # Errors
    /// The run is over.
    pub(crate) fn charge(&self, number: usize) -> Result<(), Error> {
        let Value::String(text) = self.get(number) else { return Ok(()) };
        let Some(current) = self.lua.app_data_ref::<Shared>() else { return Ok(()) };
        // Settings are held while their arguments are read.
        let Ok(mut current) = current.try_borrow_mut() else { return Ok(()) };
        if current.spend_bytes(text.as_bytes().len()) { Err(raise::halt()) } else { Ok(()) }
    }

    /// A string without a copy, or a number as text. The caller counts the bytes that it reads.
    pub(crate) fn bytes(&self, number: usize) -> Result<Bytes<'_>, Error> {
        match self.get(number) {
            Value::String(text) => Ok(Bytes::Held(text.as_bytes())),
            other => text(other).map(Bytes::Made).ok_or_else(|| self.unlike(number, "string")),
        }
    }

    /// A string, or a number as text.
    pub(crate) fn string(&self, number: usize) -> Result<Vec<u8>, Error> {
        self.charge(number)?;
        text(self.get(number)).ok_or_else(|| self.unlike(number, "string"))
    }

    /// A number, or a string that is one.
    pub(crate) fn number(&self, number: usize) -> Result<f64, Error> {
        self.charge(number)?;
        numeric(self.get(number)).ok_or_else(|| self.unlike(number, "number"))
    }

    pub(crate) fn integer(&self, number: usize) -> Result<i64, Error> {
        self.number(number).map(number::to_i64)
    }

    pub(crate) fn integer_or(&self, number: usize, default: i64) -> Result<i64, Error> {
        if self.get(number).is_nil() { Ok(default) } else { self.integer(number) }
    }

    /// `bad argument …`
    pub(crate) fn bad(&self, number: usize, message: &str) -> Error {
        raise::argument(self.lua, number, self.function, message)
    }

    pub(crate) fn error(&self, message: impl AsRef<[u8]>) -> Error {
        raise::text(self.lua, message)
    }

    /// Refuses an argument that is no table.
    pub(crate) fn table(&self, number: usize) -> Result<(), Error> {
        let is_table = matches!(self.get(number), Value::Table(_));
        if is_table { Ok(()) } else { Err(self.unlike(number, "table")) }
    }

    fn unlike(&self, number: usize, expected: &str) -> Error {
        let got = match self.values.get(number - 1) {
            None => "no value",
            Some(value) => type_name(value),
        };
        self.bad(number, &format!("{expected} expected, got {got}"))
    }
}

/// The name of a type, as `type` answers it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::LightUserData(_) | Value::UserData(_) | Value::Error(_) => "userdata",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}

/// The bytes of a string, or the text of a number.
pub(crate) fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(_) | Value::Number(_) => {
            let value = numeric(value)?;
            Some(number::general(value, number::LUA_DIGITS).into_bytes())
        }
        _ => None,
    }
}

pub(crate) fn is_text(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Integer(_) | Value::Number(_))
}

/// A number, or a string that is one.
pub(crate) fn numeric(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Number(value) => Some(*value),
        Value::String(text) => {
            let text = text.as_bytes();
            let text = text.trim_ascii();
            let (value, len) = number::prefix(text)?;
            (len == text.len() && len > 0).then_some(value)
        }
        _ => None,
    }
}
