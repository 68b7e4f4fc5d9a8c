//! Transactions. Sessions refuse them so far, and run no part of one.

use crate::spec::Flag::{self, AllowBusy, Fast, Loading, NoScript, Stale};

crate::module::modules! {
    line,
    multi,
    watch,
}

pub(crate) use line::Line;

const LOCAL: &[Flag] = &[NoScript, Loading, Stale, Fast, AllowBusy];
