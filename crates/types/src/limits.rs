//! Stated maxima. Every queue, loop and buffer above is bounded by one of these.

/// Members of a configuration.
pub const MEMBERS_MAX: usize = 9;

/// Databases of a node.
pub const DATABASES: usize = 16;

/// Bytes of a key.
pub const KEY_LEN_MAX: usize = 64 * 1024;

/// Default bytes of one key's value (`max-value-size`).
pub const VALUE_LEN_DEFAULT: usize = 1024 * 1024;

/// Bytes of an encoded record: the largest value, its key and its header.
pub const RECORD_LEN_MAX: usize = 16 * 1024 * 1024 + KEY_LEN_MAX + 1024;
