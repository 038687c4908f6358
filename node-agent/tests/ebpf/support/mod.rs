//! Cgroups, processes and sources of the tests.

pub(crate) mod cgroup;
pub(crate) mod links;
pub(crate) mod process;
pub(crate) mod roles;
pub(crate) mod sources;
pub(crate) mod talker;
