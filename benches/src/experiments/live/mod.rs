//! Measures what live values and other requests of the HTTP API cost a collector.

mod clients;

use std::error::Error;
use std::path::{Path, PathBuf};

use polymeter_benches::clock::{now_ns, wall_us};
use polymeter_benches::collector::Collector;
use polymeter_benches::delivery::{deliver, deliver_all};
use polymeter_benches::load::Load;
use polymeter_benches::mock::{MockAgent, Script};
use polymeter_benches::paced;
use polymeter_benches::process;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Period;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Encoder;
use polymeter_service::users;
use tempfile::TempDir;

use self::clients::{Clients, USER, get};

/// Measures the collector with open pages, and ingest beside readers.
///
/// First mock agents of one job sample once a second, with and without open pages, each of which has a
/// stream of one point a second and series, and asks for the summary and the losses every 30 s and for the
/// job every 60 s. The CPU time is that of all threads of the collector, with a resolution of 10 ms. Then
/// agents with full outboxes send as in `ingest`, alone, beside the streams, and beside clients that
/// request all samples of the job in 600 parts without a pause. The clients run on the same machine, so
/// that the rates beside them have their cost, too. Fails if the numbers of sent and stored samples differ.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Nodes of the job.
    #[arg(long, default_value_t = 10)]
    nodes: u32,
    /// Open pages of the job, each with a stream of one point a second and series.
    #[arg(long, default_value_t = 100)]
    streams: usize,
    /// Clients that request samples in a loop.
    #[arg(long, default_value_t = 2)]
    readers: usize,
    /// Seconds of sampling at 1 s with and without pages.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Frames of each agent, of 100 ms at 1 ms each, that are sent without pauses.
    #[arg(long, default_value_t = 40)]
    frames: u32,
    /// Rounds in which all loads take turns.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The store.
    #[arg(long, value_enum, default_value_t = Kind::Sqlite)]
    store: Kind,
    /// Measure shortly, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// Requests beside which samples are ingested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    None,
    Streams,
    Reads,
}

impl Beside {
    const ALL: [Self; 3] = [Self::None, Self::Streams, Self::Reads];

    fn name(self, arguments: &Arguments) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Streams => format!("{} streams", arguments.streams),
            Self::Reads => format!("{} clients that read samples", arguments.readers),
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    seconds: f64,
    cpu_s: f64,
    samples: u64,
    bytes: u64,
    answers: u64,
}

impl Taken {
    const fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.cpu_s += other.cpu_s;
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.answers += other.answers;
    }
}

struct Setting {
    collector: Collector,
    store: Store,
    listen: String,
    api: PathBuf,
    job_key: i64,
    context: zmq::Context,
    _scratch: TempDir,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.nodes, arguments.seconds, arguments.frames, arguments.rounds) = (2, 5, 4, 1);
        arguments.streams = 10;
    }
    table::machine();
    if let Some(missing) = arguments.store.missing() {
        say(&format!("left out: {}: {missing}", arguments.store));
        return Ok(());
    }
    pages(&arguments)?;
    say("");
    ingest(&arguments)?;
    Ok(())
}

/// Measures the CPU time of a collector whose agents sample at 1 s, with and without open pages.
fn pages(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let script = Script::read(Path::new(RECORDED), Period::SECOND)?.of_job("1".try_into()?, wall_us());
    let (mut without, mut with) = (Taken::default(), Taken::default());
    for _ in 0..arguments.rounds {
        for (streams, taken) in [(0, &mut without), (arguments.streams, &mut with)] {
            let setting = Setting::start(arguments.store, &script)?;
            let clients = Clients::watch(&setting.api, setting.job_key, streams)?;
            let others = (streams > 0).then(|| Clients::refresh(&setting.api, setting.job_key, streams));
            let cpu_s = process::cpu_s(setting.collector.pid())?;
            let begin_ns = now_ns();
            let samples =
                paced::send(&setting.context, &setting.listen, &script, arguments.nodes, arguments.seconds)?;
            let seconds = to_f64(now_ns() - begin_ns) / 1e9;
            let cpu_s = process::cpu_s(setting.collector.pid())? - cpu_s;
            let (bytes, answers) = clients.stop();
            let (other_bytes, other_answers) = others.map_or((0, 0), Clients::stop);
            if streams > 0 && (bytes == 0 || other_answers == 0) {
                return Err("the streams or the answers are empty".into());
            }
            let (bytes, answers) = (bytes + other_bytes, answers + other_answers);
            taken.add(Taken { seconds, cpu_s, samples, bytes, answers });
            setting.collector.stop()?;
        }
    }
    let percent = |taken: &Taken| 100.0 * taken.cpu_s / taken.seconds;
    say(&format!(
        "{}: {} nodes with {} series each at 1 s, {} rounds of {} s; CPU of the collector in % of a core, all threads",
        arguments.store,
        arguments.nodes,
        script.samples_per_tick(),
        arguments.rounds,
        arguments.seconds
    ));
    say("");
    let bytes_per_second = to_f64(with.bytes) / with.seconds / to_f64(arguments.streams as u64).max(1.0);
    let row = vec![
        arguments.streams.to_string(),
        format!("{:.2} %", percent(&without)),
        format!("{:.2} %", percent(&with)),
        format!("{:.2} %", percent(&with) - percent(&without)),
        format!("{:.1} kB/s", bytes_per_second / 1e3),
    ];
    table::table(&["open pages", "CPU without", "CPU with", "difference", "bytes per page"], &[row]);
    Ok(())
}

