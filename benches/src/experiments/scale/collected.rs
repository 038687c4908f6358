//! The resource usage of a collector and its store under N mock agents.

use std::error::Error;
use std::io;
use std::path::Path;

use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until};
use polymeter_benches::collector::Collector;
use polymeter_benches::process::{Usage, Waits};
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::to_f64;

use super::arguments::Arguments;
use super::fleet::{Fleet, Summary};
use super::part::Part;

#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) agents: u64,
    /// Samples sent, including the first round.
    pub(crate) expected: u64,
    /// Samples stored, including the first round.
    pub(crate) stored: u64,
    pub(crate) seconds: f64,
    /// Duration of the first round.
    pub(crate) first_s: f64,
    pub(crate) collector: Usage,
    pub(crate) server: Usage,
    pub(crate) mocks_cpu_s: f64,
    pub(crate) bytes: u64,
    /// Agents whose last frames were not acknowledged.
    pub(crate) stuck: u64,
    /// Waits of the machine.
    pub(crate) waits: Waits,
}

impl Collected {
    /// Runs this number of agents against a new collector and a new store.
    pub(crate) fn measure(arguments: &Arguments, kind: Kind, agents: u64) -> Result<Self, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        let store = Store::start(kind)?;
        let collectors = start_collectors(arguments, scratch.path(), &store)?;
        let mut mocks = start(arguments, agents, &collectors)?;
        let begin_ns = now_ns();
        // The first frames announce names, for which the store creates series: that is measured separately.
        for mock in &mut mocks {
            mock.line()?;
        }
        let first_s = to_f64(now_ns() - begin_ns) / 1e9;
        let (collector_before, server_before, begin_ns) = (usage(&collectors)?, store.usage()?, now_ns());
        let waits_before = Waits::read()?;
        mocks.iter_mut().try_for_each(Part::go)?;
        let (mut collector_most, mut server_most) = (collector_before, server_before);
        while now_ns() < begin_ns + arguments.seconds * SECOND_NS {
            sleep_until(now_ns() + SECOND_NS);
            collector_most.memory_kib = collector_most.memory_kib.max(usage(&collectors)?.memory_kib);
            server_most.memory_kib = server_most.memory_kib.max(store.usage()?.memory_kib);
        }
        let mut sum = Summary::default();
        for mock in &mut mocks {
            sum.add(&mock.parsed_line()?);
        }
        let (collector_after, server_after) = (usage(&collectors)?, store.usage()?);
        let seconds = to_f64(now_ns() - begin_ns) / 1e9;
        let waits = Waits::read()?.since(&waits_before);
        for collector in collectors {
            collector.stop()?;
        }
        let used = |after: Usage, before: Usage, most: Usage| Usage {
            cpu_s: after.cpu_s - before.cpu_s,
            memory_kib: most.memory_kib,
            descriptors: after.descriptors,
        };
        Ok(Self {
            agents,
            expected: sum.samples,
            stored: store.samples()?,
            seconds,
            first_s,
            collector: used(collector_after, collector_before, collector_most),
            server: used(server_after, server_before, server_most),
            mocks_cpu_s: sum.cpu_s,
            bytes: store.bytes()?,
            stuck: sum.stuck,
            waits,
        })
    }
}

/// Starts the collectors, each in a directory of its own, on the same store.
fn start_collectors(
    arguments: &Arguments,
    scratch: &Path,
    store: &Store,
) -> Result<Vec<Collector>, Box<dyn Error>> {
    let mut collectors = Vec::new();
    for number in 0..arguments.collectors {
        let directory = scratch.join(number.to_string());
        std::fs::create_dir(&directory)?;
        collectors.push(Collector::start(&directory, "tcp://127.0.0.1:*", store, "")?);
    }
    Ok(collectors)
}

fn usage(collectors: &[Collector]) -> io::Result<Usage> {
    let mut sum = Usage::default();
    for collector in collectors {
        let of_one = collector.usage()?;
        sum.cpu_s += of_one.cpu_s;
        sum.memory_kib += of_one.memory_kib;
        sum.descriptors += of_one.descriptors;
    }
    Ok(sum)
}

fn start(arguments: &Arguments, agents: u64, collectors: &[Collector]) -> Result<Vec<Part>, Box<dyn Error>> {
    let processes = arguments.processes_for(agents);
    let mut parts = Vec::new();
    for first in 0..processes {
        let fleet = Fleet {
            endpoints: collectors.iter().map(|collector| collector.endpoint().to_owned()).collect(),
            // Interleaved, so that every process has agents of all phases.
            first,
            step: processes,
            agents,
            per_connection: arguments.per_connection,
            period: arguments.period,
            seconds: arguments.seconds,
            warm_up: arguments.warm_up,
        };
        parts.push(Part::start("fleet", &fleet)?);
    }
    Ok(parts)
}
