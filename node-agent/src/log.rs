//! Log messages as whole sentences. Superseded by the macros of `tracing`; see `polymeter_service::log`.

pub use polymeter_service::log::{Severity as Priority, chain, syslog::send as syslog};

/// Logs information without a fault.
pub fn info(message: &str) {
    tracing::info!("{message}");
}

/// Logs a fault that the agent survives.
pub fn warning(message: &str) {
    tracing::warn!("{message}");
}

/// Logs a failure that ends the agent.
pub fn error(message: &str) {
    tracing::error!("{message}");
}
