//! Epochs and zxids: names of leaders' terms and of places in the total order.

use std::fmt;

use crate::toolkit::fields::wire_struct;

wire_struct! {
    /// The term of one leader. Two candidates never choose the same one.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub struct Epoch {
        pub counter: u64,
        /// The id of its leader.
        pub node: u64,
    }
}

wire_struct! {
    /// A place in the total order. Indexes go on without a gap from epoch to epoch.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub struct Zxid {
        pub epoch: Epoch,
        pub index: u64,
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}.{}", self.counter, self.node)
    }
}

impl fmt::Debug for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}", self.epoch, self.index)
    }
}
