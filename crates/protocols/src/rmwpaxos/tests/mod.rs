//! The protocol on its own: engines, a bag of messages and nothing else.
//!
//! `explore` draws schedules at random; `schedules`, `removal`, `memory`, `contention`, `deltas`,
//! `listings`, `joint` and `pace` play the adversarial ones by hand; `mutations` leaves out every
//! rule of the specification in turn and wants it noticed. Whole nodes over real storage are the
//! simulator's part.

mod absence;
mod contention;
mod converge;
mod deltas;
mod explore;
mod joint;
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
mod world;
