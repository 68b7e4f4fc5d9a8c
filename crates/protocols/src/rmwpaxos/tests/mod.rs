//! The protocol on its own: engines, a bag of messages and nothing else.
//!
//! `explore` draws schedules at random and lets every rule of the specification be left out in turn; `schedules` plays
//! the adversarial ones by hand. Whole nodes over real storage are the simulator's part.

mod explore;
mod schedules;
mod strings;
mod world;
