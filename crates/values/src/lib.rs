//! Typed states and their bytes.
