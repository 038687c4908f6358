//! The agent's configuration, `agent.toml`.

mod file;
mod key_settings;
mod model;
mod rules;
mod values;

pub use model::{AgentConfig, DEFAULT_COLLECTOR, DEFAULT_PATH, EXAMPLE, HEAD, KEYS, Limits};
pub use rules::{InvalidRule, rule};
pub use values::{CollectorOrder, InvalidValue, JobVisibility, endpoint};
