//! Three agents that track the same job, a collector, a database, and a link that can be cut.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use super::comings::Comings;
use super::observer::Observer;
use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector_within, keygen};
use polymeter_e2e::network::{Network, Place};
use polymeter_e2e::reference::Snapshot;
use polymeter_e2e::{TestEnvironment, disk, spooled, wait_until};
use rustix::process::Signal;

/// The agent with a spool on a disk that is full at once. It runs as long as the test.
pub(crate) const NEAR: usize = 0;
/// The agent behind the link. It runs as long as the test.
pub(crate) const FAR: usize = 1;
/// The agent that is killed and restarted.
pub(crate) const MORTAL: usize = 2;
/// The number of agents.
pub(crate) const COUNTED: usize = 3;

const JOB: &str = "1";
const LISTEN: &str = "tcp://10.0.0.1:7717";

/// Metrics, their sources on a machine with both cgroup versions, and their periods.
pub(crate) const METRICS: [(&str, &str, &str); 7] = [
    ("cpu.usage", "v2/cpu.stat", "10ms"),
    ("cpu.user", "v2/cpu.stat", "10ms"),
    ("cpu.system", "v2/cpu.stat", "10ms"),
    ("memory.current", "v1/memory.usage_in_bytes", "10ms"),
    ("memory.pgfault", "v1/memory.stat", "10ms"),
    ("pids.current", "v1/pids.current", "10ms"),
    ("node.load1", "proc/loadavg", "50ms"),
];

/// The sources of the job; the last metric is the node's.
const SOURCES: [&str; 4] = ["v2/cpu.stat", "v1/memory.usage_in_bytes", "v1/memory.stat", "v1/pids.current"];

/// The data that an ended session of an agent must have left in the store.
#[derive(Debug)]
pub(crate) struct Left {
    /// True if it was killed, false if it was terminated.
    pub(crate) killed: bool,
    /// The number of frames that the collector had acknowledged.
    pub(crate) acknowledged: u64,
    /// The sequence number of its last frame that was stored or spooled, and the number of samples in all its frames.
    pub(crate) kept: Option<(u64, u64)>,
}

/// All programs of the test. Fields are dropped in this order.
pub(crate) struct Scene {
    agents: [Option<Agent>; COUNTED],
    collector: Option<Daemon>,
    observer: Option<Observer>,
    comings: Option<Comings>,
    cgroups: Arc<TestCgroups>,
    pub(crate) network: Network,
    nodes: [TestEnvironment; COUNTED],
    /// The directory of the collector, the database and all keys.
    pub(crate) hub: TestEnvironment,
    /// The ended sessions, by id.
    dead: BTreeMap<String, Left>,
    /// The nodes whose agents were stopped for a while.
    stopped: Vec<String>,
}

/// The data that remain after an orderly end.
pub(crate) struct Ended {
    pub(crate) hub: TestEnvironment,
    pub(crate) nodes: Vec<String>,
    pub(crate) job: String,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) dead: BTreeMap<String, Left>,
    pub(crate) stopped: Vec<String>,
    /// The samples that the agents which were never killed counted as due, by node.
    pub(crate) due: Vec<(String, u64)>,
}

impl Scene {
    /// Starts everything. Skips the test if the machine has no PostgreSQL.
    pub(crate) fn set(seed: u64) -> Self {
        let hub = TestEnvironment::best_postgres();
        let nodes = [(); COUNTED].map(|()| TestEnvironment::new());
        fs::create_dir(hub.path("agents.d")).unwrap();
        assert!(keygen(&hub, "collector").0);
        for node in &nodes {
            assert!(keygen(&hub, &node.node).0);
            let public = format!("{}.pub", node.node);
            fs::copy(hub.path(&public), hub.path("agents.d").join(public)).unwrap();
        }
        let (network, cgroups) = (Network::make().unwrap(), Arc::new(TestCgroups::new()));
        let job = cgroups.job(JOB);
        let mut scene = Self {
            agents: [const { None }; COUNTED],
            collector: None,
            observer: Some(Observer::start(job)),
            comings: Some(Comings::start(&cgroups, seed)),
            cgroups,
            network,
            nodes,
            hub,
            dead: BTreeMap::new(),
            stopped: Vec::new(),
        };
        scene.start_collector();
        (0..COUNTED).for_each(|node| scene.start_agent(node));
        scene.must_recover();
        scene
    }

    pub(crate) fn start_collector(&mut self) {
        let (key, agents) = (self.hub.path("collector.key"), self.hub.path("agents.d"));
        let keys = format!("key = \"{}\"\nauthorised_agents = \"{}\"\n", key.display(), agents.display());
        let within = |program| self.network.within(Place::Near, &program);
        self.collector = Some(collector_within(&self.hub, LISTEN, &keys, within).0);
    }

