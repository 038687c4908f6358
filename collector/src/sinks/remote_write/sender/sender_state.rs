//! State that all shards share: the version of the protocol, counters, and the log.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use polymeter_service::clock::Clock;
use polymeter_service::log_throttle::LogThrottle;
use tracing::{info, warn};

use super::outcome::Negotiation;
use crate::limits;
use crate::sinks::remote_write::config::{Protocol, RemoteWriteConfig};
use crate::sinks::remote_write::counters::Counters;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Arc<RemoteWriteConfig>,
    pub(super) counters: Counters,
    /// Holds a [`Negotiation`].
    negotiation: AtomicU8,
    throttle: Mutex<LogThrottle>,
    pub(super) clock: Clock,
}

impl Shared {
    pub(super) fn new(config: Arc<RemoteWriteConfig>, counters: Counters, clock: Clock) -> Self {
        let negotiation = match config.protocol {
            Protocol::Auto => Negotiation::Trying,
            Protocol::V1 => Negotiation::V1,
            Protocol::V2 => Negotiation::V2,
            Protocol::Influx => Negotiation::Lines,
        };
        Self {
            config,
            counters,
            negotiation: AtomicU8::new(negotiation as u8),
            throttle: Mutex::new(LogThrottle::new(limits::SINK_LOG_INTERVAL, limits::SINK_LOG_LINES)),
            clock,
        }
    }

    pub(super) fn negotiation(&self) -> Negotiation {
        match self.negotiation.load(Ordering::Relaxed) {
            1 => Negotiation::V1,
            2 => Negotiation::V2,
            4 => Negotiation::Lines,
            _ => Negotiation::Trying,
        }
    }

    /// All shards talk to the same receiver, so that the first answer decides.
    pub(super) fn agree(&self, on: Negotiation) {
        let before = self.negotiation.swap(on as u8, Ordering::Relaxed);
        if before != on as u8 {
            let version = if on == Negotiation::V1 { "1.0" } else { "2.0" };
            info!(url = %self.config.url, version, "remote_write: the receiver accepts this version");
        }
    }

    /// Returns true if a message of this kind may be logged now.
    pub(super) fn allows(&self, key: &str) -> bool {
        let now = self.clock.now().since_start;
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner).allows(key, now)
    }

    pub(super) fn warn(&self, key: &str, message: &str, error: &str) {
        if self.allows(key) {
            warn!(error, url = %self.config.url, "{message}");
        }
    }
}
