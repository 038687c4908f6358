//! Three agents that track the same job and poll the same device, a collector, a database, and a link that
//! can be cut. The device lies.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::churn::CgroupChurn;
use super::observer::Observer;
use polymeter_e2e::cgroup::{MemoryLimit, TestCgroups};
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector_within, keygen};
use polymeter_e2e::network::{LinkEnd, Network};
use polymeter_e2e::reference::Snapshot;
use polymeter_e2e::{TestEnvironment, disk, spooled, wait_until, wait_within};
use rustix::process::Signal;

/// Agent with a spool on a disk that is full at once. It runs as long as the test.
pub(crate) const FULL_DISK: usize = 0;
/// Agent behind the link. It runs as long as the test.
pub(crate) const BEHIND_LINK: usize = 1;
pub(crate) const RESTARTED: usize = 2;
pub(crate) const AGENTS: usize = 3;

/// Time until the collector ends a session whose end its successor did not see, and more.
const END_OF_SUPERSEDED: Duration = Duration::from_secs(180);

const JOB: &str = "1";
const ENDPOINT: &str = "tcp://10.0.0.1:7717";

/// Metrics, their sources on a machine with both cgroup versions, and their periods.
pub(crate) const METRICS: [(&str, &str, &str); 9] = [
    ("cpu.usage", "v2/cpu.stat", "10ms"),
    ("cpu.user", "v2/cpu.stat", "10ms"),
    ("cpu.system", "v2/cpu.stat", "10ms"),
    ("memory.current", "v1/memory.usage_in_bytes", "10ms"),
    ("memory.pgfault", "v1/memory.stat", "10ms"),
    ("pids.current", "v1/pids.current", "10ms"),
    // Of the slow lane.
    ("process.io.write.calls", "processes/io", "10ms"),
    ("cpu.allowed", "cpus", "500ms"),
    ("node.load1", "proc/loadavg", "50ms"),
];

/// Metrics of the device, which has a table of its own.
pub(crate) const OF_DEVICE: [(&str, &str); 3] = [
    ("device.liar.power", "device/liar"),
    ("device.liar.identity", "device/liar"),
    ("device.liar.energy", "device/liar"),
];

const DEVICE: &str = "[[device]]\nname = \"liar\"\nurl = \"http://10.0.0.1:9900\"\ntimeout = \"300ms\"\n\
    metric = [{ name = \"power\", address = \"power\", period = \"20ms\" }, \
    { name = \"identity\", address = \"identity\", period = \"100ms\" }, \
    { name = \"energy\", address = \"energy_joules_total\", period = \"50ms\" }]\n";

/// Sources of the job; the last metric is the node's.
const SOURCES: [&str; 6] =
    ["v2/cpu.stat", "v1/memory.usage_in_bytes", "v1/memory.stat", "v1/pids.current", "processes/io", "cpus"];

/// Data that an ended session of an agent must have left in the store.
#[derive(Debug)]
pub(crate) struct EndedSession {
    /// True if it was killed, false if it was terminated.
    pub(crate) killed: bool,
    pub(crate) acknowledged: u64,
    /// Sequence number of its last frame that was stored or spooled, and number of samples in all its frames.
    pub(crate) kept: Option<(u64, u64)>,
}

/// All programs of the test. Fields are dropped in this order.
pub(crate) struct Fixture {
    agents: [Option<Agent>; AGENTS],
    liar: Option<Daemon>,
    collector: Option<Daemon>,
    observer: Option<Observer>,
    churn: Option<CgroupChurn>,
    cgroups: Arc<TestCgroups>,
    pub(crate) network: Network,
    /// That of the agent that is restarted.
    memory: MemoryLimit,
    nodes: [TestEnvironment; AGENTS],
    pub(crate) server_env: TestEnvironment,
    /// Grouped by id.
    ended_sessions: BTreeMap<String, EndedSession>,
    stopped: Vec<String>,
}

/// Data that remain after an orderly end.
pub(crate) struct Results {
    pub(crate) server_env: TestEnvironment,
    pub(crate) nodes: Vec<String>,
    pub(crate) job: String,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) ended_sessions: BTreeMap<String, EndedSession>,
    pub(crate) stopped: Vec<String>,
    /// Samples that the agents which were never killed counted as due, by node.
    pub(crate) due: Vec<(String, u64)>,
}

