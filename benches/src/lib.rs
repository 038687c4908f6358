//! Shared code of the benchmarks and experiments: recorded frames, jobs in real cgroups, running programs and
//! stores, statistics.

pub mod agent;
pub mod bare;
pub mod clock;
pub mod collector;
pub mod delivery;
pub mod histogram;
pub mod job;
pub mod journal;
pub mod laid_out;
pub mod load;
pub mod machine;
pub mod mock;
pub mod paced;
pub mod plan;
pub mod plot;
pub mod process;
pub mod recording;
pub mod relay;
pub mod statistics;
pub mod store;
pub mod sums;
pub mod supervised;
pub mod table;
pub mod tool;
