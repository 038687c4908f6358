//! Disk spool of requests.

mod accepted;
mod bounds;
mod log;
mod position;
mod queue;
pub(super) mod record;
mod recovery;
#[cfg(test)]
mod tests;

pub(super) use self::bounds::{SpoolBounds, Stats};
pub(super) use self::log::Log;
pub(super) use self::queue::Request;
