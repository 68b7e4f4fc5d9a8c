//! The rules of a worker, each with a toy protocol over a scripted store.

mod census;
mod effects;
mod eviction;
mod frames;
mod loss;
mod register_cache;
mod rest;
mod scans;
mod store;
mod toy;
mod world;
