//! Lanes: the threads that read sources at their deadlines, and the grid that the deadlines lie on.

mod active_source;
mod channels;
mod fast;
mod futex_timer;
mod schedule;
mod series_progress;

pub use active_source::{ActiveSource, Cost, Group, SourceId, SourceKey};
pub use channels::{Channels, Command, EventRecord, Notice, SampleBatch, SourceReport, UserValue};
pub use fast::Sampler;
pub use schedule::{Due, Schedule};
pub use series_progress::SeriesProgress;
