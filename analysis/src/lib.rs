//! Polymeter's analysis of stored jobs: the computation of reports, without their presentation.
//!
//! The invariant: nothing here writes to a terminal or a file, and nothing changes a store.

pub mod advice;
pub mod array;
pub mod breakdown;
mod buckets;
mod carbon;
mod change_points;
pub mod charts;
pub mod command_totals;
pub mod compare;
mod cumulative;
pub mod curve;
pub mod derived;
pub mod device_text;
mod devices;
pub mod distributions;
pub mod downsample;
mod energy;
mod energy_sources;
pub mod energy_text;
pub mod expression;
pub mod firings;
pub mod gather;
mod gauge_course;
mod hardware;
mod history;
pub mod job_usage;
pub mod jobstats;
mod kept;
mod measuring;
pub mod meters;
pub mod model;
mod node_counters;
mod outcome;
pub mod phases;
pub mod plan_fold;
pub mod proposals;
pub mod rates;
pub mod receipt;
mod reconcile;
pub mod regions;
mod resolution;
pub mod resources;
pub mod runs;
mod series;
pub mod stacks;
pub mod statistics;
#[cfg(test)]
mod testing;
mod traffic;
pub mod trend;
