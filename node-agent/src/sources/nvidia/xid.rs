//! Critical errors of a GPU, which the driver reports as events (XID).

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::{Device, Nvml};

/// Bound of the events that one reading takes, so that a GPU with an endless series of errors does not stop
/// it.
const EVENTS_MAX: usize = 1024;

/// Number that the library reports for an error that it does not know.
const UNKNOWN_XID: u64 = 999;

#[derive(Debug, Default)]
pub(super) struct Xid {
    /// Events that the library collects; `None` before the first reading, and after the loss of the GPU.
    events: Option<EventSet<'static>>,
    is_watched: bool,
    errors: u64,
    last: Option<u64>,
}

impl Xid {
    pub(super) fn errors(&mut self, nvml: &'static Nvml, device: &Device<'static>) -> Result<u64, NvmlError> {
        self.take_events(nvml, device)?;
        Ok(self.errors)
    }

    pub(super) fn last(&mut self, nvml: &'static Nvml, device: &Device<'static>) -> Result<u64, NvmlError> {
        self.take_events(nvml, device)?;
        self.last.ok_or(NvmlError::NoData)
    }

    /// Number of errors and the last one, as far as they are known without the GPU.
    pub(super) fn known(&self) -> (Option<u64>, Option<u64>) {
        (self.is_watched.then_some(self.errors), self.last)
    }

    /// Counts the errors that were reported before the GPU was lost, including the loss itself, and forgets
    /// the events.
    pub(super) fn end(&mut self) {
        for _ in 0..EVENTS_MAX {
            // An error means that there are no more.
            let Some(Ok(event)) = self.events.as_ref().map(|events| events.wait(0)) else { break };
            event.event_data.into_iter().for_each(|xid| self.count(xid));
        }
        self.forget_events();
    }

    fn count(&mut self, xid: XidError) {
        self.errors += 1;
        self.last = Some(match xid {
            XidError::Value(number) => number,
            XidError::Unknown => UNKNOWN_XID,
        });
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
        self.events = Some(events);
        self.is_watched = true;
        for _ in 0..EVENTS_MAX {
            let Some(events) = &self.events else { break };
            match events.wait(0) {
                Ok(event) => event.event_data.into_iter().for_each(|xid| self.count(xid)),
                Err(NvmlError::Timeout) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
