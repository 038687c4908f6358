//! Agent's configuration, `agent.toml`.

mod device_tables;
mod file;
mod key_settings;
mod model;
mod node_lines;
mod openmetrics;
mod rules;
mod trigger_tables;
mod value_parsers;

pub use model::{AgentConfig, DEFAULT_COLLECTOR, DEFAULT_PATH, EXAMPLE, HEAD, Hindsight, KEYS, Limits};
pub use openmetrics::{OpenMetricsConfig, PageAddress};
pub use rules::{InvalidRule, rule};
pub use value_parsers::{CollectorOrder, InvalidValue, JobVisibility, endpoint};
