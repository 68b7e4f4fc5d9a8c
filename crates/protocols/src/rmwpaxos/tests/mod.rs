//! The protocol on its own: engines, a bag of messages and no more.
//!
//! `explore` draws schedules at random, also with the core alone. `schedules`, `removal`, `memory`,
//! `contention`, `deltas`, `listings`, `combined` and `pace` play the adversarial ones by hand.
//! `mutations` leaves out every rule of the specification in turn and wants it noticed. Whole nodes
//! over real storage are the simulator's part.

mod absence;
mod combined;
mod contention;
mod converge;
mod deltas;
mod explore;
mod listings;
mod memory;
mod mutations;
mod older;
mod once;
mod pace;
mod removal;
mod repair;
mod schedules;
mod steps;
mod strings;
mod transactions;
mod world;