    pub(crate) fn start_agent(&mut self, number: usize) {
        let node = &self.nodes[number];
        let spool = node.path("spool");
        fs::create_dir_all(&spool).unwrap();
        let (key, collector) = (self.hub.path(&format!("{}.key", node.node)), self.hub.path("collector.pub"));
        let keys = format!(
            "key = \"{}\"\ncollector_key = \"{}\"\nspool = \"{}\"\n",
            key.display(),
            collector.display(),
            spool.display()
        );
        let baseline = METRICS.map(|(metric, _, period)| (metric, period));
        let plan = Plan { collector: LISTEN, jobs: &[self.cgroups.pattern()], baseline: &baseline };
        let agent = Agent::start_within(node, &plan, &keys, "", |program| match number {
            FAR => self.network.within(Place::Far, &program),
            NEAR => disk::with_own(&spool, "4k", &self.network.within(Place::Near, &program)),
            _ => self.network.within(Place::Near, &program),
        });
        agent.must_track(JOB, &SOURCES);
        self.agents[number] = Some(agent);
    }

    fn running(&self) -> impl Iterator<Item = &Agent> {
        self.agents.iter().flatten()
    }

    pub(crate) fn collector(&self) -> &Daemon {
        self.collector.as_ref().unwrap()
    }

    pub(crate) fn kill_collector(&mut self) {
        self.collector.take().unwrap().kill();
    }

    pub(crate) fn terminate_collector(&mut self) {
        self.collector.take().unwrap().terminate();
    }

    /// Waits until each running agent has taken more samples.
    pub(crate) fn must_sample(&self) {
        let before: Vec<u64> = self.running().map(|agent| agent.count("taken")).collect();
        for (agent, before) in self.running().zip(before) {
            wait_until("an agent samples", || agent.count("taken") > before + 600);
        }
    }

    /// Waits until an agent writes undelivered data to its spool.
    pub(crate) fn must_spool(&self, number: usize) {
        let agent = self.agents[number].as_ref().unwrap();
        wait_until("an agent writes to its spool", || agent.count("spool_bytes") > 0);
    }

    /// Waits until frames of all agents are acknowledged again.
    pub(crate) fn must_recover(&self) {
        let before: Vec<u64> = self.running().map(|agent| agent.count("frames_acknowledged")).collect();
        for (agent, before) in self.running().zip(before) {
            wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > before + 3);
        }
    }

    /// Stops an agent while the others sample, and continues it.
    pub(crate) fn stop_agent(&mut self, number: usize) {
        let agent = self.agents[number].take().unwrap();
        agent.daemon.signal(Signal::STOP);
        self.must_sample();
        agent.daemon.signal(Signal::CONT);
        self.agents[number] = Some(agent);
        self.stopped.push(self.nodes[number].node.clone());
    }

    /// Ends a session of the agent that is restarted.
    pub(crate) fn end_mortal(&mut self, signal: Signal) {
        let agent = self.agents[MORTAL].take().unwrap();
        let session = agent.status()["session"].as_str().unwrap().to_owned();
        let acknowledged = agent.count("frames_acknowledged");
        let (status, said) = agent.daemon.end(signal);
        let killed = signal == Signal::KILL;
        assert!(killed || status.success(), "{status}: {said}");
        self.dead.insert(session, Left { killed, acknowledged, kept: None });
    }

    /// Counts the data that the ended sessions left in the store and in the spool. No frame may be in transit: neither
    /// the agent nor the collector may run.
    pub(crate) fn count_the_dead(&mut self) {
        for frame in spooled::frames(&self.nodes[MORTAL].path("spool")) {
            let left = self.dead.get_mut(&frame.session).unwrap();
            let (last, samples) = left.kept.get_or_insert_with(|| {
                let sql = format!(
                    "SELECT last_sequence, stored FROM session WHERE session_id = '{}'",
                    frame.session
                );
                let row = self.hub.server().query(&sql);
                row.split_once('|')
                    .map_or((0, 0), |(last, stored)| (last.parse().unwrap(), stored.parse().unwrap()))
            });
            if frame.sequence > *last {
                assert_eq!(frame.sequence, *last + 1, "the spool has a gap");
                (*last, *samples) = (frame.sequence, *samples + frame.samples);
            }
        }
    }

    /// Ends the job and then all programs, in the direction of the data flow.
    pub(crate) fn end(mut self) -> Ended {
        let (job, snapshots) = self.observer.take().unwrap().end();
        job.remove();
        let lives = self.comings.take().unwrap().end();
        assert!(lives > 20, "the other job came {lives} times only");
        let ended = format!(
            "SELECT count(*) FROM job_node JOIN job USING (job_key) WHERE job_id = '{JOB}' AND job_node.ended IS NOT NULL"
        );
        wait_until("the store knows on all nodes that the job has ended", || {
            self.hub.server().query(&ended) == COUNTED.to_string()
        });
        for agent in self.running() {
            wait_until("nothing waits on a disk", || agent.count("spool_bytes") == 0);
        }
        let names = self.nodes.each_ref().map(|node| node.node.clone());
        let mut due = Vec::new();
        for (number, agent) in self.agents.iter_mut().enumerate() {
            let agent = agent.take().unwrap();
            if number != MORTAL {
                due.push((names[number].clone(), agent.count("due")));
            }
            let said = agent.daemon.terminate();
            assert!(!said.contains("did not acknowledge"), "{said}");
            // Its disk was too small for the frames that the other agents could write to their spools.
            assert!(number != NEAR || said.contains("samples that do not fit into memory"), "{said}");
        }
        self.terminate_collector();
        Ended {
            hub: self.hub,
            nodes: names.into(),
            job: JOB.to_owned(),
            snapshots,
            dead: self.dead,
            stopped: self.stopped,
            due,
        }
    }
}
