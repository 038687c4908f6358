//! Kills and freezes collectors of one database at random, and takes the database away, while agents sample
//! a job.

use std::error::Error;
use std::fs;
use std::path::Path;

use polymeter_benches::agent::Agent;
use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until, wall_us};
use polymeter_benches::collector::Collector;
use polymeter_benches::job::Job;
use polymeter_benches::plan;
use polymeter_benches::statistics::Random;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::sums::{Sums, stored_twice};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::control::{Answer, KeepRequest, Request};
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::text::Text;
use rustix::process::Signal;

/// Kills collectors and their database: each sample must be stored once.
///
/// Every second agent sends windows, and all keep intervals of their rings at random. Needs root, for
/// cgroups, and PostgreSQL; the store grows by some GB. The events are random and follow from the seed; at
/// most all collectors but one are away at the same time. With --outage the database is away for some time
/// after that, and a collector is killed before, in the middle and after. Ten minutes without a database:
/// --collectors 1 --agents 100 --period 50ms --seconds 0 --outage 600.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of collectors.
    #[arg(long, default_value_t = 3)]
    collectors: usize,
    /// Number of agents, each with its own node name and order of the collectors.
    #[arg(long, default_value_t = 4)]
    agents: usize,
    /// Time in which collectors are killed and frozen, in seconds.
    #[arg(long, default_value_t = 150)]
    seconds: u64,
    /// Time in which the database is away after that, in seconds.
    #[arg(long, default_value_t = 0)]
    outage: u64,
    /// Period of the metrics.
    #[arg(long, default_value = "1ms")]
    period: String,
    /// Seed of the events.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Store; by default the best server that is installed.
    #[arg(long, value_enum)]
    store: Option<Kind>,
    /// Run for some seconds with a longer period, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// Shortest and longest time between two events.
const PAUSE_MS: (u64, u64) = (1_000, 6_000);

/// Longest time for which a killed collector is away.
const AWAY_MS: u64 = 8_000;

/// Shortest and longest time for which a collector is frozen: agents leave it after 10 to 15 s.
const FROZEN_MS: (u64, u64) = (1_000, 25_000);

/// An agent with a smaller outbox has caught up: some frames of a second, of 15 kB at 1 ms.
const SETTLED_BYTES: u64 = 64 * 1024;

/// Limit for catching up: after ten minutes without a database it takes some minutes.
const PATIENCE_S: u64 = 1_800;

struct Member {
    collector: Collector,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    /// Killed; it is started at this time.
    Killed(u64),
    /// Stopped; it continues at this time.
    Frozen(u64),
}

#[derive(Debug, Default)]
struct Events {
    kills: u32,
    freezes: u32,
    keeps: u32,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.seconds, arguments.outage, arguments.period) = (15, 4, "20ms".to_owned());
    }
    let kind = arguments.store.unwrap_or_else(Kind::best);
    if kind == Kind::Sqlite {
        say("SKIPPED: no PostgreSQL server is installed");
        return Ok(());
    }
    table::machine();
    let scratch = tempfile::tempdir()?;
    let mut job = Job::make_for("failover", 1)?;
    job.work(&scratch.path().join("file"))?;
    let mut store = Store::start(kind)?;
    let mut members = start_collectors(scratch.path(), &store, arguments.collectors)?;
    let agents = start_agents(scratch.path(), &members, &job, &arguments)?;
    say(&format!(
        "{kind}; {} collectors, {} agents, all of one job every {}; seed {}",
        arguments.collectors, arguments.agents, arguments.period, arguments.seed
    ));
    let begin_ns = now_ns();
    let events =
        disturb(&mut members, &agents, job.id(), &mut Random::new(arguments.seed), arguments.seconds)?;
    say(&format!(
        "{} kills, {} freezes, {} requests to keep an interval in {} s",
        events.kills, events.freezes, events.keeps, arguments.seconds
    ));
    if arguments.outage > 0 {
        take_database_away(&mut store, &mut members, &agents, arguments.outage)?;
    }
    catch_up(&agents)?;
    let taken_s = to_f64(now_ns() - begin_ns) / 1e9;
    drop(job);
    end(agents, members, &store, taken_s)
}