impl Fixture {
    /// Starts everything. Skips the test if the machine has no PostgreSQL.
    pub(crate) fn new(seed: u64) -> Self {
        let server_env = TestEnvironment::best_postgres();
        let nodes = [(); AGENTS].map(|()| TestEnvironment::new());
        fs::create_dir(server_env.path("agents.d")).unwrap();
        assert!(keygen(&server_env, "collector").0);
        for node in &nodes {
            assert!(keygen(&server_env, &node.node).0);
            let public = format!("{}.pub", node.node);
            fs::copy(server_env.path(&public), server_env.path("agents.d").join(public)).unwrap();
        }
        let (network, cgroups) = (Network::create().unwrap(), Arc::new(TestCgroups::new()));
        let job = cgroups.job(JOB);
        let mut fixture = Self {
            agents: [const { None }; AGENTS],
            liar: None,
            collector: None,
            observer: Some(Observer::start(job)),
            churn: Some(CgroupChurn::start(&cgroups, seed)),
            cgroups,
            network,
            memory: MemoryLimit::new(),
            nodes,
            server_env,
            ended_sessions: BTreeMap::new(),
            stopped: Vec::new(),
        };
        fixture.start_collector();
        let mut liar = Command::new("python3");
        liar.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/faults/liar.py"));
        liar.args(["9900", &seed.to_string()]);
        let liar = fixture.network.within(LinkEnd::Near, &liar);
        fixture.liar = Some(Daemon::of(&fixture.server_env, liar));
        (0..AGENTS).for_each(|node| fixture.start_agent(node));
        fixture.wait_for_acknowledgements();
        fixture
    }

    pub(crate) fn start_collector(&mut self) {
        let (key, agents) = (self.server_env.path("collector.key"), self.server_env.path("agents.d"));
        let keys = format!("key = \"{}\"\nauthorised_agents = \"{}\"\n", key.display(), agents.display());
        self.collector = Some(
            collector_within(&self.server_env, ENDPOINT, &keys, |program| {
                self.network.within(LinkEnd::Near, &program)
            })
            .0,
        );
    }

