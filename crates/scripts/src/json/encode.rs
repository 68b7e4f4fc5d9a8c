//! `cjson.encode`.

use mlua::{Result, Table, Value};

use super::{DEPTH_MAX, Invalid, Settings};
use crate::arguments::{Arguments, type_name};
use crate::current::Shared;
use crate::message_pack::charge;
use crate::number;
use crate::raise;

/// Bytes after which the budget of the run is looked at.
const CHARGED_LEN: usize = 64 << 10;

struct Encoder<'a> {
    args: &'a Arguments<'a>,
    settings: &'a Settings,
    current: &'a Shared,
    out: Vec<u8>,
    charged: usize,
}

pub(super) fn encode(
    args: &Arguments<'_>,
    settings: &Settings,
    current: &Shared,
) -> Result<Vec<u8>> {
    let mut encoder = Encoder { args, settings, current, out: Vec::new(), charged: 0 };
    encoder.value(args.get(1), 0)?;
    charge(current, encoder.out.len() - encoder.charged)?;
    Ok(encoder.out)
}

impl Encoder<'_> {
    fn fail(&self, value: &Value, reason: &str) -> mlua::Error {
        self.args.error(format!("Cannot serialise {}: {reason}", type_name(value)))
    }

    fn value(&mut self, value: &Value, depth: i64) -> Result<()> {
        let more = if let Value::String(text) = value { text.as_bytes().len() } else { 0 };
        if self.out.len() + more > self.current.borrow().budget().memory {
            self.current.borrow_mut().exceed_memory();
            return Err(raise::halt());
        }
        if self.out.len() - self.charged > CHARGED_LEN {
            charge(self.current, self.out.len() - self.charged)?;
            self.charged = self.out.len();
        }
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => self.number(value)?,
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => {
                self.out.extend_from_slice(b"null");
            }
            Value::Table(table) => {
                let depth = depth + 1;
                if depth > self.settings.encode_depth.min(DEPTH_MAX) {
                    let text = format!("Cannot serialise, excessive nesting ({depth})");
                    return Err(self.args.error(text));
                }
                match self.array_len(table)? {
                    Some(len) if len > 0 => self.array(table, len, depth)?,
                    _ => self.object(table, depth)?,
                }
            }
            other => return Err(self.fail(other, "type not supported")),
        }
        Ok(())
    }

    /// The greatest index of a table that has only indexes as keys.
    fn array_len(&self, table: &Table) -> Result<Option<i64>> {
        let (mut max, mut count, mut is_array) = (0_i32, 0_i64, true);
        for pair in table.pairs::<Value, Value>() {
            let index = match pair?.0 {
                Value::Integer(key) => Some(key as f64),
                Value::Number(key) if key.floor() == key => Some(key),
                _ => None,
            };
            match index.filter(|key| *key >= 1.0) {
                Some(key) => {
                    if key > f64::from(max) {
                        // An index that is no `int` of C becomes the least one.
                        let fits = key <= f64::from(i32::MAX);
                        max = if fits { key as i32 } else { i32::MIN };
                    }
                    count += 1;
                }
                None => {
                    is_array = false;
                    break;
                }
            }
        }
        if !is_array {
            return Ok(None);
        }
        let max = i64::from(max);
        let Settings { converts_sparse, sparse_ratio, sparse_safe, .. } = *self.settings;
        if sparse_ratio > 0 && max > count * sparse_ratio && max > sparse_safe {
            if !converts_sparse {
                let table = Value::Table(table.clone());
                return Err(self.fail(&table, "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok(Some(max))
    }

    fn array(&mut self, table: &Table, len: i64, depth: i64) -> Result<()> {
        self.out.push(b'[');
        for index in 1..=len {
            if index > 1 {
                self.out.push(b',');
            }
            self.value(&table.raw_get(index)?, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: i64) -> Result<()> {
        self.out.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match &key {
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    self.number(&key)?;
                    self.out.extend_from_slice(b"\":");
                }
                Value::String(text) => {
                    self.string(&text.as_bytes());
                    self.out.push(b':');
                }
                other => return Err(self.fail(other, "table key must be a number or string")),
            }
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn number(&mut self, value: &Value) -> Result<()> {
        let number = match value {
            Value::Integer(number) => *number as f64,
            Value::Number(number) => *number,
            _ => 0.0,
        };
        if !number.is_finite() {
            match self.settings.encode_invalid {
                Invalid::Error => return Err(self.fail(value, "must not be NaN or Inf")),
                Invalid::Null => {
                    self.out.extend_from_slice(b"null");
                    return Ok(());
                }
                Invalid::AsTheyAre if number.is_nan() => {
                    self.out.extend_from_slice(b"nan");
                    return Ok(());
                }
                Invalid::AsTheyAre => {}
            }
        }
        let text = number::general(number, self.settings.precision as usize);
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for &byte in text {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                0x08 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0x0c => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                0..0x20 | 0x7f => {
                    self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                }
                byte => self.out.push(byte),
            }
        }
        self.out.push(b'"');
    }
}
