//! Critical errors of a GPU, which the driver reports as events (XID).

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::{Device, Nvml};

/// The most events that one reading takes, so that a GPU with an endless series of errors does not stop it.
const EVENTS_MAX: usize = 1024;

/// The number that the library reports for an error that it does not know.
const UNKNOWN_XID: u64 = 999;

/// The errors of a GPU since the agent watches it.
#[derive(Debug, Default)]
pub(super) struct Xid {
    /// The events that the library collects; none before the first reading, and after the loss of the GPU.
    events: Option<EventSet<'static>>,
    errors: u64,
    last: Option<u64>,
}

impl Xid {
    /// Returns the number of errors.
    pub(super) fn errors(&mut self, nvml: &'static Nvml, device: &Device<'static>) -> Result<u64, NvmlError> {
        self.take_events(nvml, device)?;
        Ok(self.errors)
    }

    /// Returns the number of the last error.
    pub(super) fn last(&mut self, nvml: &'static Nvml, device: &Device<'static>) -> Result<u64, NvmlError> {
        self.take_events(nvml, device)?;
        self.last.ok_or(NvmlError::NoData)
    }

    /// Forgets the events of handles that are not valid any more. The count stays.
    pub(super) fn forget_events(&mut self) {
        // A set of a lost GPU may hang when it is freed: it is left behind, once for each loss.
        std::mem::forget(self.events.take());
    }

    fn take_events(&mut self, nvml: &'static Nvml, device: &Device<'static>) -> Result<(), NvmlError> {
        let events = match self.events.take() {
            Some(events) => events,
            None => device
                .register_events(EventTypes::CRITICAL_XID_ERROR, nvml.create_event_set()?)
                .map_err(|error| error.error)?,
        };
        let events = self.events.insert(events);
        for _ in 0..EVENTS_MAX {
            match events.wait(0) {
                Ok(event) => {
                    let Some(xid) = event.event_data else { continue };
                    self.errors += 1;
                    self.last = Some(match xid {
                        XidError::Value(number) => number,
                        XidError::Unknown => UNKNOWN_XID,
                    });
                }
                Err(NvmlError::Timeout) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
