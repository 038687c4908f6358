//! The permitted directions of dependencies between this workspace's crates and modules.

/// The crates that a crate may depend on, by directory. A crate that is not listed may depend on all others.
pub const CRATES: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("store", &["proto"]),
    ("service", &["proto"]),
    ("node-agent", &["proto", "service"]),
    ("page", &[]),
    ("samples-file", &["proto", "service", "store"]),
    ("analysis", &["proto", "service", "store"]),
    ("api", &["proto", "service", "store", "analysis", "page", "samples-file"]),
    ("collector", &["proto", "service", "store", "analysis", "api"]),
    ("cli", &["proto", "service", "store", "analysis", "page", "samples-file", "node-agent", "collector"]),
];

/// Modules of one crate that must not import certain others: the directory, the modules, and the modules that they must
/// not import.
pub const DIRECTIONS: &[(&str, &[&str], &[&str])] =
    &[("node-agent/src", &["sources", "lanes", "targets", "admission"], &["delivery", "control"])];

/// Modules without I/O and without a clock. Time, file contents and messages are passed to them.
pub const PURE: &[&str] = &[
    "node-agent/src/admission",
    "node-agent/src/targets",
    "node-agent/src/lifecycle/announced_jobs.rs",
    "node-agent/src/lifecycle/effect.rs",
    "node-agent/src/lifecycle/found_job.rs",
    "node-agent/src/lifecycle/job_ids.rs",
    "node-agent/src/lifecycle/machine",
    "node-agent/src/lifecycle/owners.rs",
    "node-agent/src/lifecycle/refused_requests.rs",
    "node-agent/src/lifecycle/rescans.rs",
    "node-agent/src/lifecycle/room.rs",
    "node-agent/src/lifecycle/sluids.rs",
    "node-agent/src/lifecycle/submissions.rs",
    "node-agent/src/plan.rs",
    "node-agent/src/lanes/schedule.rs",
    "node-agent/src/delivery/session",
    "collector/src/ingest",
    "proto/src",
];

/// Prefixes of paths that a pure module must not use.
pub const IMPURE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant::now",
    "std::time::SystemTime",
    "polymeter_service::clock::Clock",
    "procfs",
    "rustix",
    "tokio",
    "zmq",
];
