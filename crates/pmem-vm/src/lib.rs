//! The store on real DAX: a guest with an emulated NVDIMM, and its power cut in the middle of
//! writes.
//!
//! One program plays two parts. The host ([`host`]) builds a small initramfs and boots it under
//! qemu. It hears of acknowledgements over a serial line, kills qemu at a random moment and boots
//! again. The guest ([`guest`]) checks the media and runs three nodes of the release build on ext4
//! with `-o dax`. It reads every key and writes on. Both derive operations from [`operation`], and
//! talk in messages of [`message`]. [`reference_model`] compares reads after a cut with the
//! acknowledgements before it.
//!
//! Emulation has no cache, so a missing flush is invisible here: the crash states of
//! `crates/storage` cover it.

pub mod guest;
pub mod host;
pub mod message;
pub mod operation;
pub mod reference_model;
