//! The `palimpsest` binary.
fn main() {}
