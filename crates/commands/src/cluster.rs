//! Commands of cluster clients. Any node serves any key: slots only spread clients over the nodes.

use crate::spec::Flag::{self, Admin, Loading, Stale};

crate::module::modules! {
    asking,
    container,
}

const LOCAL: &[Flag] = &[Stale];
const LOCAL_ADMIN: &[Flag] = &[Admin, Stale];
const ALWAYS: &[Flag] = &[Loading, Stale];
