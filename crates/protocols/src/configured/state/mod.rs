//! The state of each part of the frame. The parts' steps are beside this folder.

pub(crate) mod copying;
pub(crate) mod erasing;
pub(crate) mod explanations;
pub(crate) mod gate;
pub(crate) mod link;
pub(crate) mod listings;
pub(crate) mod parked;
pub(crate) mod passing;
