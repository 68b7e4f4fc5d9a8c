//! Attacks real processes.
//!
//! Nodes of the release build run in their own network namespaces and serve clients during faults.
//! Faults follow one another in a seeded order: kills, pauses, partitions of every shape, delays,
//! full disks, damaged files and wrong clocks. Afterwards the replies to clients are checked key by
//! key.
//!
//! It needs root and touches only its own namespaces and folders; the host's clock is never set.
//! It does not measure speed. Start reading at [`run`], then [`attack`].

pub mod attack;
pub mod calls;
pub mod catalogue;
pub mod damage;
pub mod detour;
pub mod gaps;
pub mod histories;
pub mod host;
pub mod lab;
pub mod links;
pub mod load;
pub mod lock;
pub mod nodes;
pub mod report;
pub mod run;
pub mod sh;
