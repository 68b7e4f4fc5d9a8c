//! Commands on keys of any type, and on the keyspace.

mod time;

crate::module::modules! {
    del,
    exists,
    expire,
    key_explain,
    keys_by_pattern,
    object,
    once,
    persist,
    randomkey,
    scan,
    ttl,
    type_name,
    wait,
}
