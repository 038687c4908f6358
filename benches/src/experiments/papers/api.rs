//! Requests for the values of a stored job: over the HTTP API of a collector, or from Kwollect's schema in
//! the same server.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use polymeter_benches::clock::{SECOND_NS, now_ns, wall_us};
use polymeter_benches::collector::Collector;
use polymeter_benches::delivery::deliver_all;
use polymeter_benches::mock::{MockAgent, Script};
use polymeter_benches::process;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::to_f64;
use polymeter_proto::period::Period;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Encoder;
use serde_json::Value;
use tempfile::TempDir;

use super::kwollect::{self, DISTANCE_S};
use super::measure::Measure;
use super::paper::{Cell, Paper};
use super::results::Values;
use super::served;

/// Administrator of the collector, whom each request names as a proxy does.
const USER: &str = "daemon";

/// Id of the stored job.
const JOB: &str = "7";

/// Samples of each series in one frame.
const TICKS: u16 = 60;

/// A stored job and its collector. Dropping it stops the collector and removes the store.
struct Stored {
    collector: Collector,
    store: Store,
    address: String,
    key: i64,
    /// Values of the job.
    values: u64,
    _scratch: TempDir,
}

/// A job that has ended.
#[derive(Debug, Clone, Copy)]
struct Past {
    nodes: u64,
    minutes: u16,
    /// Hours since its end.
    ago_h: u16,
}

impl Past {
    /// Begin and end in seconds since the epoch.
    fn time_s(self) -> (i64, i64) {
        let end_s = wall_us() / 1_000_000 / DISTANCE_S * DISTANCE_S - i64::from(self.ago_h) * 3_600;
        (end_s - i64::from(self.minutes) * 60, end_s)
    }

    /// Stores the job through a collector.
    fn store(self) -> Result<Stored, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        let store = Store::start(Kind::best())?;
        let listen = format!("ipc://{}/collector", scratch.path().display());
        // A free port, which nothing else takes within the moment until the collector listens.
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let more = format!(
            "administrators = [\"{USER}\"]\n[api]\nlisten = \"{address}\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
             user_requests = 64\nuser_requests_per_second = 10000\nuser_bytes_per_second = 1000000000000\n"
        );
        let collector = Collector::start(scratch.path(), &listen, &store, &more)?;
        let (begin_s, end_s) = self.time_s();
        let period = Period::from_micros(u64::try_from(DISTANCE_S)? * 1_000_000)?;
        let script = Script::read(Path::new(RECORDED), period)?.of_job(JOB.try_into()?, begin_s * 1_000_000);
        let (mut agents, mut encoder) = (Vec::new(), Encoder::default());
        for number in 0..self.nodes {
            let node = format!("mock{number}").try_into()?;
            let mut agent =
                MockAgent::new(SessionId(number + 1), node, "mock".try_into()?, begin_s * 1_000_000);
            let mut time_s = begin_s;
            while time_s < end_s {
                let ticks = ((end_s - time_s) / DISTANCE_S).min(i64::from(TICKS));
                time_s += ticks * DISTANCE_S;
                agent.sample(&script, &mut encoder, time_s * 1_000_000, u16::try_from(ticks)?)?;
            }
            agents.push(agent);
        }
        let values = agents.iter().map(MockAgent::samples).sum();
        deliver_all(&[listen], &script, agents)?;
        let jobs: Value = serde_json::from_str(&get(&address, "/api/v1/jobs")?)?;
        let key = jobs.pointer("/jobs/0/key").and_then(Value::as_i64).ok_or("the API has no job")?;
        Ok(Stored { collector, store, address, key, values, _scratch: scratch })
    }
}

impl Stored {
    /// CPU time of the collector and the database's server.
    fn cpu_s(&self) -> Result<f64, Box<dyn Error>> {
        Ok(process::cpu_s(self.collector.pid())? + self.store.usage()?.cpu_s)
    }

    fn path(&self, pattern: &str) -> String {
        pattern.replace("{key}", &self.key.to_string()).replace("{job}", JOB)
    }
}

