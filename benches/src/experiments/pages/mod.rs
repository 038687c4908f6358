//! Measures a job's page in a headless Chromium.

mod jobs;
mod running;
mod visit;
mod weight;

use std::error::Error;

use polymeter_benches::collector::Collector;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say};
use polymeter_e2e::site::{Proxy, api_config};
use serde_json::Value;

use self::jobs::{USER, job, page};
use self::visit::Visit;

/// Measures the overview and a job's page in Chromium: first contents, weight, zoom, live values.
///
/// Needs root and Chromium. Opens the overview, then the page of the job with the most nodes, in a store
/// that `world --into STORE` has filled, each time in a new browser that was started 2 s before, whose
/// cache is empty, and once more in the same browser (`first contents again`). `first contents` is the time
/// from the navigation until the list of jobs is there, or the first chart is drawn with its values. `kB
/// transferred` are the heads and bodies of all answers as they were sent, with the API's, until 2 s after
/// all visible parts of a window of 1280 x 900 pixels are there; `decoded` are the bodies without their
/// compression. `zoom` the time from the end of a drag until the finer values
/// of the visible charts are drawn, in the last of three steps, of which each shows a thirtieth. Browser,
/// collector and store share the machine. With --agents, mock agents of one job send a frame of one row
/// every second while the page is open: the delay is the time from the sample, which is sent at once, until
/// a chart with it is drawn, so it lacks the flush interval of a real agent.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store: sqlite:PATH, or a database of a running server.
    #[arg(required_unless_present = "agents")]
    store: Option<String>,
    /// The scheduler's id of the job; by default, that with the most nodes of the newest hundred.
    #[arg(long)]
    job: Option<String>,
    /// Number of runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
    /// Number of mock agents of a job that runs meanwhile, in a temporary store. Each samples all of its
    /// series once a second.
    #[arg(long, conflicts_with_all = ["store", "job"], value_parser = clap::value_parser!(u32).range(1..=5_000))]
    agents: Option<u32>,
    /// Kind of the temporary store; by default the best that is installed.
    #[arg(long, value_enum, requires = "agents")]
    kind: Option<Kind>,
    /// Seconds for which the page of the running job stays open.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(5..=600))]
    seconds: u32,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
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
    say(&format!("{}: the overview", store.kind()));
    let visits: Vec<Visit> = (0..arguments.runs).map(|_| Visit::of_overview(&proxy)).collect();
    visit::print(&visits);
    say("");
    let job = job(&proxy, arguments.job.as_deref())?;
    let nodes = job.get("nodes").and_then(Value::as_array).map_or(0, Vec::len);
    let id = job.get("id").and_then(Value::as_str).unwrap_or_default();
    say(&format!("{}: job {id} on {nodes} nodes", store.kind()));
    let visits: Vec<Visit> = (0..arguments.runs).map(|_| Visit::of_job(&proxy, &page(&job))).collect();
    visit::print(&visits);
    Ok(())
}
