//! Floor 1: the words every crate shares.
//!
//! Ids, rounds, keys, commands and outcomes, with their bytes. No algorithm lives here; what a
//! round *permits* is decided by the protocol that uses it.

pub mod command;
pub mod explain;
pub mod features;
pub mod fence;
pub mod group;
pub mod hold;
pub mod id;
pub mod key;
pub mod limits;
pub mod log;
pub mod outcome;
pub mod positions;
pub mod reply;
pub mod round;
pub mod shortage;
mod txid;
pub mod wire;

pub use command::{
    Access, Applied, Change, Clock, Command, ExpiryChange, Once, TimeToLive, Update, View,
};
pub use fence::{Fence, Under};
pub use group::{Configuration, GroupMember, ImageId, Role, Serial};
pub use hold::{Absence, Found, Hold, Lock, Locked, Settle, Take, Then};
pub use id::{AmnesiaCount, Database, Epoch, Incarnation, NodeId, SessionId, Tag, Ticket};
pub use key::{Key, Shard};
pub use log::{LogChanges, LogImage};
pub use outcome::{Outcome, Refusal};
pub use positions::Positions;
pub use reply::{Double, REPLY_DEPTH_MAX, Reply};
pub use round::{Ballot, Round};
pub use shortage::Shortage;
pub use txid::Txid;
pub use wire::{Malformed, Reader, Wire};
