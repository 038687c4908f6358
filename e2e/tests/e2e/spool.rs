//! The spool, with real programs that are killed: what was on the disk is stored, once, by the next life of the agent.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use polymeter_e2e::cgroup::{Job, Yard};
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::{Need, Site, has, program, spooled, wait_until};
use rusqlite::Connection;
use rustix::process::Signal;

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

/// Nothing of the node: all samples are those of jobs.
const BASELINE: [(&str, &str); 3] = [("memory.*", "1ms"), ("cpu.*", "1ms"), ("pids.*", "1ms")];

/// An agent with little memory, a spool and a job, and no collector.
struct Scene {
    site: Site,
    yard: Yard,
    _job: Job,
    agent: Agent,
}

impl Scene {
    fn set(test: &str) -> Option<Self> {
        if !has(test, &NEEDS) {
            return None;
        }
        let (site, yard) = (Site::new(), Yard::new());
        let job = yard.job("1");
        let agent = start(&site, &yard);
        agent.must_follow("1", &["v1/memory.stat"]);
        Some(Self { site, yard, _job: job, agent })
    }
}

fn start(site: &Site, yard: &Yard) -> Agent {
    let plan = Plan { collector: &site.endpoint(), jobs: &[yard.pattern()], baseline: &BASELINE };
    let keys = format!("outbox = \"64KiB\"\nspool = \"{}\"\n", site.path("spool").display());
    Agent::start_with(site, &plan, &keys, "")
}

fn segments(site: &Site) -> usize {
    spooled::segments(&site.path("spool")).len()
}

/// How many samples lie in the spool, by session.
fn spooled(site: &Site) -> BTreeMap<String, u64> {
    let mut samples: BTreeMap<String, u64> = BTreeMap::new();
    for frame in spooled::frames(&site.path("spool")) {
        *samples.entry(frame.session).or_default() += frame.samples;
    }
    samples
}

/// The one number that `sql` gives.
fn number(store: &Path, sql: &str) -> u64 {
    let number: i64 = Connection::open(store).unwrap().query_row(sql, (), |row| row.get(0)).unwrap();
    number as u64
}

#[test]
fn what_is_on_the_disk_outlives_every_kill_and_is_stored_once() {
    let Some(scene) = Scene::set("what_is_on_the_disk_outlives_every_kill_and_is_stored_once") else {
        return;
    };
    let Scene { site, yard, agent, .. } = scene;
    wait_until("much is on the disk", || agent.count("spool_bytes") > 300_000);
    assert_eq!((agent.count("dropped"), agent.count("frames_acknowledged")), (0, 0));
    assert!(agent.count("outbox_bytes") < 3 * 64 * 1024);
    agent.daemon.kill();
    let kept = spooled(&site);
    assert_eq!(kept.len(), 1);
    assert!(kept.values().all(|samples| *samples > 100_000), "{kept:?}");

    // The next life finds it, begins to send it, and is killed as well; and so is the collector.
    let agent = start(&site, &yard);
    let (running, endpoint) = collector(&site, &site.endpoint());
    wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > 0);
    agent.daemon.kill();
    running.kill();
    let (running, _) = collector(&site, &endpoint);
    let agent = start(&site, &yard);
    wait_until("nothing is left on the disk", || segments(&site) == 0 && agent.count("spool_bytes") == 0);

    let store = site.path("store.db");
    for (session, samples) in kept {
        let stored = format!("SELECT stored FROM session WHERE session_id = '{session}'");
        let losses = site.reader().losses(None).unwrap();
        assert_eq!(number(&store, &stored), samples, "{session}: {losses:?}");
    }
    // In one statement: the agent goes on sampling.
    let twice = "SELECT (SELECT count(*) FROM samples) - (SELECT count(*) FROM (SELECT DISTINCT time, series_id FROM samples))";
    assert_eq!(number(&store, twice), 0);
    // Nothing that was taken is lost; what the killed might have taken afterwards is unknown.
    let lost = "SELECT count(*) FROM loss JOIN session USING (session_id) WHERE reason <> 'unknown' OR end_reason <> 'superseded'";
    assert_eq!(number(&store, lost), 0);
    agent.daemon.terminate();
    running.terminate();
}

#[test]
fn an_end_without_a_collector_loses_nothing() {
    let Some(scene) = Scene::set("an_end_without_a_collector_loses_nothing") else { return };
    let Scene { site, yard, agent, .. } = scene;
    let (_, session) = (agent.count("taken"), agent.status()["session"].as_str().unwrap().to_owned());
    let (status, said) = agent.daemon.end(Signal::TERM);
    assert!(status.success() && said.contains("waits in the spool"), "{status}: {said}");
    let kept = spooled(&site);
    // A second agent beside it is refused, and says why.
    let agent = start(&site, &yard);
    let config = site.path("agent.toml");
    let socket = site.path("other.sock");
    let other = program("polymeter-agent")
        .args(["--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let why = String::from_utf8(other.stderr).unwrap();
    assert!(!other.status.success() && why.contains("another agent uses the spool"), "{why}");

    let (running, _) = collector(&site, &site.endpoint());
    wait_until("nothing is left on the disk", || segments(&site) == 0);
    let store = site.path("store.db");
    // The last tallies were in the spool, too: nothing is missing of all that was due.
    let of_session = |sum: &str| {
        number(&store, &format!("SELECT sum({sum}) FROM ledger_balance WHERE session_id = '{session}'"))
    };
    assert_eq!(of_session("stored"), kept[&session]);
    assert_eq!(of_session("due"), of_session("missed + absent + stored"));
    agent.daemon.terminate();
    running.terminate();
}
