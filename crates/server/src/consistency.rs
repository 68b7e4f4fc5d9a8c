//! How a connection wants its reads ordered.

use types::Access;

/// The level that `CLIENT CONSISTENCY` chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Consistency {
    /// As the protocol of the database orders reads by itself.
    Local,
    Linearizable,
    /// Any value that a node holds will do.
    Uncommitted,
}

impl Consistency {
    pub fn parse(word: &[u8]) -> Option<Consistency> {
        let levels = [
            ("local", Consistency::Local),
            ("linearizable", Consistency::Linearizable),
            ("uncommitted", Consistency::Uncommitted),
        ];
        let found = levels.iter().find(|level| word.eq_ignore_ascii_case(level.0.as_bytes()));
        found.map(|level| level.1)
    }

    /// The access of a command under this level.
    pub fn of(self, access: Access) -> Access {
        match (self, access) {
            (Consistency::Linearizable, Access::Read) => Access::OrderedRead,
            (Consistency::Uncommitted, Access::Read) => Access::UncommittedRead,
            _ => access,
        }
    }
}
