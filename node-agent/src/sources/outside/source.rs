//! Source of one device.

use std::sync::Arc;

use super::device::{Device, KnownValues};
use crate::sources::custom_source::CustomSource;
use crate::sources::outcome::Outcome;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use crate::sources::unknown_lines::UnknownLines;

/// Twice the time between two looks of a source without values for them.
const SEARCH_GAP_NS: u64 = 4_000_000_000;

/// Twice the time between two looks for what a device has sent.
const DRAIN_GAP_NS: u64 = 2_000_000_000;

#[derive(Debug)]
pub(in crate::sources) struct DeviceSource {
    device: Arc<Device>,
    known: KnownValues,
}

impl DeviceSource {
    pub(in crate::sources) fn new(device: &Arc<Device>, known: KnownValues) -> Self {
        Self { device: Arc::clone(device), known }
    }
}

impl CustomSource for DeviceSource {
    fn slots(&self) -> &[Slot] {
        &self.known.slots
    }

    fn shared_slots(&self) -> Arc<[Slot]> {
        Arc::clone(&self.known.slots)
    }

    /// The metrics of a device have periods of their own, and each value may cost a request.
    fn reads_wanted_only(&self) -> bool {
        true
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let outcome = self.device.read(&self.known.places, reading);
        if outcome.has_values() {
            self.device.search();
        }
        outcome
    }

    fn prepare(&mut self) {
        self.device.search();
    }

    fn unknown_lines(&self) -> UnknownLines {
        self.device.unknown_lines()
    }

    fn longest_gap_ns(&self) -> Option<u64> {
        if self.known.slots.is_empty() {
            Some(SEARCH_GAP_NS)
        } else {
            self.device.is_pushed().then_some(DRAIN_GAP_NS)
        }
    }

    fn read_between(&mut self) {
        if self.known.slots.is_empty() {
            self.device.search();
        } else {
            self.device.drain();
        }
    }
}
