//! Polymeter's analysis of stored jobs: the computation of reports, without their presentation.
//!
//! The invariant: nothing here writes to a terminal or a file, and nothing changes a store.

pub mod advice;
pub mod breakdown;
mod buckets;
pub mod curve;
pub mod gather;
mod hardware;
mod history;
pub mod jobstats;
pub mod model;
pub mod phases;
pub mod rates;
mod resolution;
pub mod resources;
mod series;
#[cfg(test)]
mod testing;
