//! The store with its threads, seen from inside.

mod roles;
mod without_room;
