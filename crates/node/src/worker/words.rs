//! Words that the workers of a node share: one per keyspace, for its protocol.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use types::Database;
use types::limits::SPACES;

/// See [`protocols::Env::shared`]. Clones share the words.
#[derive(Clone, Debug)]
pub struct Words(Arc<[Arc<AtomicU64>]>);

impl Default for Words {
    fn default() -> Words {
        Words((0..SPACES).map(|_| Arc::default()).collect())
    }
}

impl Words {
    pub(super) fn of(&self, database: Database) -> Arc<AtomicU64> {
        Arc::clone(&self.0[usize::from(database.0)])
    }
}
