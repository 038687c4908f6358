//! The overhead experiment, which measures the slowdown of a command while it is sampled: design, order of runs, results.

pub mod design;
pub mod kernel;
pub mod report;
pub mod results;
