//! Settings that can change at runtime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::config::CollectorConfig;
use crate::ingest::TimeRange;
use crate::limits;

/// Settings that each writer reads before each message. Named as in [`CollectorConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) commit_interval: Duration,
    pub(crate) commit_rows: usize,
    pub(crate) session_timeout: Duration,
    /// Greatest age not above the retention of samples.
    pub(crate) clock: TimeRange,
}

impl From<&CollectorConfig> for Settings {
    fn from(config: &CollectorConfig) -> Self {
        let CollectorConfig { commit_interval, commit_rows, session_timeout, mut clock, retention, .. } =
            *config;
        // Older samples would be removed at once, and their rollups are final.
        let kept_days = retention.and_then(|retention| retention.samples.days());
        if let Some(days) = kept_days {
            clock.max_age = clock.max_age.min(Duration::from_secs(u64::from(days) * 86_400));
        }
        Self { commit_interval, commit_rows, session_timeout, clock }
    }
}

/// Settings in force for all threads.
#[derive(Debug, Clone)]
pub(crate) struct SharedSettings {
    settings: Arc<RwLock<Settings>>,
    /// Maintenance refuses the clock, by which samples of today may look old.
    is_clock_refused: Arc<AtomicBool>,
}

impl SharedSettings {
    pub(crate) fn new(config: &CollectorConfig) -> Self {
        let settings = Arc::new(RwLock::new(config.into()));
        Self { settings, is_clock_refused: Arc::default() }
    }

    /// Accepts samples of any age while the clock is refused.
    pub(crate) fn get(&self) -> Settings {
        let mut settings = *self.settings.read().unwrap_or_else(PoisonError::into_inner);
        if self.is_clock_refused.load(Ordering::Relaxed) {
            settings.clock.max_age = limits::SAMPLE_DISTANCE_MAX;
        }
        settings
    }

    pub(crate) fn set(&self, config: &CollectorConfig) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = config.into();
    }

    pub(crate) fn set_clock_refused(&self, is_refused: bool) {
        self.is_clock_refused.store(is_refused, Ordering::Relaxed);
    }
}
