//! The first byte of a message.

pub(crate) const READ: u8 = 1;
pub(crate) const STATE: u8 = 2;
pub(crate) const PREPARE: u8 = 3;
pub(crate) const PROMISE: u8 = 4;
pub(crate) const ACCEPT: u8 = 5;
pub(crate) const ACCEPTED: u8 = 6;
pub(crate) const NACK: u8 = 7;
pub(crate) const REPAIR: u8 = 8;
pub(crate) const REMOVE: u8 = 9;
pub(crate) const FORWARD: u8 = 10;
pub(crate) const FORWARDED: u8 = 11;
pub(crate) const RECOVER: u8 = 12;
pub(crate) const RECOVERED: u8 = 13;
pub(crate) const LIST: u8 = 14;
pub(crate) const LISTED: u8 = 15;
pub(crate) const ACCEPT_DELTA: u8 = 16;
pub(crate) const NEED_FULL: u8 = 17;
pub(crate) const CHOSEN: u8 = 18;
pub(crate) const COMPARE: u8 = 19;
pub(crate) const COMPARED: u8 = 20;
pub(crate) const WANT: u8 = 21;
pub(crate) const PREPARE_ACCEPT: u8 = 22;
pub(crate) const PREPARE_ACCEPT_DELTA: u8 = 23;
pub(crate) const OLDER: u8 = 24;
pub(crate) const OLDER_FLOOR: u8 = 25;
