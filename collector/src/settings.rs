//! The settings that can change at runtime.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::config::CollectorConfig;
use crate::ingest::TimeRange;

/// The settings that each writer reads before each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The value of [`CollectorConfig::commit_interval`].
    pub(crate) commit_interval: Duration,
    /// The value of [`CollectorConfig::commit_rows`].
    pub(crate) commit_rows: usize,
    /// The value of [`CollectorConfig::session_timeout`].
    pub(crate) session_timeout: Duration,
    /// The value of [`CollectorConfig::clock`], with a greatest age that is not above the retention of
    /// samples.
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

/// The settings in force, shared by all threads.
#[derive(Debug, Clone)]
pub(crate) struct SharedSettings(Arc<RwLock<Settings>>);

impl SharedSettings {
    pub(crate) fn new(config: &CollectorConfig) -> Self {
        Self(Arc::new(RwLock::new(config.into())))
    }

    pub(crate) fn get(&self) -> Settings {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, config: &CollectorConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config.into();
    }
}

/// Returns the keys whose values differ between `running` and `wanted`, and that require a restart.
pub(crate) fn fixed_changes(running: &CollectorConfig, wanted: &CollectorConfig) -> Vec<&'static str> {
    // Every field is listed, so that the compiler reports a new one here.
    let CollectorConfig {
        listen,
        store,
        timescaledb,
        citus,
        writers,
        commit_interval: _,
        commit_rows: _,
        session_timeout: _,
        clock: _,
        retention: _,
        control,
        keys,
        bind_node_to_key,
        metrics_listen,
        log_level: _,
        log_format: _,
        sinks,
        remote_write,
        job_end,
        api,
        collector_id: _,
    } = wanted;
    let key = |of: &CollectorConfig| of.keys.as_ref().map(|keys| keys.key.clone());
    let agents = |of: &CollectorConfig| of.keys.as_ref().map(|keys| keys.authorised_agents.clone());
    let network = |of: &CollectorConfig| of.control.network.clone();
    let changes = [
        ("listen", *listen != running.listen),
        ("store", *store != running.store),
        ("timescaledb", *timescaledb != running.timescaledb),
        ("citus", *citus != running.citus),
        ("writers", *writers != running.writers),
        ("control_socket", control.socket != running.control.socket),
        ("scheduler_user", control.scheduler_user != running.control.scheduler_user),
        ("administrators", control.administrators != running.control.administrators),
        ("control_listen, auth, unmunge_path, munge_socket", network(wanted) != network(running)),
        ("key", key(wanted) != key(running)),
        ("authorised_agents", keys.is_some() && agents(wanted) != agents(running)),
        ("bind_node_to_key", *bind_node_to_key != running.bind_node_to_key),
        ("sinks", *sinks != running.sinks),
        ("[remote_write]", *remote_write != running.remote_write),
        ("[job_end]", *job_end != running.job_end),
        ("[api]", *api != running.api),
        ("metrics_listen", *metrics_listen != running.metrics_listen),
    ];
    changes.into_iter().filter(|(_, is_changed)| *is_changed).map(|(key, _)| key).collect()
}
