//! The ledger compared with the samples, in SQL: the outcome of each sample that was due is known, although
//! programs are killed and stopped and buffers overflow.

use std::process::Command;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector, collector_with};
use polymeter_e2e::stored;
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, pause, program, require, wait_until};
use rusqlite::Connection;
use rustix::process::Signal;

tests![
    exclusive ledger_balances_under_faults,
    exclusive ledger_balances_for_a_job_with_changing_cgroups_and_killed_agents,
];

/// Checks that the store has as many rows of each job and of the node as the ledger says, and that each line
/// adds up.
fn assert_balanced(store: &Connection) {
    let wrong = "SELECT count(*) FROM ledger_balance
         WHERE due <> missed + absent + dropped + skipped + rejected + quarantined + stored + unknown OR unknown < 0";
    assert_eq!(number(store, wrong), 0);
    let by_job = "SELECT count(*) FROM (
             SELECT coalesce(job_key, 0) AS job, sum(stored) AS stored FROM ledger_balance GROUP BY 1
         ) AS ledger FULL JOIN (
             SELECT job, sum(stored) AS stored FROM (
                 SELECT coalesce(job_key, 0) AS job, count(*) AS stored FROM samples JOIN series USING (series_id) GROUP BY 1
                 UNION ALL SELECT job_key, sum(samples) FROM stack_interval GROUP BY 1
             ) GROUP BY 1
         ) AS counted USING (job)
         WHERE coalesce(ledger.stored, 0) <> coalesce(counted.stored, 0)";
    assert_eq!(number(store, by_job), 0);
}

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

/// No metric of the node: all samples belong to jobs.
const BASELINE: [(&str, &str); 6] = [
    ("memory.*", "1ms"),
    ("cpu.*", "1ms"),
    ("pids.*", "1ms"),
    ("stacks.cpu", "5ms"),
    ("stacks.cpu_dwarf", "10ms"),
    ("stacks.wait", "10ms"),
];

/// Counts stored samples, with those of call stacks.
const STORED: &str =
    "SELECT (SELECT count(*) FROM samples) + (SELECT coalesce(sum(samples), 0) FROM stack_interval)";

const STACK_SAMPLES: &str = "SELECT coalesce(sum(samples), 0) FROM stack_interval";

/// The smallest outbox that the configuration permits: it is full after a second or two.
const OUTBOX: &str = "outbox_bytes = \"64KiB\"\n";

pub(crate) fn number(store: &Connection, sql: &str) -> u64 {
    let number: i64 = store.query_row(sql, (), |row| row.get(0)).unwrap();
    number as u64
}

fn wait_for_drops(agent: &Agent) {
    let before = agent.count("dropped");
    wait_until("the outbox overflows", || agent.count("dropped") > before + 1000);
}

fn wait_for_acknowledgements(agent: &Agent) {
    let before = agent.count("frames_acknowledged");
    wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > before + 3);
}

/// Checks that the agent's own counters, the ledger and the stored rows agree.
fn assert_counted(store: &Connection, agent: &Agent) {
    let count = |sql: &str| number(store, sql);
    let ledger = |column: &str| count(&format!("SELECT sum({column}) FROM ledger_balance"));
    wait_until("the last tallies are stored", || ledger("due") == agent.count("due"));
    assert_eq!(ledger("taken"), agent.count("taken"));
    assert_eq!(ledger("missed"), agent.count("missed"));
    assert_eq!(ledger("dropped + skipped"), agent.count("dropped"));
    assert_eq!(ledger("rejected + quarantined"), 0);
    assert_eq!(ledger("stored"), count(STORED));
    assert_eq!(count("SELECT sum(stored) FROM session"), count("SELECT count(*) FROM samples"));
    let distinct = "SELECT (SELECT count(*) FROM (SELECT DISTINCT time, series_id FROM samples))
         + (SELECT coalesce(sum(count), 0) FROM (
             SELECT DISTINCT job_key, time, interval_id, process, stack_id, count FROM stack_sample))";
    assert_eq!(count(distinct), ledger("stored"));
    assert!(count(STACK_SAMPLES) > 100);
    assert!(ledger("missed") > 0 && ledger("skipped") > 2000);

    // The same for each job and source, not only in total.
    let disagree = "SELECT count(*) FROM ledger_balance
         WHERE due <> missed + absent + dropped + skipped + rejected + quarantined + stored OR taken <> due - missed - absent OR stored < 0";
    assert_eq!(count(disagree), 0);
    let by_job = "SELECT count(*) FROM job WHERE
             (SELECT sum(stored) FROM ledger_balance WHERE ledger_balance.job_key = job.job_key)
             <> (SELECT count(*) FROM samples JOIN series USING (series_id) WHERE series.job_key = job.job_key)
             + (SELECT coalesce(sum(samples), 0) FROM stack_interval WHERE stack_interval.job_key = job.job_key)";
    assert_eq!(count(by_job), 0);
    // Sources with one metric each.
    for (source, metric) in
        [("v1/memory.usage_in_bytes", "memory.current"), ("v1/pids.current", "pids.current")]
    {
        let of_ledger = format!("SELECT sum(stored) FROM ledger_balance WHERE source = '{source}'");
        let of_samples =
            format!("SELECT count(*) FROM samples JOIN series USING (series_id) WHERE metric = '{metric}'");
        assert_eq!(count(&of_ledger), count(&of_samples), "{source}");
    }
    let without_reason =
        "SELECT count(*) FROM ledger WHERE skipped <> (SELECT coalesce(sum(samples), 0) FROM loss
         WHERE reason = 'outbox_full' AND loss.session_id = ledger.session_id AND loss.source = ledger.source
             AND coalesce(loss.job_key, 0) = coalesce(ledger.job_key, 0) AND first_time < last_time)";
    assert_eq!(count(without_reason), 0);
}

