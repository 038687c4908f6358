//! The command at the end of a job under a real Slurm: `deploy/slurm/admin-comment.sh` writes the summary of
//! Jobstats.
//!
//! The cluster has no slurmdbd, and sacctmgr of Debian's Slurm 22.05 would write the summary in lower case.
//! So sacctmgr and sacct are stand-ins that keep comments in files; squeue and slurmctld are Slurm's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use polymeter_e2e::daemons::collector_with;
use polymeter_e2e::slurm::{Cluster, agent_config};
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, require, stored, wait_until};
use serde_json::Value;

tests![exclusive the_summary_of_each_job_is_in_slurms_comment];

const BASELINE: &str = "[baseline]\n\"cpu.usage\" = \"200ms\"\n\"memory.current\" = \"200ms\"\n\"memory.peak\" = \"200ms\"\n\
    \"memory.anon\" = \"200ms\"\n\"memory.shmem\" = \"200ms\"\n";

/// Uses a core for a second of its CPU time, and lasts at least 3 s.
const BURN: &str = "(ulimit -c 0; ulimit -t 1; while :; do :; done); sleep 3";

/// Decodes the summary in a comment as the programs that read it do.
fn decode(comment: &str) -> Value {
    let script = "import sys,json,gzip,base64; c=sys.argv[1]; assert c.startswith('JS1:'), c
print(json.dumps(json.loads(gzip.decompress(base64.b64decode(c[4:])))))";
    let decoded =
        Command::new("python3").args(["-c", script, comment]).stderr(Stdio::inherit()).output().unwrap();
    assert!(decoded.status.success(), "{comment}");
    serde_json::from_slice(&decoded.stdout).unwrap()
}

/// Stands in for sacctmgr and sacct: `modify job where jobid=ID set AdminComment=TEXT`, and `-n -X -P -j ID
/// -o AdminComment`.
const ACCOUNTING: &str = "#!/bin/sh
for word; do
    case $word in jobid=*) id=${word#jobid=} ;; AdminComment=*) printf '%s\\n' \"${word#AdminComment=}\" >\"DIRECTORY/comment.$id\" ;; esac
done
[ \"$1\" = -i ] || cat \"DIRECTORY/comment.$5\"
";

/// Checks that a summary has the nodes of a job with 64 MiB on each and four cores on both, which Slurm
/// divides.
fn assert_nodes(summary: &Value, mut expected: Vec<String>) {
    let nodes = summary["nodes"].as_object().unwrap();
    let mut names: Vec<&String> = nodes.keys().collect();
    names.sort();
    expected.sort();
    assert!(names.len() == 2 && names == expected.iter().collect::<Vec<_>>(), "{summary}");
    let cores: Vec<u64> = nodes.values().map(|node| node["cpus"].as_u64().unwrap()).collect();
    assert!(cores.iter().sum::<u64>() == 4 && cores.iter().all(|cores| *cores > 0), "{summary}");
    for (name, node) in nodes {
        assert_eq!(node["total_memory"], 64_u64 << 20, "{name}: {summary}");
        assert!((1..=64 << 20).contains(&node["used_memory"].as_u64().unwrap()), "{name}: {summary}");
        assert!(node["total_time"].as_f64().unwrap() > 0.5, "{name}: {summary}");
    }
}

fn the_summary_of_each_job_is_in_slurms_comment() {
    require(&[Need::Root, Need::Slurm]);
    let env = TestEnvironment::new();
    let (socket, command) = (env.path("control.sock"), env.path("admin-comment"));
    let accounting = env.path("accounting");
    write_program(&accounting, &ACCOUNTING.replace("DIRECTORY", env.path("").to_str().unwrap()));
    write_program(&command, "#!/bin/sh\nexit 1\n");
    let more = format!(
        "control_socket = \"{}\"\n[job_end]\ncommand = [\"{}\"]\ndelay = \"3s\"\n",
        socket.display(),
        command.display()
    );
    let (collector, endpoint) = collector_with(&env, &env.endpoint(), &more);
    let cluster = Cluster::start(&socket, |node, _| agent_config(node, &endpoint, BASELINE));
    // The environment of the command has no SLURM_CONF, which Slurm needs where slurm.conf is not in
    // /etc/slurm.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/slurm/admin-comment.sh");
    let conf = cluster.path("slurm.conf");
    let (conf, script, accounting) = (conf.display(), script.display(), accounting.display());
    let variables = format!("SLURM_CONF={conf} SACCTMGR={accounting} SACCT={accounting}");
    write_program(&command, &format!("#!/bin/sh\n{variables} exec {script}\n"));

    let two_nodes =
        cluster.submit(false, &["-N", "2", "-n", "4", "--mem=64"], &format!("srun sh -c \"{BURN}\""));
    let array = cluster.submit(
        true,
        &["-n", "1", "--mem=48", "--array=0-1"],
        "sleep $((SLURM_ARRAY_TASK_ID * 6 + 1))",
    );
    let of_site = cluster.submit(true, &["-n", "1", "--mem=32"], "sleep 3");
    let update = ["update", &format!("JobId={of_site}"), "AdminComment=checked"];
    assert!(cluster.run("scontrol", &update).status.success());
    let tasks = [format!("{array}_0"), format!("{array}_1")];
    for job in [&two_nodes, &tasks[0], &tasks[1]] {
        wait_until(&format!("job {job} has a comment"), || comment_of(&env, job).starts_with("JS1:"));
    }

    let summary = decode(&comment_of(&env, &two_nodes));
    assert_nodes(&summary, stored::job(&mut env.reader(), &two_nodes).unwrap().nodes);
    assert!(summary["total_time"].as_u64().unwrap() >= 3 && summary["gpus"] == 0, "{summary}");
    // The last task has the number of the array, and its comment is not that of the other one.
    let elapsed = tasks.map(|task| decode(&comment_of(&env, &task))["total_time"].as_u64().unwrap());
    assert!(elapsed[1] >= elapsed[0] + 4, "{elapsed:?}");
    wait_until("all commands have ended", || {
        let store = rusqlite::Connection::open(env.path("store.db")).unwrap();
        let ended = "SELECT (SELECT count(*) FROM job WHERE ended IS NOT NULL) = 4 AND (SELECT count(*) FROM job_end) = 0";
        store.query_row(ended, (), |row| row.get(0)).unwrap()
    });
    assert_eq!(
        (comment_of(&env, &of_site), cluster.of_job(&of_site, "AdminComment")),
        (String::new(), "checked".to_owned())
    );
    drop(cluster);
    collector.terminate();
}

fn comment_of(env: &TestEnvironment, job: &str) -> String {
    let text = fs::read_to_string(env.path(&format!("comment.{job}"))).unwrap_or_default();
    text.trim_end().to_owned()
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}