fn start_collectors(scratch: &Path, store: &Store, count: usize) -> Result<Vec<Member>, Box<dyn Error>> {
    let mut members = Vec::new();
    for number in 0..count {
        let directory = scratch.join(format!("collector{number}"));
        fs::create_dir(&directory)?;
        // The collectors that are started after a kill listen on the same port.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let collector = Collector::start(&directory, &format!("tcp://127.0.0.1:{port}"), store, "")?;
        members.push(Member { collector, state: State::Runs });
    }
    Ok(members)
}

fn start_agents(
    scratch: &Path,
    members: &[Member],
    job: &Job,
    arguments: &Arguments,
) -> Result<Vec<Agent>, Box<dyn Error>> {
    let endpoints: Vec<String> =
        members.iter().map(|member| format!("\"{}\"", member.collector.endpoint())).collect();
    let period: Period = arguments.period.parse()?;
    let mut agents = Vec::new();
    for number in 0..arguments.agents {
        let directory = scratch.join(format!("agent{number}"));
        fs::create_dir(&directory)?;
        let mut list = endpoints.clone();
        list.rotate_left(number % endpoints.len().max(1));
        let head =
            format!("node = \"n{number}\"\njobs = [\"{}\"]\ncollector_return = \"10s\"\n", job.pattern());
        let list = format!("[{}]", list.join(", "));
        // Every second agent sends windows. All have rings, of which some intervals are kept.
        let window = Sampling::windowed(period, Period::SECOND).ok().filter(|_| number % 2 == 1);
        let baseline =
            plan::baseline(plan::job_metrics(true), window.unwrap_or_else(|| Sampling::raw(period)));
        let ring = format!("[hindsight]\nkeep = \"20s\"\n[hindsight.metrics]\n\"memory.*\" = \"{period}\"\n");
        agents.push(Agent::start(&directory, &list, &format!("{head}{baseline}{ring}"))?);
    }
    Ok(agents)
}

/// Kills and freezes collectors for `seconds`, at most all but one at the same time. In the end all of them
/// run.
fn disturb(
    members: &mut [Member],
    agents: &[Agent],
    job: &str,
    random: &mut Random,
    seconds: u64,
) -> Result<Events, Box<dyn Error>> {
    let mut events = Events::default();
    let end_ns = now_ns() + seconds * SECOND_NS;
    let mut next_ns = now_ns() + 3 * SECOND_NS;
    let between =
        |random: &mut Random, (least, most): (u64, u64)| (least + random.below(most - least)) * 1_000_000;
    while now_ns() < end_ns {
        sleep_until(now_ns() + SECOND_NS / 20);
        members.iter_mut().try_for_each(|member| member.recover(now_ns()))?;
        if now_ns() < next_ns {
            continue;
        }
        next_ns = now_ns() + between(random, PAUSE_MS);
        events.keeps += keep(agents, job, random)?;
        let mut running: Vec<&mut Member> =
            members.iter_mut().filter(|member| member.state == State::Runs).collect();
        let which = usize::try_from(random.below(running.len() as u64))?;
        if running.len() < 2 {
            continue;
        }
        let Some(member) = running.get_mut(which) else { continue };
        if random.below(2) == 0 {
            member.collector.kill()?;
            member.state = State::Killed(now_ns() + between(random, (0, AWAY_MS)));
            events.kills += 1;
        } else {
            member.collector.signal(Signal::STOP)?;
            member.state = State::Frozen(now_ns() + between(random, FROZEN_MS));
            events.freezes += 1;
        }
    }
    members.iter_mut().try_for_each(|member| member.recover(u64::MAX))?;
    Ok(events)
}

/// Has an agent keep up to 10 s of its ring, which may end in the future. Returns 1, or 0 if it refuses.
fn keep(agents: &[Agent], job: &str, random: &mut Random) -> Result<u32, Box<dyn Error>> {
    let which = usize::try_from(random.below(agents.len() as u64))?;
    let Some(agent) = agents.get(which) else { return Ok(0) };
    let now_us = wall_us();
    let end_us = now_us + i64::try_from(random.below(4_000_000))? - 2_000_000;
    let begin_us = end_us - 1 - i64::try_from(random.below(10_000_000))?;
    let request = KeepRequest {
        job: job.to_owned(),
        begin_us,
        end_us,
        trigger: random.below(u64::MAX >> 1),
        reason: Text::of("at random"),
        owner_uid: None,
    };
    let answer = agent.connect()?.ask(&Request::Keep(request))?;
    Ok(u32::from(matches!(answer, Answer::Keeps(_))))
}