fn ledger_balances_under_faults() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (mut running, endpoint) = collector(&env, "tcp://127.0.0.1:*");
    let jobs = [cgroups.job("1"), cgroups.job("2")];
    // Call stacks need a process that computes: a part of the time, in which it precedes others.
    let computes = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; sleep 0.05; done";
    let mut busy = Command::new("sh").args(["-c", computes]).spawn().unwrap();
    jobs[0].enter(busy.id());
    jobs[0].precede_others();
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
    let agent = Agent::start_with(&env, &plan, OUTBOX, "");
    agent.wait_until_tracked("1", &["v1/memory.stat"]);
    agent.wait_until_tracked("2", &["v1/memory.stat"]);

    let store = || Connection::open(env.path("store.db")).unwrap();
    wait_until("call stacks are stored", || number(&store(), STACK_SAMPLES) > 100);
    running.kill();
    wait_for_drops(&agent);
    (running, _) = collector(&env, &endpoint);
    wait_for_acknowledgements(&agent);
    // The collector is stopped, then the agent.
    running.signal(Signal::STOP);
    wait_for_drops(&agent);
    running.signal(Signal::CONT);
    wait_for_acknowledgements(&agent);
    agent.daemon.signal(Signal::STOP);
    pause(300);
    agent.daemon.signal(Signal::CONT);
    // A job ends while no collector receives its last samples.
    running.kill();
    let [first, second] = jobs;
    second.remove();
    wait_for_drops(&agent);
    (running, _) = collector(&env, &endpoint);
    first.remove();
    busy.wait().unwrap();
    stored::wait_for_end(&env, "1");
    stored::wait_for_end(&env, "2");
    wait_until("no frame waits", || agent.count("outbox_bytes") == 0);

    assert_counted(&store(), &agent);
    agent.daemon.terminate();
    running.terminate();
}

fn ledger_balances_for_a_job_with_changing_cgroups_and_killed_agents() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (running, endpoint) = collector_with(&env, "tcp://127.0.0.1:*", "session_timeout = \"2s\"\n");
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
    let store = || Connection::open(env.path("store.db")).unwrap();
    let mut killed = Vec::new();
    for round in 0..3 {
        let agent = Agent::start(&env, &plan);
        for pause_ms in [0, 20, 150] {
            let job = cgroups.job("1");
            agent.wait_until_tracked("1", &["v1/memory.stat"]);
            wait_for_acknowledgements(&agent);
            job.remove();
            // The pause ends before or after the agent notices that the cgroups are gone.
            pause(pause_ms);
        }
        let job = cgroups.job("1");
        agent.wait_until_tracked("1", &["v1/memory.stat"]);
        let session = agent.status()["session"].as_str().unwrap().to_owned();
        // Of the four jobs the store has samples, and knows the end of all but the last.
        let lines = format!(
            "SELECT count(DISTINCT job_key) FROM ledger_line JOIN session USING (session_key) WHERE session_id = '{session}'"
        );
        let open = format!("SELECT count(*) FROM job_node WHERE session_id = '{session}' AND ended IS NULL");
        wait_until("only the last job runs in the store", || {
            number(&store(), &lines) == 4 && number(&store(), &open) == 1
        });
        killed.push(session);
        agent.daemon.kill();
        if round < 2 {
            job.remove();
        }
        assert_balanced(&store());
    }
    // The last agent has no successor. Its job is ended all the same, at an unknown time.
    let open = "SELECT count(*) FROM job WHERE ended IS NULL";
    wait_until("the job of the lost agent has ended", || number(&store(), open) == 0);
    running.terminate();
    let store = store();
    assert_balanced(&store);
    for session in killed {
        let gaps = format!(
            "SELECT count(*) FROM loss WHERE reason = 'unknown' AND job_key IS NOT NULL AND session_id = '{session}'"
        );
        assert_eq!(number(&store, &gaps), 1, "{session}");
    }
    let report = program("polymeter")
        .args(["report", "--show", "all", "1", "--store", &env.store()])
        .output()
        .unwrap();
    let stdout = String::from_utf8(report.stdout).unwrap();
    assert!(stdout.starts_with("ENDED, lost contact with "), "{stdout}");
    assert_eq!(stdout.matches("\n  unknown  ").count(), 1, "{stdout}");
    assert!(stdout.contains("% of those known)"), "{stdout}");
}
