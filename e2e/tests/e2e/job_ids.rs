//! Ids that stand for several jobs: runs of one job, tasks of an array, jobs of two clusters. None is
//! answered silently with one of them.

use std::process::Output;

use polymeter_e2e::tests;
use polymeter_e2e::{TestEnvironment, program};
use serde_json::Value;

tests![
    a_run_is_chosen_by_its_key_and_the_others_are_named,
    an_array_is_shown_as_a_whole,
    jobs_of_two_clusters_are_listed,
];

struct Store {
    env: TestEnvironment,
}

/// A job: its id, the id that the scheduler prints, its cluster and its state.
type Ids = (&'static str, Option<&'static str>, Option<&'static str>, &'static str);

impl Store {
    /// Runs a command for each job, and gives it its ids. The keys of the store count from 1.
    fn new(jobs: &[Ids]) -> Self {
        let store = Self { env: TestEnvironment::new() };
        let path = store.env.path("store.db");
        for _ in jobs {
            let mut run = program("polymeter");
            run.args(["run", "--every", "20ms", "--output"]).arg(&path).args(["--", "sleep", "0.1"]);
            let run = run.env_remove("POLYMETER_COLLECTOR").output().unwrap();
            assert!(run.status.success(), "{}", text(&run.stderr));
        }
        let database = rusqlite::Connection::open(&path).unwrap();
        for (key, (id, printed, cluster, state)) in (1..).zip(jobs) {
            let update = "UPDATE job SET job_id = ?2, display_id = ?3, cluster = ?4, state = ?5, cores = 2
                          WHERE job_key = ?1";
            assert_eq!(database.execute(update, (key, id, printed, cluster, state)).unwrap(), 1);
        }
        store
    }

