//! The disk spool of requests.

mod files;
mod log;
pub(super) mod record;
#[cfg(test)]
mod tests;

pub(super) use self::log::{Log, Request, SpoolBounds, Stats};
