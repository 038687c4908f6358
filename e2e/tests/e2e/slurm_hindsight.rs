//! Failures of jobs under a real Slurm: the rings of both nodes are kept, and only the owner learns of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

use polymeter_e2e::daemons::collector_with;
use polymeter_e2e::slurm::{Cluster, OTHER_USER, TAKE_MEMORY, USER, agent_config};
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, install, program, require, wait_until, wait_within};
use rusqlite::Connection;
use serde_json::Value;

tests![
    exclusive failures_keep_the_rings_of_both_nodes,
    exclusive a_slow_node_is_found_and_all_keep_their_rings,
];

const CONFIG: &str = r#"
[baseline]
"cpu.usage" = "500ms"
"memory.current" = "500ms"
"memory.events.oom_kill" = "500ms"
[hindsight]
keep = "20s"
[hindsight.metrics]
"cpu.usage" = "20ms"
"memory.current" = "20ms"
[[trigger]]
name = "failed"
when = "exit_status"
keep = "10s"
after = "100ms"
"#;

const CRASH: &str = "srun sh -c 'sleep 4; [ $SLURM_PROCID = 0 ] || exit 3; sleep 2'";

/// Each task takes a fifth of a core, the last one half of that after 80 s.
const SLOWS_DOWN: &str = "srun python3 -c 'import os, time
begin = time.monotonic()
while time.monotonic() < begin + 140:
    is_slow = os.environ[\"SLURM_PROCID\"] == \"3\" and time.monotonic() > begin + 80
    end = time.process_time() + (0.005 if is_slow else 0.01)
    while time.process_time() < end:
        pass
    time.sleep(0.05 - time.monotonic() % 0.05)'";

type User = (u32, u32, &'static str);

fn failures_keep_the_rings_of_both_nodes() {
    require(&[Need::Root, Need::Slurm]);
    let env = TestEnvironment::new();
    fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    install(program("polymeter").get_program(), &env.path("polymeter"));
    let socket = env.path("control.sock");
    let control = format!("control_socket = \"{}\"\n", socket.display());
    let (collector, endpoint) = collector_with(&env, &env.endpoint(), &control);
    let cluster = Cluster::start(&socket, |node, _| agent_config(node, &endpoint, CONFIG));
    let submit = |user: User, options: &[&str], script: &str| {
        let options = [&["-N", "2", "-n", "2", "--mem=40"], options].concat();
        cluster.submit_as(Some((user.0, user.1)), &options, script)
    };
    let comment = "--comment=polymeter: trigger oom when oom keep 10s after 1s";
    // The second task takes more memory than the job has, the first one works on.
    let tasks = format!("srun sh -c 'sleep 4; [ $SLURM_PROCID = 0 ] || {TAKE_MEMORY}; sleep 4'");
    let out_of_memory = submit(USER, &[comment], &tasks);
    cluster.wait_for(&out_of_memory, &["OUT_OF_MEMORY", "FAILED", "CANCELLED", "COMPLETED"]);
    let crashed = submit(OTHER_USER, &[], CRASH);
    cluster.wait_for(&crashed, &["FAILED"]);
    for (id, rule, owner, stranger) in
        [(&out_of_memory, "oom", USER, OTHER_USER), (&crashed, "failed", OTHER_USER, USER)]
    {
        // Both nodes may have seen the failure: each firing has an interval of its own on both.
        wait_until(&format!("both nodes have kept an interval of {id}"), || {
            let firings = count(&env, "trigger_firing", id, &format!("AND rule = '{rule}'"));
            let kept = "JOIN trigger_firing USING (trigger_id, started, ended)";
            firings > 0
                && kept_nodes(&env, id, kept) == 2
                && count(&env, "kept_interval", id, "") >= 2 * firings
        });
        // Two nodes may report one failure: what the first interval has is not sent again.
        let least = query(
            &env,
            &format!(
                "SELECT min(samples) FROM (SELECT sum(samples) AS samples FROM kept_interval
                 JOIN trigger_firing USING (trigger_id, job_key) JOIN job USING (job_key)
                 WHERE job_id = '{id}' AND rule = '{rule}' GROUP BY kept_interval.node)"
            ),
        );
        assert!(least > 100, "{id}: {least} samples of 2 series at 20 ms in 10 s");
        let listed = ask(&env, owner, &["trigger", "list", "--job", id, "--json"]);
        assert!(listed.status.success(), "{}", text(&listed.stderr));
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert!(listed.to_string().contains(&format!("\"{rule}\"")), "{listed}");
        let report = text(&ask(&env, owner, &["report", id]).stdout);
        let first: Vec<&str> = report.lines().take(12).collect();
        let words = first.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("kept the last 10 s before") && words.contains("on all 2 nodes"), "{report}");
        for arguments in [&["report", id][..], &["trigger", "list", "--job", id]] {
            let refused = ask(&env, stranger, arguments);
            let stderr = text(&refused.stderr);
            assert!(!refused.status.success() && refused.stdout.is_empty(), "{arguments:?}: {stderr}");
            assert!(stderr.contains("or not yours"), "{arguments:?}: {stderr}");
        }
    }
    let balance = "SELECT sum(taken) - sum(not_kept) - sum(dropped)
        - (SELECT count(*) FROM samples) - (SELECT count(*) FROM kept_sample) FROM ledger";
    wait_until("each sample is stored, or was let go", || query(&env, balance) == 0);
    drop(cluster);
    collector.terminate();
}

