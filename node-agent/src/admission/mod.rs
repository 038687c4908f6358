//! Admission: decides which metrics are sampled at which period, and at what cost. Pure: [`Admission`]
//! changes the plans of targets and returns which ones; it performs no I/O and reads no clock.

mod availability;
mod calibration;
mod capacity;
mod cost;
mod demand_rules;
mod demands;
mod governor;
mod leases;
mod machine;
mod pricing;
mod releases;
mod share;

pub(crate) use availability::metrics_of;
pub(crate) use calibration::{Exercise, ExerciseTimes, LONG, ROUNDS, SHORT};
pub(crate) use capacity::{Capacity, CgroupOwner, Descriptors, JOBS, MIN_DESCRIPTORS};
pub(crate) use machine::{Admission, ChangedPlan};
pub(crate) use pricing::ReadTimes;
pub(crate) use releases::released;
