//! The supervisor: [`run`] is its loop. The [`dispatcher`] calls the state machines of [`crate::admission`]
//! and [`crate::lifecycle`] with the results of I/O, and applies their effects at the [`edge`]. Requests of
//! users read top to bottom in [`requests`]. Everything slow happens here, so that the sampler never waits
//! for a file to open or a perf event to close.

mod calibrator;
mod clock_watch;
mod cpu_meter;
mod demands;
mod dispatcher;
mod edge;
mod owner_lookups;
mod pace;
mod placement;
mod probe;
mod processes;
mod requests;
mod run;
mod sampler_notices;
mod status_view;
mod step_sources;
mod trigger_actions;
mod wait;

#[cfg(test)]
pub(crate) use dispatcher::Dispatcher;
#[cfg(test)]
pub(crate) use edge::Edge;
pub(crate) use edge::Shared;
#[cfg(test)]
pub(crate) use owner_lookups::{JobPurpose, LookedUp};
pub(crate) use run::Supervisor;
pub(crate) use wait::waitable;