fn ingest(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let script = Script::read(Path::new(RECORDED), Period::MILLISECOND)?.of_job("1".try_into()?, wall_us());
    let mut taken = [Taken::default(); Beside::ALL.len()];
    for _ in 0..arguments.rounds {
        for (beside, taken) in Beside::ALL.into_iter().zip(&mut taken) {
            taken.add(ingest_beside(arguments, beside, &script)?);
        }
    }
    let rate = |taken: &Taken| to_f64(taken.samples) / taken.seconds;
    let alone = rate(&taken[0]);
    say(&format!(
        "{}: {} agents with full outboxes of {} frames of 100 ms at 1 ms, {} rounds",
        arguments.store, arguments.nodes, arguments.frames, arguments.rounds
    ));
    say("");
    let rows: Vec<_> = Beside::ALL
        .into_iter()
        .zip(&taken)
        .map(|(beside, taken)| {
            vec![
                beside.name(arguments),
                format!("{:.0} k", rate(taken) / 1e3),
                format!("{:.2}", rate(taken) / alone),
                format!("{:.2}", taken.cpu_s * 1e6 / to_f64(taken.samples)),
                format!("{:.1}", to_f64(taken.answers) / taken.seconds),
                format!("{:.1} MB/s", to_f64(taken.bytes) / taken.seconds / 1e6),
            ]
        })
        .collect();
    let head =
        ["beside", "samples/s", "ratio", "collector µs per sample", "answers or reads per second", "bytes"];
    table::table(&head, &rows);
    Ok(())
}

/// Measures from the first send to the last acknowledgement.
fn ingest_beside(arguments: &Arguments, beside: Beside, script: &Script) -> Result<Taken, Box<dyn Error>> {
    let setting = Setting::start(arguments.store, script)?;
    let agents = Load { agents: arguments.nodes, frames: arguments.frames, ticks: 100 }.sampled(script)?;
    let samples = agents.iter().map(MockAgent::samples).sum();
    let clients = match beside {
        Beside::None => None,
        Beside::Streams => Some(Clients::watch(&setting.api, setting.job_key, arguments.streams)?),
        Beside::Reads => Some(Clients::read(&setting.api, setting.job_key, arguments.readers)),
    };
    let cpu_s = process::cpu_s(setting.collector.pid())?;
    let seconds = deliver_all(std::slice::from_ref(&setting.listen), script, agents)?;
    let cpu_s = process::cpu_s(setting.collector.pid())? - cpu_s;
    let (bytes, answers) = clients.map_or((0, 0), Clients::stop);
    let Setting { collector, store, .. } = setting;
    collector.stop()?;
    let (stored, expected) = (store.samples()?, samples + u64::try_from(script.samples_per_tick())?);
    if stored != expected {
        return Err(format!("{expected} samples were acknowledged, and {stored} are stored").into());
    }
    Ok(Taken { seconds, cpu_s, samples, bytes, answers })
}

impl Setting {
    /// Starts a collector, and stores the first samples of the job, from a node of its own.
    fn start(kind: Kind, script: &Script) -> Result<Self, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        let (store, context) = (Store::start(kind)?, zmq::Context::new());
        let (listen, api) =
            (format!("ipc://{}/collector", scratch.path().display()), scratch.path().join("api"));
        let own = users::name_of(rustix::process::geteuid().as_raw()).ok_or("this user has no name")?;
        let more = format!(
            "administrators = [\"{USER}\"]\n[api]\nlisten = \"{}\"\ntrusted_proxies = [\"user:{own}\"]\nstreams = 400\n\
             user_streams = 400\nuser_requests_per_second = 10000\nuser_bytes_per_second = 1000000000000\n",
            api.display()
        );
        let collector = Collector::start(scratch.path(), &listen, &store, &more)?;
        let mut first =
            MockAgent::new(SessionId(u64::MAX), "first".try_into()?, "mock".try_into()?, wall_us());
        first.sample(script, &mut Encoder::default(), wall_us(), 1)?;
        deliver(&context, &listen, script, first)?;
        let jobs: serde_json::Value = serde_json::from_slice(&get(&api, "/api/v1/jobs")?)?;
        let job_key = jobs
            .pointer("/jobs/0/key")
            .and_then(serde_json::Value::as_i64)
            .ok_or_else(|| format!("no job: {jobs}"))?;
        Ok(Self { collector, store, listen, api, job_key, context, _scratch: scratch })
    }
}
