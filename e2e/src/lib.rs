//! Shared code of the end-to-end tests: real programs, real cgroups, workloads, and a reader of kernel files
//! that is independent of the agent's.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_debug_implementations,
    reason = "a fault of a test is a failed test"
)]

pub mod accessibility;
pub mod apache;
mod basics;
pub mod bmc;
pub mod browser;
pub mod cgroup;
pub mod daemons;
pub mod data_frames;
pub mod disk;
mod environment;
pub mod fixture;
pub mod installed;
pub mod ipmi_sim;
pub mod munge;
mod namespaces;
mod needs;
pub mod network;
pub mod nginx;
pub mod node_exporter;
pub mod oar;
pub mod ordinary_user;
pub mod random;
pub mod receivers;
pub mod reference;
pub mod schemathesis;
#[path = "../../collector/tests/collector/support/server.rs"]
pub mod server;
pub mod site;
pub mod slurm;
pub mod snmpd;
pub mod spooled;
pub mod stored;
pub mod two_nodes;
pub mod wattmeter;
pub mod workload;

pub use polymeter_test_harness::{Test, is_required, run_side_by_side, skip, tests};

pub use self::basics::{as_user, install, now_us, pause, program, text, unique, wait_until, wait_within};
pub use self::environment::TestEnvironment;
pub use self::needs::{Need, require};
