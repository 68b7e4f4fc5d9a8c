//! Commands that show the activity of this node's clients. Sessions execute them.

use crate::spec::Flag::{self, Admin, Loading, NoScript, Stale};

crate::module::modules! {
    latency,
    monitor,
    slowlog,
}

const LOCAL: &[Flag] = &[Loading, Stale];
const LOCAL_ADMIN: &[Flag] = &[Admin, NoScript, Loading, Stale];
const ON_ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];
