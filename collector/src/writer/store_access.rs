//! A writer's access to its store, which may be unreachable for a while, or be replaced by another one.

use polymeter_service::log::{chain, root_cause};
use polymeter_store::{Store, StoreError};
use tracing::{error, info, warn};

use super::state::Writer;
use crate::limits;

pub(super) enum NotStored {
    /// The collector stops, and the store was not reachable in time.
    GivenUp,
    Refused(StoreError),
    /// The store lacks data that it had: all cached state of it is invalid.
    StoreLost,
}

const RETRYING: &str = "retrying until it succeeds; meanwhile the agents buffer their samples";

const FREE_SPACE: &str = "free space on the disk of the store, or enlarge it (polymeter store shows the growth, [retention] bounds it); \
     retrying until it succeeds; meanwhile the agents buffer their samples";

impl Writer {
    /// Committed frames can still be acknowledged.
    pub(super) fn is_store_there(&mut self) -> bool {
        match self.persist(Store::check) {
            Ok(()) => true,
            Err(NotStored::StoreLost) => {
                self.reset();
                false
            }
            Err(NotStored::GivenUp | NotStored::Refused(_)) => false,
        }
    }

    /// Repeats `operation` while the store is unreachable, but not much longer than a shutdown may take.
    pub(super) fn persist<T>(
        &mut self,
        operation: impl Fn(&mut Store) -> Result<T, StoreError>,
    ) -> Result<T, NotStored> {
        let mut away_since = None;
        // The causes of this outage that are logged: a server may refuse connections first, and be read-only
        // later. One cause can fail different operations, and is logged once.
        let mut logged: Vec<String> = Vec::new();
        let mut pause = limits::RECONNECT.0;
        loop {
            self.links.metrics.store_calls.begin();
            let result = self.attempt(&operation);
            self.links
                .metrics
                .store_calls
                .end(result.as_ref().err().is_none_or(|error| error.is_refusal() || error.is_loss()));
            let error = match result {
                Ok(value) => {
                    self.links.metrics.store_up.set(1);
                    if let Some(since) = away_since {
                        let now = self.clock.now().since_start;
                        let away = now.saturating_sub(since);
                        // The agents were not silent: nothing could be stored.
                        self.silence_counts_from = now + self.settings.session_timeout;
                        info!(
                            "the store is available again after {:.1} s; the collector lost no samples",
                            away.as_secs_f64()
                        );
                    }
                    return Ok(value);
                }
                Err(error) if error.is_refusal() => return Err(NotStored::Refused(error)),
                Err(error) if error.is_loss() => {
                    error!("{}", chain(&error));
                    self.links.metrics.store_failures.inc();
                    return Err(NotStored::StoreLost);
                }
                Err(error) => error,
            };
            self.links.metrics.store_failures.inc();
            self.links.metrics.store_up.set(0);
            let now = self.clock.now().since_start;
            away_since.get_or_insert(now);
            let cause = root_cause(&error).to_string();
            if logged.len() < limits::OUTAGE_ERRORS && !logged.contains(&cause) {
                let remedy = if error.is_disk_full() { FREE_SPACE } else { RETRYING };
                warn!(remedy, "{}", chain(&error));
                logged.push(cause);
            }
            if self
                .shutdown
                .requested_at()
                .is_some_and(|since| now.saturating_sub(since) >= limits::SHUTDOWN_COMMIT)
            {
                warn!(
                    error = "the store did not answer before the shutdown deadline",
                    remedy = "the agents keep unacknowledged frames and send them again",
                    "cannot commit the last frames"
                );
                self.given_up = true;
                return Err(NotStored::GivenUp);
            }
            self.shutdown.wait(pause);
            pause = (pause * 2).min(limits::RECONNECT.1);
        }
    }

    pub(super) fn attempt<T>(
        &mut self,
        operation: impl Fn(&mut Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // After an error the state of the connection is unknown: it is replaced by a new one.
        let mut store = match self.store.take() {
            Some(store) => store,
            None => self.reconnect()?,
        };
        let value = operation(&mut store)?;
        self.store = Some(store);
        Ok(value)
    }

    /// Fails, too, if it is another store, whose cached state is invalid.
    fn reconnect(&mut self) -> Result<Store, StoreError> {
        let now = self.clock.now().since_start;
        let patience_over =
            self.missing_since.is_some_and(|since| now.saturating_sub(since) >= limits::STORE_MISSING);
        let opened = Store::open(&self.config.store, &self.config.open_options(patience_over));
        if matches!(opened, Err(StoreError::Missing { .. })) {
            self.missing_since.get_or_insert(now);
        }
        let store = opened?;
        self.missing_since = None;
        let before = std::mem::replace(&mut self.origin, store.origin());
        if before.is_same(self.origin) {
            return Ok(store);
        }
        let origin = self.origin;
        self.store = Some(store);
        Err(StoreError::Replaced { is_new: origin.is_new() })
    }
}
