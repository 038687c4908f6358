//! Log messages as whole sentences. Superseded by the macros of `tracing`; see `polymeter_service::log`.

use std::fmt;

use polymeter_proto::text::Unprintable;
pub use polymeter_service::log::chain;

/// Logs a failure that ends the program, or part of its work.
pub fn error(message: impl fmt::Display) {
    tracing::error!("{message}");
}

/// Logs a fault that the collector survives.
pub fn warning(message: impl fmt::Display) {
    tracing::warn!("{message}");
}

/// Logs information without a fault.
pub fn info(message: impl fmt::Display) {
    tracing::info!("{message}");
}

/// Text that came from elsewhere, fit for one line of a log.
pub fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if Unprintable::of(c).is_some() { '?' } else { c }).collect()
}
