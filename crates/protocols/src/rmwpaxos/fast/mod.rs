//! Shorter ways than two round trips with whole states.

pub(crate) mod combined;
