//! Configuration of the collector: the command line, the file `collector.toml`, and their combination.
//!
//! All faults are found before anything is opened, and reported together.

mod api;
mod arguments;
mod control;
mod endpoint;
mod federation;
mod file;
mod influx;
mod job_end;
mod model;
mod notices;
mod otlp;
mod outbound;
mod remote_write;
mod retention;
mod security;
mod trigger_tables;
mod value_parsers;

pub use self::arguments::CollectorArguments;
pub use self::endpoint::Endpoint;
pub use self::file::check;
pub use self::model::{CollectorConfig, DEFAULT_LISTEN, DEFAULT_PATH, HEAD, KEYS};
