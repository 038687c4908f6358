//! Logging: each event of `tracing` becomes one line on stderr, or one entry of the system's log.
//!
//! A message reads `cannot VERB OBJECT: CAUSE; REMEDY`. The macros' fields `error` and `remedy` are CAUSE and
//! REMEDY; further fields (`job`, `node`, `source`, `path`, ...) follow in brackets:
//!
//! ```
//! # let (error, path) = (std::io::Error::other("disk full"), std::path::Path::new("/s"));
//! tracing::warn!(error = %polymeter_service::log::chain(&error), path = %path.display(), "cannot write to the spool");
//! // polymeter-agent: warning: cannot write to the spool: disk full [path=/s]
//! ```
//!
//! Spans are ignored: the fields of a line are those of its event.

mod chain;
mod filter;
mod format;
mod logger;
pub mod syslog;

pub use self::chain::{chain, root_cause};
pub use self::filter::{FILTER_VARIABLE, Filter, InvalidFilter};
pub use self::format::{Format, UnknownFormat};
pub use self::logger::{configure, filter_of_environment, init, resolve_filter, use_syslog};
pub use self::syslog::Severity;
