//! The persistent-memory medium against a plain map: restarts, crashes in a modelled cache, damage.

mod crash;
mod damage;
mod file;
mod map;
mod scrub;
mod space;
mod support;
mod turns;
mod variants;
