//! Commands on keys whatever their type: deleting, asking for them, and their time to live.

pub(crate) mod expire;
pub(crate) mod inspect;
pub(crate) mod key;
pub(crate) mod time_left;
