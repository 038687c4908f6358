//! A store on a full disk: the data wait in the agents, nothing is lost, and messages are not repeated.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector, collector_within};
use polymeter_e2e::disk::{self, SharedDisk};
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, program, require, wait_until};
use rusqlite::Connection;

use crate::ledger::number;

tests![
    full_disk_delays_data_and_loses_none,
    full_disk_of_the_server_delays_data_and_loses_none,
    a_limit_of_file_sizes_is_a_full_disk,
];

const NEEDS: [Need; 4] = [Need::Root, Need::Cgroup1, Need::Cgroup2, Need::Mounts];
const BASELINE: [(&str, &str); 3] = [("memory.*", "2ms"), ("cpu.*", "2ms"), ("pids.*", "2ms")];
/// A full disk of a server needs no more samples than one statement has.
const SLOWER: [(&str, &str); 3] = [("memory.*", "10ms"), ("cpu.*", "10ms"), ("pids.*", "10ms")];

/// Starts a collector with a private file system of 2 MiB.
fn sqlite_collector(env: &TestEnvironment, disk: &str) -> Daemon {
    let config = env.path("collector.toml");
    let text = format!(
        "listen = \"{}\"\nstore = \"sqlite:{disk}/store.db\"\ncommit_interval = \"50ms\"\n",
        env.endpoint()
    );
    fs::write(&config, text).unwrap();
    let mut collector = program("polymeter-collector");
    collector.arg("--config").arg(config);
    let command = disk::with_tmpfs(disk.as_ref(), "2m", &collector);
    let daemon = Daemon::of(env, command);
    wait_until("the collector listens", || daemon.log().contains("listening at "));
    daemon
}

fn full_disk_delays_data_and_loses_none() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let disk = env.path("disk");
    fs::create_dir(&disk).unwrap();
    let disk = disk.to_str().unwrap();
    let running = sqlite_collector(&env, disk);
    let job = cgroups.job("1");
    let agent = Agent::start(
        &env,
        &Plan { collector: &env.endpoint(), jobs: &[cgroups.pattern()], baseline: &BASELINE },
    );
    agent.wait_until_tracked("1", &["v1/memory.stat"]);
    wait_until("the disk is full", || running.log().contains("retrying until it succeeds"));
    assert!(running.log().contains("free space on the disk of the store"), "{}", running.log());
    let acknowledged = agent.count("frames_acknowledged");
    assert!(acknowledged > 0);
    wait_until("the agent keeps new samples", || agent.count("outbox_bytes") > 100_000);
    assert_eq!(agent.count("frames_acknowledged"), acknowledged);

    let pid = running.pid().to_string();
    // A copy that does not fit says what to do, and has no job.
    let [store, copy] = ["store.db", "copy.db"].map(|name| format!("sqlite:{disk}/{name}"));
    let (status, said) = polymeter_in_mounts(&pid, &["store", "copy", &store, &copy]);
    assert!(status == Some(1) && said.contains("; make room on the disk of the store"), "{said}");
    let (status, said) = polymeter_in_mounts(&pid, &["jobs", "--store", &copy]);
    assert!(status != Some(0) || !said.contains("1 "), "{said}");
    let grown = Command::new("nsenter")
        .args(["-t", &pid, "-m", "mount", "-o", "remount,size=200m", disk])
        .status()
        .unwrap();
    assert!(grown.success());
    wait_until("the store is available again", || running.log().contains("the store is available again"));
    job.remove();
    wait_until("the job has ended", || agent.jobs().is_empty());
    wait_until("no frame waits", || agent.count("outbox_bytes") == 0);
    let (taken, dropped) = (agent.count("taken"), agent.count("dropped"));
    agent.daemon.terminate();
    // Copied from within the collector's mount namespace.
    let copy = env.path("copy");
    let copied =
        Command::new("nsenter").args(["-t", &pid, "-m", "cp", "-r", disk]).arg(&copy).status().unwrap();
    assert!(copied.success());
    let store = Connection::open(copy.join("store.db")).unwrap();
    assert_eq!((number(&store, "SELECT count(*) FROM samples"), dropped), (taken, 0));
    assert_eq!(number(&store, "SELECT count(*) FROM (SELECT DISTINCT time, series_id FROM samples)"), taken);
    assert_eq!(number(&store, "SELECT count(*) FROM loss"), 0);
    let log = running.terminate();
    assert_causes_are_logged_once(&log);
    assert!(log.lines().count() < 12, "{log}");
}

fn polymeter_in_mounts(pid: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("nsenter");
    command.args(["-t", pid, "-m"]).arg(program("polymeter").get_program()).args(arguments);
    let output = command.output().unwrap();
    (
        output.status.code(),
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat(),
    )
}

