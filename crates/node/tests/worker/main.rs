//! The rules of a worker, each with a toy protocol over a scripted store.

mod amnesia;
mod census;
mod effects;
mod eviction;
mod frames;
mod register_cache;
mod rest;
mod scans;
mod store;
mod toy;
mod world;
