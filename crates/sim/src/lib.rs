//! The deterministic simulator: whole nodes in virtual time, everything from one seed.
//!
//! A run draws a world, a workload and faults from its seed ([`profile`]), plays it in two acts
//! ([`run`]) and judges the clients' results ([`judge`]). It drives the same workers as the server,
//! bit for bit; only time, network and media are simulated. It opens no socket, reads no clock and
//! starts no thread, except that a [`campaign`] spreads seeds over cores.
//!
//! Start reading at [`world`].

pub mod campaign;
pub mod clients;
pub mod clock;
pub mod cuts;
pub mod explore;
pub mod faults;
pub mod injector;
pub mod invariants;
pub mod judge;
pub mod marks;
pub mod medium;
pub mod mutants;
pub mod network;
pub mod profile;
pub mod reference_model;
pub mod resp_connections;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod store;
pub mod trace;
pub mod workload;
pub mod world;

pub use campaign::{Campaign, CampaignReport, campaign};
pub use cuts::Cuts;
pub use faults::{Fault, FaultSet};
pub use medium::MediumKind;
pub use mutants::{Effort, Mutant, mutants};
pub use profile::Speech;
pub use run::{Failure, RunReport, SimConfig, replay, run, validate};
pub use scenario::Scenario;
pub use shrink::shrink;
pub use store::Durability;
pub use workload::mix::Mix;
