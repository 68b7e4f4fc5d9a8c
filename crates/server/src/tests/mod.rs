//! Sessions driven with bytes and outcomes: no socket, no clock, no node.

mod cluster_clients;
mod conversations;
mod information;
mod orders;
mod scripts;
mod sentinel_clients;
mod statistics;
mod transactions;
mod walks;
mod watching;
mod world;
