//! Lanes: sources are read at their deadlines, which lie on a grid. In the fast lane the sampler's thread
//! reads; in the slow lane a thread of each source reads, on the sampler's request. Only the sampler records
//! and counts.

mod active_source;
mod channels;
mod cpu_shares;
mod fast;
mod recorder;
mod schedule;
mod series_progress;
mod slow;
mod slow_sources;
mod source_group;
mod window;

pub use active_source::ActiveSource;
pub use channels::{Channels, Command, EventRecord, Notice, SampleBatch, SourceReport};
pub use fast::Sampler;
pub use schedule::{Due, Schedule};
pub use series_progress::SeriesProgress;
pub use source_group::{Group, ReadCost, SourceId, SourceKey, StackRecord, UserValue};

#[cfg(test)]
mod tests;
