//! Transactions. Sessions refuse them so far, and run no part of one.

use crate::spec::Flag::{self, AllowBusy, Fast, Loading, NoScript, Stale};

crate::module::modules! {
    multi,
    watch,
}

const LOCAL: &[Flag] = &[NoScript, Loading, Stale, Fast, AllowBusy];
