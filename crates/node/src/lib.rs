//! Workers, turns, timers, routing.
