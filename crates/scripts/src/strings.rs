//! Functions of the library `string` whose cost Lua does not count.

use mlua::{Lua, MultiValue, Result};

use crate::arguments::Arguments;
use crate::current::Shared;
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
