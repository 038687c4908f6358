//! Measures a job's page in a headless Chromium: the time until its first chart, and until finer values are drawn after a zoom; and with
//! `--agents` what the page of a running job does with its values.
//!
//! `cargo run --release --bin pages -- STORE [--runs N]`, where STORE is one that `world --into STORE` has filled, or
//! `cargo run --release --bin pages -- --agents N`.

mod jobs;
mod running;
mod visit;

use clap::Parser;
use polymeter_benches::collector::Collector;
use polymeter_benches::failure::Failure;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say};
use polymeter_e2e::site::{Proxy, api_config};
use serde_json::Value;

use self::jobs::{USER, job, page};
use self::visit::Visit;

/// Measures a job's page in a headless Chromium.
#[derive(Debug, Parser)]
struct Arguments {
    /// The store: sqlite:PATH, or a database of a running server.
    #[arg(required_unless_present = "agents")]
    store: Option<String>,
    /// The scheduler's id of the job; by default, that with the most nodes of the newest hundred.
    #[arg(long)]
    job: Option<String>,
    /// Number of runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
    /// Number of mock agents of a job that runs meanwhile, in a temporary store. Each samples all of its series once a second.
    #[arg(long, conflicts_with_all = ["store", "job"], value_parser = clap::value_parser!(u32).range(1..=5_000))]
    agents: Option<u32>,
    /// Kind of the temporary store; by default the best that is installed.
    #[arg(long, value_enum, requires = "agents")]
    kind: Option<Kind>,
    /// Seconds for which the page of the running job stays open.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(5..=600))]
    seconds: u32,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    table::machine();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    say(&format!("load before the runs: {}", load.trim()));
    let store = match &arguments.store {
        Some(url) => Store::existing(url)?,
        None => Store::start(arguments.kind.unwrap_or_else(Kind::best))?,
    };
    let scratch = tempfile::tempdir()?;
    let socket = scratch.path().join("api.sock");
    let listen = format!("ipc://{}", scratch.path().join("collector").display());
    let administrators = format!("administrators = [\"{USER}\"]\n{}", api_config(&socket));
    let collector = Collector::start(scratch.path(), &listen, &store, &administrators)?;
    let proxy = Proxy::start(&socket);
    if let Some(agents) = arguments.agents {
        say(&format!("{}: a job on {agents} nodes", store.kind()));
        return running::measure(&proxy, &collector, agents, arguments.seconds);
    }
    let job = job(&proxy, arguments.job.as_deref())?;
    let nodes = job.get("nodes").and_then(Value::as_array).map_or(0, Vec::len);
    let id = job.get("id").and_then(Value::as_str).unwrap_or_default();
    say(&format!("{}: job {id} on {nodes} nodes", store.kind()));
    let visits: Vec<Visit> = (0..arguments.runs).map(|_| Visit::of(&proxy, &page(&job))).collect();
    visit::print(&visits);
    Ok(())
}
