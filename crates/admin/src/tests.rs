//! The admin port over a real node and a real socket.

mod limits;
mod pages;
mod support;
