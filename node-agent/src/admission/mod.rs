//! Admission: decides which metrics are sampled at which period, and at what cost. Pure: [`Admission::handle`] takes
//! events, changes the plans of targets, and returns effects; it performs no I/O and reads no clock.

mod availability;
mod calibration;
mod capacity;
mod cost;
mod event;
mod governor;
mod leases;
mod machine;
mod pricing;
mod share;

pub(crate) use calibration::{Exercise, ExerciseTimes, LONG, ROUNDS, SHORT};
pub(crate) use capacity::{Capacity, CgroupOwner, Descriptors, JOBS, MIN_DESCRIPTORS};
#[cfg(test)]
pub(crate) use event::ReadTimes;
pub(crate) use event::{AdmissionEffect, AdmissionEvent, LeaseOrigin, OpenReason};
pub(crate) use machine::Admission;
