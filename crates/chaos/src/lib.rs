//! Real processes under attack.
//!
//! Nodes of the release build live in network namespaces of their own and serve clients while faults happen to them,
//! one after another in a seeded order: killed, paused, cut off in every shape, slowed, with full disks, damaged
//! files and wrong clocks. What clients were told is checked key by key afterwards.
//!
//! It needs root and touches nothing outside its own namespaces and folders; the host's clock is never set. It does
//! not measure speed. Start reading at [`run`], then [`attack`].

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
