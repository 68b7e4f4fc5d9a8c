//! RESP sessions over a node.
