//! Ids as newtypes, so that no two of them can be confused.

use std::fmt;

use crate::limits::{DATABASES, SPACES};

const _: () = assert!(Database::SYSTEM.hidden().0 as usize + 1 == SPACES);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A node's configured id, 1 to 65535.
    NodeId(u16), "n"
);
id!(
    /// Which start of a node's process this is: durably raised before the first message of every
    /// start. 24 bits.
    Incarnation(u32), "i"
);
id!(
    /// How often a node has lost acceptor state. Acknowledgements from before an amnesia are void.
    /// 24 bits.
    AmnesiaCount(u32), "l"
);
id!(
    /// Number of a membership, counted up by reconfiguration. 20 bits.
    Epoch(u32), "e"
);
id!(
    /// Number of a keyspace with its own protocol and durability. Users select 0 to 15; the others
    /// are [`Database::SYSTEM`] and hidden ones, below [`SPACES`] in all.
    Database(u8), "db"
);
id!(
    /// One client connection on one node. Operations of one session on one key keep their order.
    SessionId(u64), "s"
);
id!(
    /// Names a request of this process start; an outcome carries it back.
    Tag(u64), "t"
);
id!(
    /// A point in the order of a worker's persisted changes. `Ticket(0)` is durable from the start.
    Ticket(u64), "k"
);

impl Database {
    /// Holds registers of the node's own code. Users never see it.
    pub const SYSTEM: Database = Database(DATABASES as u8);

    /// The keyspace beside this database for records about its keys, which users never see. It has
    /// the database's shards, replicas, durability and protocol.
    ///
    /// # Panics
    /// If this is one already.
    #[must_use]
    pub const fn hidden(self) -> Database {
        assert!(self.0 as usize <= DATABASES, "a hidden keyspace has none beside it");
        Database(self.0 + DATABASES as u8 + 1)
    }

    /// The keyspace that this hidden one is beside.
    #[must_use]
    pub const fn beside(self) -> Option<Database> {
        if self.is_hidden() { Some(Database(self.0 - DATABASES as u8 - 1)) } else { None }
    }

    /// True for a keyspace beside another one.
    #[must_use]
    pub const fn is_hidden(self) -> bool {
        self.0 as usize > DATABASES
    }

    /// True for a database that users may select.
    #[must_use]
    pub const fn is_of_users(self) -> bool {
        (self.0 as usize) < DATABASES
    }
}

impl Incarnation {
    pub const MAX: Incarnation = Incarnation((1 << 24) - 1);
}

impl AmnesiaCount {
    pub const MAX: AmnesiaCount = AmnesiaCount((1 << 24) - 1);
}

impl Epoch {
    pub const MAX: Epoch = Epoch((1 << 20) - 1);
}

impl Ticket {
    /// Durable from the start: it needs no waiting.
    pub const DURABLE: Ticket = Ticket(0);
}
