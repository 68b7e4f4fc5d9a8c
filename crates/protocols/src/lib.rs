//! The sans-IO family of replication protocols.
