//! The agent's configuration, `agent.toml`.

mod file;
mod key_settings;
mod model;
mod rules;
mod values;

pub use file::Changes;
pub use model::{
    AgentConfig, CollectorOrder, DEFAULT_COLLECTOR, DEFAULT_PATH, EXAMPLE, JobVisibility, Limits,
};
pub use rules::{InvalidRule, rule};
pub use values::{InvalidValue, endpoint};