fn a_slow_node_is_found_and_all_keep_their_rings() {
    require(&[Need::Root, Need::Slurm]);
    let env = TestEnvironment::new();
    fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    install(program("polymeter").get_program(), &env.path("polymeter"));
    let socket = env.path("control.sock");
    let config = format!(
        "control_socket = \"{}\"\n[[trigger]]\nname = \"slow\"\nwhen = \"straggler(cpu.usage)\"\nkeep = \"10s\"\n",
        socket.display()
    );
    let (collector, endpoint) = collector_with(&env, &env.endpoint(), &config);
    let cluster = Cluster::of(4, &socket, |node, _| agent_config(node, &endpoint, CONFIG));
    let job = cluster.submit_as(Some((USER.0, USER.1)), &["-N", "4", "-n", "4", "--mem=40"], SLOWS_DOWN);
    wait_within(Duration::from_secs(300), "the job has ended", || {
        ["COMPLETED", "FAILED", "CANCELLED"].contains(&cluster.of_job(&job, "JobState").as_str())
    });
    wait_until("all nodes have kept an interval", || {
        kept_nodes(&env, &job, "JOIN trigger_firing USING (trigger_id, started, ended)") == 4
    });
    let wrong = format!("AND trigger_firing.node <> '{}'", cluster.nodes[3]);
    assert_eq!(count(&env, "trigger_firing", &job, &wrong), 0, "another node than the slow one");
    let early = "AND trigger_firing.time < job.started + 80000000000";
    assert_eq!(count(&env, "trigger_firing", &job, early), 0, "before it slowed down");
    let report = text(&ask(&env, USER, &["report", &job]).stdout);
    assert!(report.contains(&format!("slow on {}", cluster.nodes[3])), "{report}");
    drop(cluster);
    collector.terminate();
}

fn ask(env: &TestEnvironment, (uid, gid, _): User, arguments: &[&str]) -> Output {
    Command::new("setpriv")
        .args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()])
        .arg(env.path("polymeter"))
        .args(arguments)
        .env("POLYMETER_COLLECTOR", env.path("control.sock"))
        .env("COLUMNS", "80")
        .current_dir("/")
        .output()
        .unwrap()
}

fn query(env: &TestEnvironment, sql: &str) -> i64 {
    let store = Connection::open(env.path("store.db")).unwrap();
    store.query_row(sql, (), |row| Ok(row.get::<_, Option<i64>>(0)?.unwrap_or(0))).unwrap()
}

fn count(env: &TestEnvironment, table: &str, job: &str, more: &str) -> i64 {
    query(
        env,
        &format!("SELECT count(*) FROM {table} JOIN job USING (job_key) WHERE job_id = '{job}' {more}"),
    )
}

fn kept_nodes(env: &TestEnvironment, job: &str, join: &str) -> i64 {
    let sql = format!(
        "SELECT count(DISTINCT k.node) FROM kept_interval AS k {join}
         JOIN job ON job.job_key = k.job_key WHERE job_id = '{job}'"
    );
    query(env, &sql)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
