//! Registered metrics and their exposition.

use std::sync::{Mutex, PoisonError};

use prometheus_client::registry::{Metric, Registry, Unit};

const PREFIX: &str = "polymeter_collector";

#[derive(Debug)]
pub(super) struct Page(Mutex<Registry>);

impl Default for Page {
    fn default() -> Self {
        Self(Mutex::new(Registry::with_prefix(PREFIX)))
    }
}

impl Page {
    pub(super) fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).register(name, help, metric);
    }

    pub(super) fn register_with_unit(&self, name: &str, help: &str, unit: Unit, metric: impl Metric) {
        let mut registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register_with_unit(name, help, unit, metric);
    }

    /// OpenMetrics text, version 1.0.0.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        let registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string cannot fail.
        prometheus_client::encoding::text::encode(&mut text, &registry).ok();
        text
    }
}
