//! The report of a job: its resource usage, its series, and the completeness of its samples.

mod buckets;
pub(crate) mod choice;
pub(crate) mod gather;
mod hardware;
mod history;
pub(crate) mod model;
mod rates;
pub(crate) mod render;
mod resolution;
mod series;
