//! The lack of room at a node.

/// Writes that a node refuses while the file system is short of room.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Shortage {
    /// There is enough room.
    #[default]
    None,
    /// Writes that may need more room.
    OfGrowth,
    /// Any write: too much waits for it already.
    OfWrites,
}
