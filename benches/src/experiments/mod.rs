//! The experiments, a file or a folder each.

pub(crate) mod citus;
pub(crate) mod connections;
pub(crate) mod control;
pub(crate) mod ebpf;
pub(crate) mod failover;
pub(crate) mod gather;
pub(crate) mod hindsight;
pub(crate) mod idle;
pub(crate) mod ingest;
pub(crate) mod jitter;
pub(crate) mod jobs;
pub(crate) mod live;
pub(crate) mod overhead;
pub(crate) mod pages;
pub(crate) mod papers;
pub(crate) mod parts;
pub(crate) mod read_cost;
pub(crate) mod record;
pub(crate) mod regions;
pub(crate) mod remote_write;
pub(crate) mod scale;
pub(crate) mod stacks;
pub(crate) mod straggler;
pub(crate) mod usage;
pub(crate) mod wire;
pub(crate) mod world;
