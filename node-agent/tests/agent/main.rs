//! Tests of the agent's stages on simulated machines, with text of real kernels, and of its program's texts.
#![cfg(test)]
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

mod common;
mod drm_gpus;
mod fabric;
mod hanging_device;
mod machine;
mod parsers;
mod session;
mod spool;
mod sysfs;
mod texts;
