//! Commands that are safe to repeat: the table in a state, and how long its entries count.

pub(crate) mod starts;
pub(crate) mod table;
pub(crate) mod window;
