//! What a collector and its store take that N mock agents push to.

use std::error::Error;

use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until};
use polymeter_benches::collector::Collector;
use polymeter_benches::process::Usage;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::to_f64;

use crate::arguments::Arguments;
use crate::fleet::{Fleet, Summary};
use crate::part::Part;

/// What one number of agents took.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) agents: u64,
    /// Samples that were sent, the first round's included.
    pub(crate) expected: u64,
    /// Samples that are stored, the first round's included.
    pub(crate) stored: u64,
    /// How long was measured, in seconds.
    pub(crate) seconds: f64,
    /// How long the first round took, in seconds.
    pub(crate) first_s: f64,
    pub(crate) collector: Usage,
    pub(crate) server: Usage,
    pub(crate) mocks_cpu_s: f64,
    /// Bytes of all samples on the disk.
    pub(crate) bytes: u64,
    /// Agents whose last frames were never acknowledged.
    pub(crate) stuck: u64,
}

impl Collected {
    /// Runs so many agents against a collector and a store of their own.
    pub(crate) fn measure(arguments: &Arguments, kind: Kind, agents: u64) -> Result<Self, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        let store = Store::start(kind)?;
        let collector = Collector::start(scratch.path(), "tcp://127.0.0.1:*", &store, "")?;
        let mut mocks = start(arguments, agents, collector.endpoint())?;
        let begin_ns = now_ns();
        // The first frames bring the names, and the store makes its series: that is measured apart.
        for mock in &mut mocks {
            mock.line()?;
        }
        let first_s = to_f64(now_ns() - begin_ns) / 1e9;
        let (collector_before, server_before, begin_ns) = (collector.usage()?, store.usage()?, now_ns());
        mocks.iter_mut().try_for_each(Part::go)?;
        let (mut collector_most, mut server_most) = (collector_before, server_before);
        while now_ns() < begin_ns + arguments.seconds * SECOND_NS {
            sleep_until(now_ns() + SECOND_NS);
            collector_most.memory_kib = collector_most.memory_kib.max(collector.usage()?.memory_kib);
            server_most.memory_kib = server_most.memory_kib.max(store.usage()?.memory_kib);
        }
        let mut sum = Summary::default();
        for mock in &mut mocks {
            sum.add(&mock.said()?);
        }
        let (collector_after, server_after) = (collector.usage()?, store.usage()?);
        let seconds = to_f64(now_ns() - begin_ns) / 1e9;
        collector.stop()?;
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
        })
    }
}

/// Spreads the agents over processes.
fn start(arguments: &Arguments, agents: u64, endpoint: &str) -> Result<Vec<Part>, Box<dyn Error>> {
    let processes = arguments.processes_for(agents);
    let start = |number| {
        let fleet = Fleet {
            endpoint: endpoint.to_owned(),
            // Every process has agents of all phases.
            first: number,
            step: processes,
            agents,
            per_connection: arguments.per_connection,
            period: arguments.period,
            seconds: arguments.seconds,
        };
        Part::start("--fleet", &fleet)
    };
    (0..processes).map(start).collect()
}
