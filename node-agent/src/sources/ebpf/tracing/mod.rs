//! Shared part of programs that trace the kernel: one program for all jobs, which finds the jobs of a task in
//! a table.
//!
//! The kernel lets only programs under the GPL read its structures. The programs of this module and of those
//! that use it are therefore under the Apache License 2.0 or the GNU General Public License 2.0, as the user
//! chooses.

mod cgroup_types;
mod choice;
mod find_jobs;
mod histogram;
mod job_table;
mod kernel_types;
mod level;
mod shared;

pub(super) use cgroup_types::{CgroupHierarchy, CgroupTypes};
pub(super) use choice::choose;
pub(super) use find_jobs::{FOUND, SCRATCH, STACK_USED, find_jobs, for_each_job, read_word};
pub(super) use histogram::{BUCKETS, LIMITS_NS, choose_bucket, up_to};
pub(super) use job_table::{JobTable, TableMaps};
pub(super) use kernel_types::{offset, read_types, type_number};
pub(super) use shared::{Known, Running};
