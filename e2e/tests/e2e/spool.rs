//! The spool, with real programs that are killed: the agent's next session delivers the spooled data, and
//! each sample is stored once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use polymeter_e2e::cgroup::{Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, program, require, spooled, wait_until};
use rusqlite::Connection;
use rustix::process::Signal;

tests![spooled_data_survives_kills_and_is_stored_once, shutdown_without_collector_keeps_the_spool,];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

/// Period of an agent that fills a spool, and of one that empties it besides.
const FILLING: &str = "1ms";
const EMPTYING: &str = "20ms";

/// An agent with a small outbox, a spool and a job, and without a collector.
struct Fixture {
    env: TestEnvironment,
    cgroups: TestCgroups,
    _job: Job,
    agent: Agent,
}

impl Fixture {
    fn new() -> Self {
        require(&NEEDS);
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let job = cgroups.job("1");
        let agent = start(&env, &cgroups, FILLING);
        agent.wait_until_tracked("1", &["v1/memory.stat"]);
        Self { env, cgroups, _job: job, agent }
    }
}

fn start(env: &TestEnvironment, cgroups: &TestCgroups, period: &str) -> Agent {
    // No metric of the node: all samples belong to jobs.
    let baseline = ["memory.*", "cpu.*", "pids.*"].map(|metrics| (metrics, period));
    let plan = Plan { collector: &env.endpoint(), jobs: &[cgroups.pattern()], baseline: &baseline };
    let keys = format!("outbox_bytes = \"64KiB\"\nspool = \"{}\"\n", env.path("spool").display());
    Agent::start_with(env, &plan, &keys, "")
}

fn segments(env: &TestEnvironment) -> usize {
    spooled::segments(&env.path("spool")).len()
}

/// How many samples of each session are in the spool.
fn spooled(env: &TestEnvironment) -> BTreeMap<String, u64> {
    let mut samples: BTreeMap<String, u64> = BTreeMap::new();
    for frame in spooled::frames(&env.path("spool")) {
        *samples.entry(frame.session).or_default() += frame.samples;
    }
    samples
}

fn number(store: &Path, sql: &str) -> u64 {
    let number: i64 = Connection::open(store).unwrap().query_row(sql, (), |row| row.get(0)).unwrap();
    number as u64
}

fn spooled_data_survives_kills_and_is_stored_once() {
    let fixture = Fixture::new();
    let Fixture { env, cgroups, agent, .. } = fixture;
    wait_until("much is on the disk", || agent.count("spool_bytes") > 300_000);
    assert_eq!((agent.count("dropped"), agent.count("frames_acknowledged")), (0, 0));
    assert!(agent.count("outbox_bytes") < 3 * 64 * 1024);
    agent.daemon.kill();
    let kept = spooled(&env);
    assert_eq!(kept.len(), 1);
    assert!(kept.values().all(|samples| *samples > 100_000), "{kept:?}");

    // The next agent finds the spool, begins to send it, and is killed as well, and so is the collector.
    let agent = start(&env, &cgroups, EMPTYING);
    let (running, endpoint) = collector(&env, &env.endpoint());
    wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > 0);
    agent.daemon.kill();
    running.kill();
    let (running, _) = collector(&env, &endpoint);
    let agent = start(&env, &cgroups, EMPTYING);
    wait_until("nothing is left on the disk", || segments(&env) == 0 && agent.count("spool_bytes") == 0);

    let store = env.path("store.db");
    for (session, samples) in kept {
        let stored = format!("SELECT stored FROM session WHERE session_id = '{session}'");
        let losses = env.reader().last_losses(u32::MAX).unwrap();
        assert_eq!(number(&store, &stored), samples, "{session}: {losses:?}");
    }
    // One statement, since the agent keeps sampling.
    let twice = "SELECT (SELECT count(*) FROM samples) - (SELECT count(*) FROM (SELECT DISTINCT time, series_id FROM samples))";
    assert_eq!(number(&store, twice), 0);
    // No sample that was taken is lost. The samples that a killed agent took after its last frame are
    // unknown.
    let lost = "SELECT count(*) FROM loss JOIN session USING (session_id) WHERE reason <> 'unknown' OR end_reason <> 'superseded'";
    assert_eq!(number(&store, lost), 0);
    agent.daemon.terminate();
    running.terminate();
}

fn shutdown_without_collector_keeps_the_spool() {
    let fixture = Fixture::new();
    let Fixture { env, cgroups, agent, .. } = fixture;
    let (_, session) = (agent.count("taken"), agent.status()["session"].as_str().unwrap().to_owned());
    let (status, log) = agent.daemon.end(Signal::TERM);
    assert!(status.success() && log.contains("wait in the spool"), "{status}: {log}");
    let kept = spooled(&env);
    // A second agent with the same spool is refused with a message.
    let agent = start(&env, &cgroups, EMPTYING);
    let config = env.path("agent.toml");
    let socket = env.path("other.sock");
    let other = program("polymeter-agent")
        .args(["--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let why = String::from_utf8(other.stderr).unwrap();
    assert!(!other.status.success() && why.contains("another agent uses the spool"), "{why}");

    let (running, _) = collector(&env, &env.endpoint());
    wait_until("nothing is left on the disk", || segments(&env) == 0);
    let store = env.path("store.db");
    // The last tallies were in the spool, too: each sample that was due is accounted for.
    let of_session = |sum: &str| {
        number(&store, &format!("SELECT sum({sum}) FROM ledger_balance WHERE session_id = '{session}'"))
    };
    assert_eq!(of_session("stored"), kept[&session]);
    assert_eq!(of_session("due"), of_session("missed + absent + stored"));
    agent.daemon.terminate();
    running.terminate();
}
