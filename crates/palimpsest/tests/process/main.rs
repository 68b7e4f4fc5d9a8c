//! Real nodes in processes of their own, with real clients, under everything that happens to
//! processes.
//!
//! Every test starts its own cluster on free ports of loopback and waits for conditions, never for
//! a time. Two clusters run at a time, so that two cores are enough. A failing test prints the
//! nodes' logs.

mod admin;
mod clients;
mod connections;
mod countdowns;
mod crashes;
mod deploy;
mod directories;
mod explain;
mod formats;
mod full_disk;
mod groups;
mod hidden;
mod hostile;
mod keyspace;
mod logs;
mod measurements;
mod once;
mod output;
mod partitions;
mod plain_registers;
mod positions;
mod protocols;
mod quorum;
mod scripts;
mod settings;
mod starting;
mod statistics;
mod status;
mod support;
mod surface;
mod transactions;
mod way_in;
