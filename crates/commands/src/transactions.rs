//! Transactions: sessions queue their commands.

use crate::spec::Flag::{self, AllowBusy, Fast, Loading, NoScript, Stale};

crate::module::modules! {
    line,
    lines,
    multi,
    traced_lines,
    watch,
}

pub(crate) use line::Line;
pub use lines::{REPLIES_LEN_MAX, lines_on_one_key};
pub use traced_lines::traced_lines_on_one_key;

const LOCAL: &[Flag] = &[NoScript, Loading, Stale, Fast, AllowBusy];
