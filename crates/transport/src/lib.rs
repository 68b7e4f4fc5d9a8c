//! Frames and links between nodes.
