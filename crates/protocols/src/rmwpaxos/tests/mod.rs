//! Tests of the protocol alone: engines and a bag of messages.
//!
//! `explore` draws schedules at random, also with the core alone. The other modules play
//! adversarial ones by hand, each for one subject. `mutations` leaves out each rule of the
//! specification in turn and expects a failure. The simulator tests whole nodes over real storage.

mod combined;
mod contention;
mod converge;
mod deltas;
mod double_collect;
mod explore;
mod fences;
mod lingering;
mod listings;
mod locks;
mod memory;
mod mutations;
mod once;
mod pace;
mod presence_conflict;
mod reads_that_change;
mod removal;
mod repair;
mod rollback_detector;
mod schedules;
mod steps;
mod strings;
mod transactions;
mod world;
