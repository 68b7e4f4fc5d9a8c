//! Commands about the connection. Sessions execute them.

use crate::spec::Flag::{self, Admin, AllowBusy, Fast, Loading, NoAuth, NoScript, Stale};

crate::module::modules! {
    auth,
    client,
    echo,
    hello,
    ping,
    quit,
    readonly,
    reset,
    select,
}

/// May be sent before authentication, and works in every state of the connection.
const ALWAYS: &[Flag] = &[NoScript, Loading, Stale, Fast, NoAuth, AllowBusy];
const LOCAL: &[Flag] = &[NoScript, Loading, Stale];
const LOCAL_FAST: &[Flag] = &[Loading, Stale, Fast];
const LOCAL_ADMIN: &[Flag] = &[Admin, NoScript, Loading, Stale];