    pub(crate) fn start_agent(&mut self, number: usize) {
        let node = &self.nodes[number];
        let spool = node.path("spool");
        fs::create_dir_all(&spool).unwrap();
        let (key, collector) =
            (self.server_env.path(&format!("{}.key", node.node)), self.server_env.path("collector.pub"));
        let keys = format!(
            "key = \"{}\"\ncollector_key = \"{}\"\nspool = \"{}\"\n",
            key.display(),
            collector.display(),
            spool.display()
        );
        let baseline = METRICS.map(|(metric, _, period)| (metric, period));
        let plan = Plan { collector: ENDPOINT, jobs: &[self.cgroups.pattern()], baseline: &baseline };
        let agent = Agent::start_within(node, &plan, &keys, DEVICE, |program| match number {
            BEHIND_LINK => self.network.within(LinkEnd::Far, &program),
            FULL_DISK => disk::with_tmpfs(&spool, "4k", &self.network.within(LinkEnd::Near, &program)),
            _ => self.memory.within(&self.network.within(LinkEnd::Near, &program)),
        });
        agent.wait_until_tracked(JOB, &SOURCES);
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

    pub(crate) fn wait_for_samples(&self) {
        let before: Vec<u64> = self.running().map(|agent| agent.count("taken")).collect();
        for (agent, before) in self.running().zip(before) {
            wait_until("an agent samples", || agent.count("taken") > before + 600);
        }
    }

    pub(crate) fn wait_until_spooling(&self, number: usize) {
        let agent = self.agents[number].as_ref().unwrap();
        wait_until("an agent writes to its spool", || agent.count("spool_bytes") > 0);
    }

    pub(crate) fn wait_for_acknowledgements(&self) {
        (0..AGENTS)
            .filter(|number| self.agents[*number].is_some())
            .for_each(|number| self.wait_for_acknowledgements_of(number));
    }

    pub(crate) fn wait_for_acknowledgements_of(&self, number: usize) {
        let acknowledged = || self.agents[number].as_ref().unwrap().count("frames_acknowledged");
        let before = acknowledged();
        wait_until("frames are acknowledged", || acknowledged() > before + 3);
    }

    /// Stops an agent while the others sample, and continues it.
    pub(crate) fn stop_agent(&mut self, number: usize) {
        let agent = self.agents[number].take().unwrap();
        agent.daemon.signal(Signal::STOP);
        self.wait_for_samples();
        agent.daemon.signal(Signal::CONT);
        self.stopped.push(agent.status()["session"].as_str().unwrap().to_owned());
        self.agents[number] = Some(agent);
    }

    pub(crate) fn end_restarted_agent(&mut self, signal: Signal) {
        let agent = self.agents[RESTARTED].take().unwrap();
        let session = agent.status()["session"].as_str().unwrap().to_owned();
        let acknowledged = agent.count("frames_acknowledged");
        let (status, log) = agent.daemon.end(signal);
        let killed = signal == Signal::KILL;
        assert!(killed || status.success(), "{status}: {log}");
        self.ended_sessions.insert(session, EndedSession { killed, acknowledged, kept: None });
    }

    /// Starts the agent again some time after it was ended.
    pub(crate) fn start_again_after(&mut self, end: impl FnOnce(&mut Self)) {
        end(self);
        self.wait_for_samples();
        self.start_agent(RESTARTED);
    }

    /// Has the kernel kill the agent for want of memory.
    pub(crate) fn exhaust_memory_of_restarted_agent(&mut self) {
        let mut agent = self.agents[RESTARTED].take().unwrap();
        let session = agent.status()["session"].as_str().unwrap().to_owned();
        let acknowledged = agent.count("frames_acknowledged");
        self.memory.squeeze(&mut agent.daemon);
        self.memory.lift();
        self.ended_sessions.insert(session, EndedSession { killed: true, acknowledged, kept: None });
    }

    /// Counts the data that the ended sessions left in the store and in the spool. No frame may be in
    /// transit: neither the agent nor the collector may run.
    pub(crate) fn record_ended_sessions(&mut self) {
        for frame in spooled::frames(&self.nodes[RESTARTED].path("spool")) {
            let session = self.ended_sessions.get_mut(&frame.session).unwrap();
            let (last, samples) = session.kept.get_or_insert_with(|| {
                let sql = format!(
                    "SELECT last_sequence, stored FROM session WHERE session_id = '{}'",
                    frame.session
                );
                let row = self.server_env.server().query(&sql);
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
    pub(crate) fn end(mut self) -> Results {
        let (job, snapshots) = self.observer.take().unwrap().end();
        job.remove();
        let cycles = self.churn.take().unwrap().end();
        assert!(cycles > 20, "the cgroups of the other job were created {cycles} times only");
        let ended = format!(
            "SELECT count(*) FROM job_node JOIN job USING (job_key) WHERE job_id = '{JOB}' AND job_node.ended IS NOT NULL"
        );
        wait_until("the store knows on all nodes that the job has ended", || {
            self.server_env.server().query(&ended) == AGENTS.to_string()
        });
        for agent in self.running() {
            wait_until("nothing waits on a disk", || agent.count("spool_bytes") == 0);
        }
        let running = "SELECT count(*) FROM session WHERE ended IS NULL";
        // One whose last frame was stored together with the first of its successor ends when it is silent.
        wait_within(END_OF_SUPERSEDED, "each session that was killed has an end", || {
            self.server_env.server().query(running) == AGENTS.to_string()
        });
        let names = self.nodes.each_ref().map(|node| node.node.clone());
        let mut due = Vec::new();
        for (number, agent) in self.agents.iter_mut().enumerate() {
            let agent = agent.take().unwrap();
            if number != RESTARTED {
                due.push((names[number].clone(), agent.count("due")));
            }
            let log = agent.daemon.terminate();
            assert!(!log.contains("did not acknowledge"), "{log}");
            // Its disk was too small for the frames that the other agents could write to their spools.
            assert!(number != FULL_DISK || log.contains("samples that do not fit into memory"), "{log}");
        }
        self.terminate_collector();
        Results {
            server_env: self.server_env,
            nodes: names.into(),
            job: JOB.to_owned(),
            snapshots,
            ended_sessions: self.ended_sessions,
            stopped: self.stopped,
            due,
        }
    }
}
