//! The permitted directions of dependencies between this workspace's crates and modules.

/// Permitted dependencies of one crate. Dependencies of its tests are not restricted.
#[derive(Debug)]
pub struct Allowed {
    /// Directory of the crate.
    pub directory: &'static str,
    /// Directories of other crates.
    pub dependencies: &'static [&'static str],
}

/// Modules of a directory from upstream to downstream: a module imports those of its own stage and of earlier
/// ones, never of a later one. Modules that are not listed are free.
#[derive(Debug)]
pub struct Stages {
    /// Relative to the workspace.
    pub directory: &'static str,
    /// Names of files, without `.rs`, and of directories.
    pub stages: &'static [&'static [&'static str]],
}

#[derive(Debug)]
pub struct Forbidden {
    /// Files, without `.rs`, and directories.
    pub modules: &'static [&'static str],
    /// Forbidden paths, with all that begins with one of them.
    pub paths: &'static [&'static str],
}

const fn allowed(directory: &'static str, dependencies: &'static [&'static str]) -> Allowed {
    Allowed { directory, dependencies }
}

/// Every crate of the workspace.
pub const CRATES: &[Allowed] = &[
    allowed("proto", &[]),
    allowed("service", &["proto"]),
    allowed("store", &["proto", "service"]),
    allowed("node-agent", &["proto", "service"]),
    allowed("node-agent/regions", &[]),
    allowed("page", &[]),
    allowed("store/samples-file", &["service", "store"]),
    allowed("analysis", &["proto", "service", "store"]),
    allowed("api", &["proto", "service", "store", "analysis", "page", "store/samples-file"]),
    allowed("collector", &["proto", "service", "store", "analysis", "api"]),
    allowed("cli/client", &["proto", "service"]),
    allowed(
        "cli",
        &[
            "proto",
            "service",
            "store",
            "analysis",
            "page",
            "store/samples-file",
            "node-agent",
            "collector",
            "cli/client",
        ],
    ),
    allowed("e2e/harness", &[]),
    allowed("e2e/structure", &[]),
    allowed("e2e", &["proto", "service", "store", "node-agent", "collector", "e2e/harness"]),
    allowed("e2e/fuzz", &["proto", "service", "analysis", "node-agent", "collector"]),
    allowed("benches", &["proto", "service", "store", "analysis", "node-agent", "collector", "e2e"]),
];

const fn stages(directory: &'static str, stages: &'static [&'static [&'static str]]) -> Stages {
    Stages { directory, stages }
}

/// Every crate with more than two modules.
pub const STAGES: &[Stages] = &[
    stages(
        "proto/src",
        &[&["limits"], &["series", "ledger", "batch", "catalogue"], &["wire"], &["control"], &["read"]],
    ),
    stages("store/src", &[&["backend"], &["postgres", "sqlite"], &["reader"], &["writer"]]),
    stages("service/src", &[&["printable"], &["faults", "log"], &["document"]]),
    stages("e2e/harness/src", &[&["certificates", "snapshot"], &["bin"]]),
    stages(
        "node-agent/regions/src",
        &[
            &["limits", "clock", "slot", "destination"],
            &["registry", "message"],
            &["thread_table", "process"],
            &["sender"],
            &["current"],
            &["c_api", "likwid", "kokkos"],
            &["lib"],
        ],
    ),
    stages(
        "node-agent/src",
        &[
            &["sources"],
            &["lanes"],
            &["targets"],
            &["admission"],
            &["lifecycle"],
            &["delivery", "control"],
            &["openmetrics"],
            &["supervisor"],
            &["agent"],
        ],
    ),
    stages(
        "collector/src",
        &[
            &["ingest", "auth", "reading", "sinks"],
            &["control", "job_end", "receiver"],
            &["writer"],
            &["collector"],
        ],
    ),
    stages(
        "collector/src/sinks",
        &[&["sink", "ends"], &["outbound"], &["remote_write"], &["influx", "otlp"], &["fan_out"]],
    ),
    stages("analysis/src", &[&["model"], &["resources"], &["gather", "advice"], &["charts"]]),
    stages("page/src", &[&["modules"], &["bundle"], &["report", "site"]]),
    stages(
        "store/samples-file/src",
        &[&["rows"], &["writer"], &["parquet", "text", "json_lines"], &["format"]],
    ),
    stages(
        "api/src",
        &[
            &["limits", "config", "own_metrics"],
            &["answer"],
            &["access"],
            &["live"],
            &["links"],
            &["readers"],
            &["request"],
            &["endpoints"],
            &["routes"],
            &["server"],
        ],
    ),
    stages(
        "cli/client/src",
        &[
            &["failure"],
            &["output", "connection"],
            &["completion"],
            &["job_choice"],
            &["commands"],
            &["program"],
        ],
    ),
    stages("e2e/fuzz/src", &[&["sources"], &["lib"]]),
    stages("cli/src", &[&["output"], &["report"], &["commands"], &["main"]]),
    stages("e2e/src", &[&["basics"], &["environment"], &["daemons"], &["fixture"]]),
    stages("e2e/structure/src", &[&["modules"], &["graph"], &["cycles"], &["draw"], &["check"], &["main"]]),
    stages("benches/src", &[&["clock"], &["table"], &["process"]]),
];

/// Invariants of ARCHITECTURE.md that concern single paths.
pub const FORBIDDEN: &[Forbidden] = &[
    Forbidden { modules: PURE, paths: IMPURE },
    Forbidden { modules: &["node-agent/src/lanes/fast"], paths: WAITING },
    // Nothing there writes to a store.
    Forbidden { modules: &["analysis/src", "api/src", "store/samples-file/src"], paths: WRITING },
];

/// Modules without I/O and without a clock. Time, file contents and messages are passed to them.
const PURE: &[&str] = &[
    "node-agent/src/admission",
    "node-agent/src/targets",
    "node-agent/src/lifecycle/announced_jobs",
    "node-agent/src/lifecycle/effect",
    "node-agent/src/lifecycle/found_job",
    "node-agent/src/lifecycle/job_ids",
    "node-agent/src/lifecycle/machine",
    "node-agent/src/lifecycle/owners",
    "node-agent/src/lifecycle/refused_requests",
    "node-agent/src/lifecycle/rescans",
    "node-agent/src/lifecycle/room",
    "node-agent/src/lifecycle/sluids",
    "node-agent/src/lifecycle/submissions",
    "node-agent/src/plan",
    "node-agent/src/lanes/schedule",
    "node-agent/src/delivery/session",
    "collector/src/ingest",
    "collector/src/stragglers",
    "page/src",
    "proto/src",
];

const IMPURE: &[&str] = &[
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

/// The fast lane waits only for the clock and for commands.
const WAITING: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::thread",
    "tokio",
    "zmq",
];

const WRITING: &[&str] = &[
    "polymeter_store::Administration",
    "polymeter_store::Maintenance",
    "polymeter_store::Store",
    "polymeter_store::prune",
    "polymeter_store::set_retention",
];
