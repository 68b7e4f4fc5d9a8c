//! Commands on strings: for each, how its arguments are parsed and what it does to a state.

pub(crate) mod compare;
pub(crate) mod expiration;
pub(crate) mod get;
pub(crate) mod increment;
pub(crate) mod range;
pub(crate) mod set;
