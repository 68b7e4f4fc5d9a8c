//! A command's file: its row, and the operations that it sends to registers.

use crate::operation::Handler;
use crate::spec::CommandSpec;

/// All that the table reads from one file: one command, or a family that shares its code.
#[derive(Clone, Copy)]
pub(crate) struct Module {
    pub(crate) rows: &'static [CommandSpec],
    pub(crate) operations: &'static [Handler],
}

/// Declares the files of a folder and lists them for the table. A new command is one name here.
macro_rules! modules {
    ($($module:ident,)*) => {
        $(mod $module;)*
        pub(crate) const MODULES: &[crate::module::Module] = &[$($module::MODULE),*];
    };
}
pub(crate) use modules;
