//! Stated maxima. Every queue, loop and buffer above is bounded by one of these.

use base::Millis;

/// Members of a configuration.
pub const MEMBERS_MAX: usize = 9;

/// Databases of a node.
pub const DATABASES: usize = 16;

/// Number spaces of keys: the users' databases, the system database, and a hidden one beside each.
pub const SPACES: usize = 2 * (DATABASES + 1);

/// Bytes of a key.
pub const KEY_LEN_MAX: usize = 64 * 1024;

/// Default bytes of one key's value (`max-value-size`).
pub const VALUE_LEN_DEFAULT: usize = 1024 * 1024;

/// Bytes of a frame between nodes.
pub const FRAME_LEN_MAX: usize = 64 << 20;

/// Bytes of a command or a reply in a message between nodes. Its frame holds others, too.
pub const SENT_LEN_MAX: usize = FRAME_LEN_MAX - (4 << 20);

/// Keys of one transaction that only reads.
pub const SNAPSHOT_KEYS_MAX: usize = 16_384;

/// Bytes of the values that one transaction reads without locks.
pub const SNAPSHOT_LEN_MAX: usize = 256 << 20;

/// Keys of one transaction.
pub const TRANSACTION_KEYS_MAX: usize = 128;

/// Bytes of the name of a session whose commands are safe to repeat (`ONCE`).
pub const ONCE_SESSION_LEN_MAX: usize = 64;

/// Sessions that a key remembers at a time.
pub const ONCE_ENTRIES_MAX: usize = 64;

/// For how long a command that is safe to repeat is remembered, by default (`once-window`).
pub const ONCE_WINDOW_DEFAULT: Millis = Millis(600_000);

/// How long a command that is safe to repeat may look for a quorum at any node, however long its
/// `request-timeout` is. All nodes know it, so an entry outlives every repeat.
pub const ONCE_TIMEOUT_MAX: Millis = Millis(5_000);

/// Bytes of a reply that is remembered; of a longer one only that the command ran.
pub const ONCE_REPLY_LEN_MAX: usize = 1024;

/// Bytes of one session that a key remembers: its name, its reply and 64 bytes of numbers.
pub const ONCE_ENTRY_LEN_MAX: usize = ONCE_SESSION_LEN_MAX + ONCE_REPLY_LEN_MAX + 64;

/// Bytes of an encoded record: the largest value, its key, its header, and the sessions that it
/// remembers.
pub const RECORD_LEN_MAX: usize =
    16 * 1024 * 1024 + KEY_LEN_MAX + 1024 + ONCE_ENTRIES_MAX * ONCE_ENTRY_LEN_MAX;

/// Bytes of memory that a resident register takes besides its key and value, about.
pub const REGISTER_MEMORY: usize = 280;
