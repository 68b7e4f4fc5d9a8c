//! Sessions driven with bytes and outcomes: no socket, no clock, no node.

mod conversations;
mod orders;
mod walks;
mod world;
