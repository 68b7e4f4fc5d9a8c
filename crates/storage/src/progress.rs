//! Reports of an offline check under way.

/// How far a check has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

/// A report of a check; `B` is its kind of bad place.
#[derive(Debug)]
pub enum Note<'a, B> {
    Progress(Progress),
    /// One more bad place. A report keeps the first of them only.
    Bad(&'a B),
}