/// Body of an answer, which must have the status 200.
fn get(address: &str, path: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    // In version 1.0 the body does not come in chunks.
    let head = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nX-Remote-User: {USER}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("the answer has no end of its header")?;
    if head.split(' ').nth(1) != Some("200") {
        return Err(format!("{path}: {text}").into());
    }
    Ok(body.to_owned())
}

/// Users read all values of the job again and again, each after its answer.
pub(super) fn read(paper: &Paper, cell: &Cell) -> Result<Values<'static>, Box<dyn Error>> {
    let Measure::Read { nodes, minutes, ago_h, users, path } = &cell.measure else {
        return Err("the cell does not read".into());
    };
    let past = Past { nodes: *nodes, minutes: *minutes, ago_h: *ago_h };
    match path {
        Some(path) => {
            let stored = past.store()?;
            let path = stored.path(path);
            let answer = || Ok(get(&stored.address, &path)?.matches("\"value\"").count() as u64);
            ask(paper.seconds, *users, stored.values, || stored.cpu_s(), answer)
        }
        None => {
            let store = Store::start(Kind::best())?;
            let (begin_s, end_s) = past.time_s();
            kwollect::fill(&store, *nodes, begin_s, end_s)?;
            let values = nodes * u64::try_from((end_s - begin_s) / DISTANCE_S)? * 50;
            let answer = || kwollect::read(&store, *nodes, begin_s, end_s);
            ask(paper.seconds, *users, values, || Ok(store.usage()?.cpu_s), answer)
        }
    }
}

/// Repeats a request for some seconds, at least once for each user. Fails if an answer does not have all
/// values.
fn ask(
    seconds: u64,
    users: u32,
    values: u64,
    cpu_s: impl Fn() -> Result<f64, Box<dyn Error>>,
    answer: impl Fn() -> Result<u64, Box<dyn Error>> + Sync,
) -> Result<Values<'static>, Box<dyn Error>> {
    let durations_s = Mutex::new(Vec::new());
    let (before_s, begin_ns) = (cpu_s()?, now_ns());
    thread::scope(|scope| {
        let user = || {
            loop {
                let sent_ns = now_ns();
                let found = answer().map_err(|error| error.to_string())?;
                if found != values {
                    return Err(format!("an answer has {found} values of {values}"));
                }
                let duration_s = to_f64(now_ns() - sent_ns) / 1e9;
                durations_s.lock().map_err(|_poisoned| "a user broke")?.push(duration_s);
                if now_ns() - begin_ns > seconds * SECOND_NS {
                    return Ok(());
                }
            }
        };
        let threads: Vec<_> = (0..users).map(|_| scope.spawn(user)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_panic| "a user broke".to_owned())?)
    })?;
    let wall_s = to_f64(now_ns() - begin_ns) / 1e9;
    let cpu_percent = 100.0 * (cpu_s()? - before_s) / wall_s;
    let durations_s = durations_s.into_inner()?;
    let answers = to_f64(durations_s.len() as u64);
    Ok(vec![
        ("answer_s", durations_s.iter().sum::<f64>() / answers),
        ("values", to_f64(values)),
        ("read_values_per_s", to_f64(values) * answers / wall_s),
        ("cpu_percent", cpu_percent),
    ])
}

/// Lets wrk ask the API about a job of 10 nodes and 10 minutes.
pub(super) fn wrk(paper: &Paper, cell: &Cell) -> Result<Values<'static>, Box<dyn Error>> {
    let Measure::WrkApi { threads, connections, path } = &cell.measure else {
        return Err("the cell does not use wrk".into());
    };
    let stored = Past { nodes: 10, minutes: 10, ago_h: 0 }.store()?;
    let url = format!("http://{}{}", stored.address, stored.path(path));
    let header = format!("X-Remote-User: {USER}");
    served::run_wrk(paper.seconds, (*threads, *connections), &[&url, "-H", &header], || stored.cpu_s())
}
