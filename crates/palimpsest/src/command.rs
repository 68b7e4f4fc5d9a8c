//! Subcommands.

mod admin_port;
pub(crate) mod bench;
pub(crate) mod dev;
pub(crate) mod group;
pub(crate) mod pages;
pub(crate) mod reset;
pub(crate) mod serve;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod verify;
pub(crate) mod version;