    fn call(&self, words: &[&str]) -> Output {
        let url = format!("sqlite:{}", self.env.path("store.db").display());
        let mut command = program("polymeter");
        command.args(words).args(["--store", &url]);
        command.env_remove("SLURM_JOB_ID").env_remove("OAR_JOB_ID").output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.call(&[words, &["--json"]].concat());
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn a_run_is_chosen_by_its_key_and_the_others_are_named() {
    let lab = Some("lab");
    let store = Store::new(&[
        ("70", None, None, "PREEMPTED"),
        ("71", None, lab, "COMPLETED"),
        ("70", None, lab, "NODE_FAIL"),
        ("70", None, lab, "COMPLETED"),
    ]);
    let last = store.json(&["report", "70"]);
    assert_eq!((&last["key"], &last["state"]), (&4.into(), &"COMPLETED".into()));
    let keys: Vec<i64> =
        last["runs"].as_array().unwrap().iter().map(|run| run["key"].as_i64().unwrap()).collect();
    assert_eq!(keys, [1, 3, 4]);
    for (key, number) in [(1, 1), (3, 2), (4, 3)] {
        let selector = format!("key:{key}");
        assert_eq!(store.json(&["report", &selector])["key"], key);
        let shown = text(&store.call(&["report", &selector]).stdout);
        let note = format!("ran 3 times, and this is run {number}");
        assert!(shown.split_whitespace().collect::<Vec<_>>().join(" ").contains(&note), "{shown}");
    }
    let only = store.json(&["report", "71"]);
    assert_eq!(
        (&only["runs"], &only["notes"].to_string().contains("ran ")),
        (&Value::Array(Vec::new()), &false)
    );
    // The other commands note it on stderr, and two runs can be compared.
    let compared = store.call(&["compare", "70", "key:1"]);
    assert!(compared.status.success(), "{compared:?}");
    assert!(text(&compared.stderr).contains("key:3 (cluster lab, started "), "{compared:?}");
    assert!(text(&compared.stdout).starts_with("A: 70 (key:4)\nB: 70 (key:1)\n"), "{compared:?}");
    assert_eq!(store.call(&["compare", "70", "key:4"]).status.code(), Some(2), "they are one run");
    let exported = store.call(&["export", "key:3", "--output", "-", "--format", "csv"]);
    assert!(exported.status.success() && exported.stderr.is_empty(), "{exported:?}");
    assert!(store.refused(&["report", "key:9"]).contains("unknown job `key:9`"));
    let listed = text(&store.call(&["jobs", "--ended"]).stdout);
    assert!(listed.contains("70 key:1") && !listed.contains("71 key:"), "{listed}");
}

fn an_array_is_shown_as_a_whole() {
    // The array's id is also the own id of its last task.
    let store = Store::new(&[
        ("10", Some("8_1"), None, "FAILED"),
        ("11", Some("8_10"), None, "COMPLETED"),
        ("8", Some("8_2"), None, "COMPLETED"),
        ("10", Some("8_1"), None, "COMPLETED"),
        ("80", Some("80_1"), None, "COMPLETED"),
        ("20", Some("19+0"), None, "COMPLETED"),
        ("21", Some("19+1"), None, "COMPLETED"),
    ]);
    let array = store.json(&["report", "8"]);
    let tasks: Vec<_> = array["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| {
            (task["job"].as_str().unwrap(), task["key"].as_i64().unwrap(), task["runs"].as_i64().unwrap())
        })
        .collect();
    assert_eq!(tasks, [("8_1", 4, 2), ("8_2", 3, 1), ("8_10", 2, 1)]);
    assert_eq!((&array["array"], &array["states"]["COMPLETED"]), (&"8".into(), &3.into()));
    let sum: f64 = ["key:2", "key:3", "key:4"]
        .iter()
        .filter_map(|task| store.json(&["report", task])["used"]["cpu_s"].as_f64())
        .sum();
    assert!((array["cpu_s"].as_f64().unwrap_or(0.0) - sum).abs() < 1e-9, "{array}");
    let shown = text(&store.call(&["report", "8"]).stdout);
    assert!(shown.starts_with("8 stands for 3 jobs: 3 COMPLETED\n") && shown.contains("8_10"), "{shown}");
    for command in
        [&["export", "8", "--output", "-"][..], &["compare", "8", "80"], &["report", "8", "--jobstats"]]
    {
        let message = store.refused(command);
        assert!(message.contains("8 stands for 3 jobs; name one: 8_1, 8_2, 8_10"), "{message}");
    }
    assert_eq!(store.json(&["report", "19"])["tasks"].as_array().unwrap().len(), 2);
    // A task by either of its ids.
    for id in ["8_10", "11"] {
        let task = store.json(&["report", id]);
        assert_eq!(task["key"], 2, "{task}");
        assert!(task["notes"][0].as_str().unwrap().starts_with("8_10 is a task of the array 8"), "{task}");
    }
    assert_eq!(store.json(&["report", "8_2"])["job"], "8");
    // Within a job its own id counts.
    let mut within = program("polymeter");
    let url = format!("sqlite:{}", store.env.path("store.db").display());
    let within =
        within.args(["report", "--json", "--store", &url]).env("SLURM_JOB_ID", "8").output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&within.stdout).unwrap()["key"], 3);
}

fn jobs_of_two_clusters_are_listed() {
    let store = Store::new(&[
        ("5", None, Some("a"), "COMPLETED"),
        ("5", None, Some("b"), "FAILED"),
        ("6", Some("4_1"), Some("a"), "COMPLETED"),
        ("9", Some("4_1"), Some("b"), "COMPLETED"),
    ]);
    for command in [&["report", "5"][..], &["export", "5", "--output", "-"], &["compare", "5", "6"]] {
        let message = store.refused(command);
        assert!(message.contains("2 jobs have the id `5`"), "{message}");
        for job in ["key:1 (cluster a, started ", "key:2 (cluster b, started "] {
            assert!(message.contains(job), "{message}");
        }
    }
    assert_eq!(store.json(&["report", "key:1"])["cluster"], "a");
    for id in ["4", "4_1"] {
        assert!(store.refused(&["report", id]).contains("key:4 (cluster b"), "{id}");
    }
}
