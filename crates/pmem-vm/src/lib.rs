//! The store on real DAX: a guest with an emulated NVDIMM, and its power cut in the middle of writes.
//!
//! One program plays two parts. On the host ([`host`]) it makes a small initramfs, boots it under qemu, hears over
//! a serial line what was acknowledged, kills qemu at a random moment and boots again. In the guest ([`guest`]) it
//! runs the media's checks and three nodes of the release build on ext4 mounted with `-o dax`, reads every key and
//! writes on. [`operation`] is what both know without talking; [`said`] is what the guest says; [`ledger`] holds
//! what was read after a cut against what had been acknowledged before it.
//!
//! Emulation has no cache: a missing flush is invisible here, and is the crash states' task in `crates/storage`.

pub mod guest;
pub mod host;
pub mod ledger;
pub mod operation;
pub mod said;