/// PostgreSQL with all its files, also the write-ahead log, on a file system that becomes full. A server that
/// ends for want of space is started again when there is space.
fn full_disk_of_the_server_delays_data_and_loses_none() {
    require(&NEEDS);
    let (mut env, cgroups) = (TestEnvironment::best_postgres(), TestCgroups::new());
    let server = env.server();
    server.configure("min_wal_size = 32MB\nmax_wal_size = 32MB\ncheckpoint_timeout = 30s\n");
    server.stop();
    let disk = SharedDisk::over(&server.data(), "1g");
    server.run_within(disk.entered());
    server.resume();
    let (running, endpoint) = collector(&env, &env.endpoint());
    let job = cgroups.job("1");
    let agent =
        Agent::start(&env, &Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &SLOWER });
    agent.wait_until_tracked("1", &["v1/memory.stat"]);
    wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > 3);

    disk.fill();
    wait_until("the disk is full", || running.log().contains("No space left on device"));
    assert!(running.log().contains("free space on the disk of the store"), "{}", running.log());
    wait_until("the agent keeps new samples", || agent.count("outbox_bytes") > 20_000);
    disk.free();
    env.server().resume_if_ended();
    wait_until("the store is available again", || {
        env.server().resume_if_ended();
        running.log().contains("the store is available again")
    });
    job.remove();
    wait_until("the job has ended", || agent.jobs().is_empty());
    wait_until("no frame waits", || agent.count("outbox_bytes") == 0);
    let (taken, dropped) = (agent.count("taken"), agent.count("dropped"));
    agent.daemon.terminate();
    assert_causes_are_logged_once(&running.terminate());
    let mut number = |sql: &str| -> u64 { env.server().query(sql).parse().unwrap() };
    assert_eq!((number("SELECT count(*) FROM samples"), dropped), (taken, 0));
    assert_eq!(
        number("SELECT count(*) FROM (SELECT DISTINCT time, series_id FROM samples) AS all_samples"),
        taken
    );
    assert_eq!(number("SELECT sum(stored) FROM ledger_balance"), taken);
    assert_eq!(number("SELECT count(*) FROM loss"), 0);
    env.server().stop();
}

/// Neither program ends at the limit, and the messages name it.
fn a_limit_of_file_sizes_is_a_full_disk() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector_within(&env, &env.endpoint(), "", limited(1_500_000));
    let job = cgroups.job("1");
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
    let keys = format!("spool = \"{}\"\noutbox_bytes = \"64KiB\"\n", env.path("spool").display());
    let agent = Agent::start_within(&env, &plan, &keys, "", limited(9_000));
    agent.wait_until_tracked("1", &["v1/memory.stat"]);
    wait_until("the store is at the limit", || collector.log().contains("raise the limit of file sizes"));
    wait_until("the spool is at the limit", || agent.daemon.log().contains("raise the limit of file sizes"));
    for pid in [collector.pid(), agent.daemon.pid()] {
        let raised =
            Command::new("prlimit").args(["--fsize=unlimited", "--pid"]).arg(pid.to_string()).status();
        assert!(raised.unwrap().success());
    }
    wait_until("the store is available again", || collector.log().contains("the store is available again"));
    job.remove();
    wait_until("the job has ended", || agent.jobs().is_empty());
    wait_until("no frame waits", || agent.count("outbox_bytes") == 0);
    agent.daemon.terminate();
    collector.terminate();
}

fn limited(limit_bytes: u32) -> impl FnOnce(Command) -> Command {
    move |program: Command| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--fsize={limit_bytes}:")).arg(program.get_program()).args(program.get_args());
        command
    }
}

/// Checks that the store was away at least once, and that each cause of an outage is logged once.
fn assert_causes_are_logged_once(log: &str) {
    let outages = outages(log);
    assert!(!outages.is_empty(), "{log}");
    for causes in outages {
        let distinct: BTreeSet<_> = causes.iter().collect();
        assert!(!causes.is_empty() && distinct.len() == causes.len(), "{log}");
    }
}

/// Causes that the collector logged in each outage of its store. Each outage ends with a recovery.
fn outages(log: &str) -> Vec<Vec<&str>> {
    let mut ended = Vec::new();
    let mut causes = Vec::new();
    for line in log.lines() {
        if let Some((error, _)) = line.split_once("; retrying until it succeeds") {
            causes.push(error.rsplit(": ").next().unwrap_or(error));
        } else if line.contains("the store is available again") {
            ended.push(std::mem::take(&mut causes));
        }
    }
    assert_eq!(causes, Vec::<&str>::new(), "{log}");
    ended
}
