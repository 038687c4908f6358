//! Sink without a collector, to measure it.

use std::fmt;

use polymeter_service::clock::Clock;
use polymeter_store::StoreUrl;
use polymeter_store::accepted::Accepted;

use super::config::OutboundConfig;
use super::counters::Counters;
use super::outbound_sink::OutboundSink;
use crate::sinks::sink::{AcceptedRows, Sink};

pub struct Standalone {
    sink: OutboundSink,
    counters: Counters,
}

impl fmt::Debug for Standalone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standalone").finish_non_exhaustive()
    }
}

impl Standalone {
    pub fn new(config: OutboundConfig, store: StoreUrl) -> Self {
        let counters = Counters::default();
        Self { sink: OutboundSink::with_counters(config, store, counters.clone(), Clock::start()), counters }
    }

    pub fn accept(&mut self, frames: Vec<Accepted>) -> Result<(), String> {
        self.sink.accept(&AcceptedRows::new(frames)).map_err(|error| error.to_string())
    }

    /// Writes batches that have waited long enough, and updates the metrics.
    pub fn tick(&mut self) {
        self.sink.tick();
    }

    pub fn sent(&self) -> u64 {
        self.counters.sent.get()
    }

    pub fn sent_bytes(&self) -> u64 {
        self.counters.sent_bytes.get()
    }

    pub fn pending(&self) -> i64 {
        self.counters.pending.get()
    }
}
