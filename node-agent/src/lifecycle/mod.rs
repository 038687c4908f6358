//! Life cycle: the begin and the end of jobs. The core is pure: each event is a function of [`Lifecycle`],
//! which returns effects. The edge watches cgroups and processes: [`discovery`], [`exit_events`],
//! [`exit_watcher`], [`identity`].

mod announced_jobs;
mod cgroup_watches;
mod directory_watches;
pub(crate) mod discovery;
mod effect;
pub(crate) mod exit_events;
pub(crate) mod exit_watcher;
mod found_job;
pub(crate) mod identity;
mod job_ids;
mod machine;
mod owners;
mod refused_requests;
mod rescans;
mod room;
mod sluids;
mod submissions;

pub(crate) use effect::{LifecycleEffect, OwnerHint};
pub(crate) use found_job::{FoundJob, Walk};
pub(crate) use machine::{Lifecycle, Registration, reopen};
pub(crate) use owners::look_up as look_up_owners;
