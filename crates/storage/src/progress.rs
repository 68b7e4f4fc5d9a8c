//! What an offline check says while it goes on.

/// How far a check has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

/// Something that a check says; `B` is what it calls a bad place.
#[derive(Debug)]
pub enum Note<'a, B> {
    Progress(Progress),
    /// One more bad place. A report keeps the first of them only.
    Bad(&'a B),
}
