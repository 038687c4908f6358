//! Polymeter's data model and protocol: names, units, the metric catalogue, samples, batches, frames and
//! messages.
//!
//! Nothing here accesses a file, a socket or a clock. Data flow from a [`batch::Batch`], which the agent's
//! sampler fills, through [`wire::frame`] to the collector.

pub mod batch;
pub mod catalogue;
pub mod control;
pub mod endpoint;
pub mod exposition;
pub mod histogram;
pub mod key;
pub mod ledger;
pub mod limits;
pub mod name;
pub mod node_list;
pub mod period;
pub mod read;
pub mod run;
pub mod series;
pub mod stacks;
pub mod step_level;
pub mod suggest;
pub mod text;
pub mod trigger;
pub mod units;
pub mod window;
pub mod wire;
