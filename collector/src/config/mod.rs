//! The collector's configuration: the command line, the file `collector.toml`, and their combination.
//!
//! All faults are found before anything is opened, and reported together.

mod api;
mod arguments;
mod clock;
mod control;
mod endpoint;
mod job_end;
mod model;
mod raw;
mod remote_write;
mod retention;
mod security;
mod values;

pub use self::arguments::CollectorArguments;
pub use self::endpoint::Endpoint;
pub use self::model::{CollectorConfig, DEFAULT_LISTEN, DEFAULT_PATH, DEFAULT_STORE};
pub use self::raw::check;