impl Member {
    /// Starts or continues the collector if its time has come.
    fn recover(&mut self, now_ns: u64) -> Result<(), Box<dyn Error>> {
        match self.state {
            State::Killed(at_ns) if at_ns <= now_ns => self.collector.recover()?,
            State::Frozen(at_ns) if at_ns <= now_ns => self.collector.signal(Signal::CONT)?,
            State::Runs | State::Killed(_) | State::Frozen(_) => return Ok(()),
        }
        self.state = State::Runs;
        Ok(())
    }
}

/// Stops the database for `seconds`. A collector is killed before, in the middle, and after.
fn take_database_away(
    store: &mut Store,
    members: &mut [Member],
    agents: &[Agent],
    seconds: u64,
) -> Result<(), Box<dyn Error>> {
    let collector = &mut members.first_mut().ok_or("there is no collector")?.collector;
    let mut kill = || -> Result<(), Box<dyn Error>> {
        collector.kill()?;
        collector.start_again()
    };
    kill()?;
    store.fail()?;
    sleep_until(now_ns() + seconds * SECOND_NS / 2);
    kill()?;
    sleep_until(now_ns() + seconds * SECOND_NS / 2);
    let bytes = outbox_bytes(agents)?;
    say(&format!(
        "no database for {seconds} s, a collector killed 3 times; outboxes of {:.1} MB, the largest {:.1} kB",
        to_f64(bytes.iter().sum()) / 1e6,
        to_f64(bytes.iter().copied().max().unwrap_or(0)) / 1e3,
    ));
    store.recover()?;
    kill()
}

fn outbox_bytes(agents: &[Agent]) -> Result<Vec<u64>, Box<dyn Error>> {
    agents.iter().map(|agent| Ok(agent.connect()?.status()?.counts.outbox_bytes)).collect()
}

/// Waits until no agent has more in its outbox than it samples in a moment.
fn catch_up(agents: &[Agent]) -> Result<(), Box<dyn Error>> {
    let begin_ns = now_ns();
    loop {
        let bytes = outbox_bytes(agents)?;
        let passed_ns = now_ns() - begin_ns;
        if bytes.iter().all(|bytes| *bytes < SETTLED_BYTES) {
            say(&format!("caught up after {:.0} s", to_f64(passed_ns) / 1e9));
            return Ok(());
        }
        if passed_ns > PATIENCE_S * SECOND_NS {
            return Err(format!("not caught up after {PATIENCE_S} s: outboxes of {bytes:?} bytes").into());
        }
        sleep_until(now_ns() + SECOND_NS);
    }
}

/// Stops agents and collectors, in the direction of the data flow, and compares rows, sessions and ledger.
fn end(agents: Vec<Agent>, members: Vec<Member>, store: &Store, taken_s: f64) -> Result<(), Box<dyn Error>> {
    // The final samples of the job.
    sleep_until(now_ns() + 5 * SECOND_NS);
    for agent in agents {
        if !agent.stop() {
            return Err("an agent did not deliver everything before its end".into());
        }
    }
    for member in members {
        member.collector.stop()?;
    }
    let sums = Sums::read(store)?;
    let (twice, of_sessions) = (
        stored_twice(store)?,
        store.ask("SELECT CAST(coalesce(sum(stored), 0) AS bigint) FROM session")?.parse::<u64>()?,
    );
    say("");
    say(&format!("{sums}; of sessions {of_sessions}; stored twice {twice}"));
    say(&format!("{:.0} samples/s", to_f64(sums.taken) / taken_s));
    sums.check()?;
    if sums.dropped + sums.lost + twice > 0 || of_sessions != sums.stored {
        return Err("samples were lost or stored twice".into());
    }
    Ok(())
}
