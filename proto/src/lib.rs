//! Polymeter's vocabulary: names, units, the metric catalogue, samples, batches, frames and messages.
//!
//! Nothing here sees a file, a socket or a clock. Data flows from a [`batch::Batch`], which the agent's sampler fills,
//! through [`wire::frame`] to the collector.

pub mod batch;
pub mod catalogue;
pub mod control;
pub mod endpoint;
pub mod key;
pub mod ledger;
pub mod limits;
pub mod name;
pub mod period;
pub mod series;
pub mod text;
pub mod wire;
