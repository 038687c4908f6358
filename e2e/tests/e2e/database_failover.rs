//! A primary database that dies and a standby that takes over. What the standby has not replicated, the
//! agents send again, as far as they keep it; the rest is counted as lost.

use std::fs;

use polymeter_e2e::cgroup::{Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Daemon, Plan};
use polymeter_e2e::server::Server;
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, require, wait_until};

tests![
    a_synchronous_standby_takes_over_without_a_loss,
    frames_that_a_standby_lacks_are_sent_again,
    samples_that_nobody_has_any_more_are_counted_as_lost,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];
/// No metric of the node: all samples belong to the job.
const BASELINE: [(&str, &str); 3] = [("memory.*", "20ms"), ("cpu.*", "20ms"), ("pids.*", "20ms")];
const SOURCES: [&str; 3] = ["v1/memory.stat", "v2/cpu.stat", "v1/pids.current"];
const JOB: &str = "1";
/// Frames that the primary acknowledges and the standby does not get.
const LOST_FRAMES: u64 = 30;

/// A primary and its standby, a collector that knows both, and an agent with a job.
struct Fixture {
    // Fields are dropped in this order: the daemons before the servers and the directories.
    agent: Agent,
    collector: Daemon,
    job: Option<Job>,
    standby: Server,
    env: TestEnvironment,
    _node: TestEnvironment,
    _cgroups: TestCgroups,
}

impl Fixture {
    /// Starts all of it. `keys` are additional keys of the agent's configuration.
    fn new(keys: &str) -> Self {
        require(&NEEDS);
        let (mut env, cgroups) = (TestEnvironment::postgres(), TestCgroups::new());
        let standby = env.server().start_standby();
        let hosts = [env.server().socket_directory(), standby.socket_directory()];
        let [primary, other] = hosts.map(|host| host.display().to_string());
        let store = format!(
            "host={primary},{other} port=5432,5432 user=postgres dbname=postgres target_session_attrs=primary"
        );
        let (config, endpoint) = (env.path("collector.toml"), env.endpoint());
        let text = format!("listen = \"{endpoint}\"\nstore = \"{store}\"\ncommit_interval = \"50ms\"\n");
        fs::write(&config, text).unwrap();
        let collector = Daemon::start(&env, "polymeter-collector", &["--config", config.to_str().unwrap()]);
        wait_until("the collector listens", || collector.log().contains("listening at "));
        let (job, node) = (Some(cgroups.job(JOB)), TestEnvironment::new());
        let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
        let agent = Agent::start_with(&node, &plan, keys, "");
        agent.wait_until_tracked(JOB, &SOURCES);
        let fixture = Self { agent, collector, job, standby, env, _node: node, _cgroups: cgroups };
        fixture.wait_for_frames(LOST_FRAMES);
        fixture
    }

    fn wait_for_frames(&self, frames: u64) {
        let before = self.agent.count("frames_acknowledged");
        wait_until("frames are acknowledged", || self.agent.count("frames_acknowledged") >= before + frames);
    }

    /// Ends replication, so that further transactions of the primary are lost with it.
    fn detach_standby(&self) {
        let replicated = "SELECT count(*) FROM samples";
        wait_until("the standby follows", || self.standby.query(replicated) != "0");
        self.standby.configure("primary_conninfo = ''\n");
        self.standby.query("SELECT pg_reload_conf()");
        wait_until("replication has ended", || {
            self.standby.query("SELECT count(*) FROM pg_stat_wal_receiver") == "0"
        });
        self.wait_for_frames(LOST_FRAMES);
    }

    fn fail_over(&mut self) {
        self.env.server().crash();
        assert_eq!(self.standby.query("SELECT pg_promote()"), "t");
        self.wait_for_frames(LOST_FRAMES);
    }

    /// Ends the job and waits until everything is stored. Returns how many samples were taken, and how many
    /// are lost.
    fn end_job(&mut self) -> (u64, u64) {
        self.job.take().unwrap().remove();
        wait_until("the store knows that the job has ended", || {
            self.standby.query("SELECT count(*) FROM job_node WHERE ended IS NOT NULL") == "1"
        });
        wait_until("no frame waits", || self.agent.count("outbox_bytes") == 0);
        assert_eq!(self.agent.count("dropped"), 0);
        let taken = self.agent.count("taken");
        let count = |sql: &str| self.standby.query(sql).parse::<u64>().unwrap();
        let lost = count("SELECT coalesce(sum(samples), 0) FROM loss");
        let stored = taken - lost;
        for sql in [
            "SELECT count(*) FROM samples",
            "SELECT count(*) FROM (SELECT DISTINCT time, series_id FROM samples) AS one",
            "SELECT sum(stored) FROM session",
        ] {
            assert_eq!(count(sql), stored, "{sql}, of {taken} taken, {lost} lost");
        }
        assert_eq!(count("SELECT count(*) FROM session"), 1);
        assert_eq!(count("SELECT count(*) FROM loss WHERE reason <> 'store_replaced'"), 0);
        wait_until("the ledger balances", || {
            count("SELECT sum(taken) FROM ledger_balance") == taken
                && count("SELECT coalesce(sum(abs(unknown)), 0) FROM ledger_balance") == 0
        });
        (taken, lost)
    }

    fn end(self) -> String {
        self.agent.daemon.terminate();
        self.collector.terminate()
    }
}

fn a_synchronous_standby_takes_over_without_a_loss() {
    let mut fixture = Fixture::new("");
    fixture.env.server().configure("synchronous_standby_names = '*'\n");
    fixture.env.server().query("SELECT pg_reload_conf()");
    let is_sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    wait_until("the standby is synchronous", || fixture.env.server().query(is_sync) == "1");
    fixture.wait_for_frames(LOST_FRAMES);
    fixture.fail_over();
    let (taken, lost) = fixture.end_job();
    assert_eq!(lost, 0, "of {taken}");
    fixture.end();
}

fn frames_that_a_standby_lacks_are_sent_again() {
    let mut fixture = Fixture::new("keep_acknowledged = \"16MiB\"\n");
    fixture.detach_standby();
    let before = fixture.standby.query("SELECT sum(last_sequence) FROM session");
    let acknowledged = fixture.env.server().query("SELECT sum(last_sequence) FROM session");
    assert_ne!(before, acknowledged, "the standby lacks frames");
    fixture.fail_over();
    let (taken, lost) = fixture.end_job();
    assert_eq!(lost, 0, "of {taken}");
    let log = fixture.end();
    assert!(log.contains("a standby took over"), "{log}");
}

fn samples_that_nobody_has_any_more_are_counted_as_lost() {
    let mut fixture = Fixture::new("keep_acknowledged = \"64KiB\"\n");
    fixture.detach_standby();
    // More than the agent keeps.
    let sent = fixture.agent.count("bytes_sent");
    wait_until("more is sent than kept", || fixture.agent.count("bytes_sent") > sent + 200_000);
    fixture.fail_over();
    let (taken, lost) = fixture.end_job();
    assert!(lost > 0 && lost < taken, "{lost} of {taken}");
    fixture.end();
}
