//! Floor 2: replication protocols as pure functions.
//!
//! A step maps (register, input, now) to (register, effects).
//!
//! Start with [`protocol`]: the trait that every protocol implements, its events and its effects.
//! Each protocol has a folder, named as on the command line. Its `mod.rs` introduces it.

pub mod abd;
pub mod caspaxos;
pub mod classic_paxos;
pub mod configured;
pub mod craq;
pub mod effects;
mod explaining;
pub mod group;
pub mod hermes;
pub mod mutation;
pub mod peers;
pub mod protocol;
pub mod quorum;
pub mod register_cache;
pub mod replica_sets;
pub mod replicas;
pub mod request;
pub mod rmwpaxos;
#[cfg(test)]
mod tests;
pub mod toolkit;
pub mod uptime;
pub mod zab;

pub use effects::{Effects, Scan, Send, TimerId, Violation};
pub use group::{GroupEvent, GroupReport, Lease, Leases, NoLeases};
pub use peers::{Member, Pace, Peers};
pub use protocol::{
    Consistency, Context, Env, Event, Message, Peer, Properties, Protocol, Request, Scanned,
    ScannedRegister, Scope, Stats, Touches,
};
pub use quorum::{Acks, Tally};
pub use register_cache::{Absence, CachedRegister, Metas, Parting, RegisterCache, WARMED, Weight};
pub use replica_sets::ReplicaSets;
pub use replicas::{MemberIndex, Places, ReplicaSet, Replicas};
pub use request::PutAside;
pub use uptime::Uptime;
