//! What the benches and experiments share: recorded frames, a job in real cgroups, and a running agent.

pub mod agent;
pub mod job;
pub mod recording;
pub mod table;
