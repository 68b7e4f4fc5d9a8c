//! The persistent-memory medium against a plain map: restarts, crashes in a modelled cache, damage.

mod crash;
mod damage;
mod file;
mod full;
mod lives;
mod map;
mod rotten;
mod scrub;
mod space;
mod support;
mod turns;
