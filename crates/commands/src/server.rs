//! Commands about the server. Sessions execute most of them.

use crate::spec::Flag::{self, Admin, Loading, NoScript, Stale};

crate::module::modules! {
    command,
    config,
    dbsize,
    flushall,
    info,
    lastsave,
    lolwut,
    memory,
    role,
    time,
}

const LOCAL: &[Flag] = &[Loading, Stale];
const LOCAL_ADMIN: &[Flag] = &[Admin, NoScript, Loading, Stale];
const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
