//! Reports and exports of large jobs: directly from the store, and through the collector as administrator and
//! as the owner.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use polymeter_benches::collector::Collector;
use polymeter_benches::store::Store;
use tempfile::TempDir;

use super::calendar::{BIG_JOB, MEDIUM_JOB, SHORT_JOB, STEPS_JOB, WIDE_JOB};
use super::fill::KEEP_A_YEAR;
use super::node::FIRST_UID;
use super::reads::{self, Runs, User};

/// Large jobs, with the names of their measurements. All of them belong to the same user.
const JOBS: [(u64, &str); 5] = [
    (BIG_JOB, "the job of 24 h"),
    (MEDIUM_JOB, "the job on one node"),
    (WIDE_JOB, "the job on many nodes"),
    (STEPS_JOB, "the job with many steps"),
    (SHORT_JOB, "the job of 50 ms"),
];

/// Number of the user who owns these jobs.
const OWNER: u32 = 1;

const PARTS: [&[&str]; 6] =
    [&[], &["--show", "nodes"], &["--show", "steps"], &["--show", "series"], &["--show", "all"], &["--json"]];

const FORMATS: [&str; 3] = ["parquet", "csv", "jsonl"];

pub(crate) struct Serving {
    pub(crate) collector: Collector,
    pub(crate) scratch: TempDir,
}

impl Serving {
    pub(crate) fn start(store: &Store) -> Result<Self, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
        let listen = format!("ipc://{}/agents", scratch.path().display());
        let more = format!("control_socket = \"{}/control.sock\"\n{KEEP_A_YEAR}", scratch.path().display());
        let collector = Collector::start(scratch.path(), &listen, store, &more)?;
        Ok(Self { collector, scratch })
    }

    pub(crate) fn socket(&self) -> String {
        self.scratch.path().join("control.sock").display().to_string()
    }
}

/// Measures the reports of the large jobs that the store has. `add` measures one if it is wanted, and prints
/// it.
pub(crate) fn reports(
    store: &Store,
    runs: u16,
    add: impl Fn(&str, &dyn Fn() -> Result<Runs, Box<dyn Error>>) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let serving = Serving::start(store)?;
    let socket = serving.socket();
    for (job, name) in JOBS {
        if store.ask(&format!("SELECT count(*) FROM job WHERE job_id = '{job}'"))? == "0" {
            continue;
        }
        let job = job.to_string();
        for part in PARTS {
            let (report, option) = (["report", job.as_str()], part.first().unwrap_or(&"first screen"));
            let direct = [&report[..], &["--store", store.url()], part].concat();
            let through = [&report[..], &["--collector", &socket], part].concat();
            let measure = |arguments: &[&str], user| reads::command(arguments, user, runs, || Ok(()));
            add(&format!("scale: {name}, {option}"), &|| measure(&direct, User::Own))?;
            let what = format!("scale: {name}, {option}, through the collector");
            add(&what, &|| measure(&through, User::Own))?;
            if part.is_empty() {
                let owner = User::Other(FIRST_UID + OWNER);
                add(&format!("{what} as the owner"), &|| measure(&through, owner))?;
            }
        }
    }
    serving.collector.stop()?;
    Ok(())
}

/// Measures exports of a large job, in samples per second.
pub(crate) fn exports(
    store: &Store,
    runs: u16,
    samples: u64,
    add: impl Fn(&str, &dyn Fn() -> Result<Runs, Box<dyn Error>>) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let serving = Serving::start(store)?;
    let (socket, scratch, job) = (serving.socket(), tempfile::tempdir()?, BIG_JOB.to_string());
    for format in FORMATS {
        let file = scratch.path().join(format!("samples.{format}")).display().to_string();
        let export = ["export", job.as_str(), "--force", "--output", &file];
        let direct = [&export[..], &["--store", store.url()]].concat();
        let through = [&export[..], &["--collector", &socket]].concat();
        for (arguments, way) in [(direct, "directly"), (through, "through the collector")] {
            let what = format!("export of {samples} samples as {format}, {way}, samples/s");
            add(&what, &|| {
                let done = reads::command(&arguments, User::Own, runs, || Ok(()))?;
                Ok(done.rates(samples))
            })?;
        }
    }
    serving.collector.stop()?;
    Ok(())
}
