//! State that all shards share: the form of requests, counters, and the log.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use polymeter_service::clock::Clock;
use polymeter_service::log_throttle::LogThrottle;
use tracing::{info, warn};

use super::outcome::Negotiation;
use crate::limits;
use crate::sinks::outbound::config::OutboundConfig;
use crate::sinks::outbound::counters::Counters;
use crate::sinks::outbound::protocol::Form;

const TRYING: u8 = 0;
const FORM: u8 = 1;
const FALL_BACK: u8 = 2;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Arc<OutboundConfig>,
    pub(super) counters: Counters,
    /// [`TRYING`], [`FORM`] or [`FALL_BACK`].
    agreed: AtomicU8,
    throttle: Mutex<LogThrottle>,
    pub(super) clock: Clock,
}

impl Shared {
    pub(super) fn new(config: Arc<OutboundConfig>, counters: Counters, clock: Clock) -> Self {
        let agreed = if config.protocol.fall_back.is_some() { TRYING } else { FORM };
        Self {
            config,
            counters,
            agreed: AtomicU8::new(agreed),
            throttle: Mutex::new(LogThrottle::new(limits::SINK_LOG_INTERVAL, limits::SINK_LOG_LINES)),
            clock,
        }
    }

    pub(super) fn negotiation(&self) -> Negotiation {
        let protocol = self.config.protocol;
        let agreed = self.agreed.load(Ordering::Relaxed);
        let other = protocol.fall_back.filter(|_| agreed == FALL_BACK);
        Negotiation { form: other.unwrap_or(protocol.form), is_trying: agreed == TRYING }
    }

    /// The receiver has accepted a request. All shards talk to the same one, so that the first answer decides.
    pub(super) fn confirm(&self) {
        if self.agreed.compare_exchange(TRYING, FORM, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.log_version(self.config.protocol.form);
        }
    }

    pub(super) fn fall_back(&self) {
        let before = self.agreed.swap(FALL_BACK, Ordering::Relaxed);
        if let Some(form) = self.config.protocol.fall_back.filter(|_| before != FALL_BACK) {
            self.log_version(form);
        }
    }

    fn log_version(&self, form: &Form) {
        let (sink, version) = (self.config.protocol.sink, form.version);
        info!(url = %self.config.url, version, "{sink}: the receiver accepts this version");
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
