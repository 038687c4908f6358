//! The first screen of `polymeter report`, its findings, and its forms for other programs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use polymeter_e2e::{program, skip, tests, text};
use rusqlite::Connection;
use serde_json::Value;

tests![a_terminal_gets_one_screen_with_colours, a_site_adds_rules, other_programs_get_json_and_jobstats];

/// A store with one job of `polymeter run`, to which facts of a scheduler are added.
struct Store {
    directory: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        let store = Self { directory: tempfile::tempdir().unwrap() };
        let ran = program("polymeter")
            .args(["run", "--report", "/dev/null", "-o"])
            .arg(store.path())
            .arg("true")
            .output();
        assert!(ran.unwrap().status.success());
        let facts =
            "UPDATE job SET name = 'ocean', account = 'climate', queue = 'normal', cores = 16, gpus = 0,
             state = 'TIMEOUT', time_limit_s = 1, memory_bytes = 1073741824";
        Connection::open(store.path()).unwrap().execute(facts, []).unwrap();
        store
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("run.db")
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    fn report(&self, arguments: &[&str]) -> Output {
        let output =
            program("polymeter").args(["report", "--store", &self.url()]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    }
}

fn a_terminal_gets_one_screen_with_colours() {
    let store = Store::new();
    let Ok(plain) = report_in_terminal(&store, "TERM=xterm NO_COLOR=1") else {
        skip("script", "there is no such program")
    };
    assert!(
        plain.lines().count() < 24 && plain.lines().all(|line| line.trim_end().chars().count() <= 80),
        "{plain}"
    );
    for part in
        ["ocean, account climate, queue normal", "1 node with 16 cores, 1 GiB", "TIMEOUT - ", "critical  "]
    {
        assert!(plain.contains(part), "no `{part}` in {plain}");
    }
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let coloured = report_in_terminal(&store, "env -u NO_COLOR TERM=xterm").unwrap();
    assert!(coloured.contains("\u{1b}[1;31mcritical"), "{coloured:?}");
    assert!(!report_in_terminal(&store, "env -u NO_COLOR TERM=dumb").unwrap().contains('\u{1b}'));
    assert!(!text(&store.report(&[]).stdout).contains('\u{1b}'), "a pipe is no terminal");
}

fn report_in_terminal(store: &Store, environment: &str) -> std::io::Result<String> {
    let polymeter = program("polymeter").get_program().display().to_string();
    let command = format!("stty cols 80; {environment} '{polymeter}' report --store '{}'", store.url());
    let shown = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output();
    shown.map(|shown| text(&shown.stdout))
}

fn a_site_adds_rules() {
    let store = Store::new();
    let site = store.directory.path().join("advice.d");
    fs::create_dir(&site).unwrap();
    let rule = "[own]\nseverity = 'warning'\nwhen = 'elapsed > 0 s'\nsentence = 'It ran.'\nevidence = '{cores} cores'\n";
    fs::write(site.join("10-own.toml"), format!("{rule}[time-limit-reached]\ndisabled = true\n")).unwrap();
    let with =
        |site: &Path, more: &[&str]| store.report(&[&["--advice", site.to_str().unwrap()], more].concat());
    let found = with(&site, &["--show", "findings"]);
    let shown = text(&found.stdout);
    assert!(
        shown.contains("warning   It ran.\n          16 cores\n") && !shown.contains("critical"),
        "{shown}"
    );
    assert_eq!(text(&found.stderr), "");
    fs::write(site.join("20-wrong.toml"), "[own]\nwhen = 'elapsd > 1'\n").unwrap();
    let found = with(&site, &["--show", "findings"]);
    let stderr = text(&found.stderr);
    assert!(
        stderr.contains(
            "20-wrong.toml:2: `when` of `own`, character 1: unknown fact `elapsd`; did you mean `elapsed`?"
        ),
        "{stderr}"
    );
    assert!(text(&found.stdout).contains("It ran."), "the valid file still applies");
}

fn other_programs_get_json_and_jobstats() {
    let store = Store::new();
    let report: Value = serde_json::from_slice(&store.report(&["--json"]).stdout).unwrap();
    assert_eq!((&report["schema_version"], &report["name"]), (&1.into(), &"ocean".into()));
    assert_eq!((&report["time_limit_s"], &report["memory_bytes"]), (&1.into(), &1_073_741_824_u64.into()));
    let ids: Vec<_> = report["findings"].as_array().unwrap().iter().map(|finding| &finding["id"]).collect();
    assert_eq!(ids, ["time-limit-reached"]);
    assert!(report["started_us"].as_i64().unwrap() < report["ended_us"].as_i64().unwrap());
    let summary = text(&store.report(&["--jobstats"]).stdout);
    // A job without a cgroup for its memory has no summary.
    let has_memory =
        report["by_node"][0]["memory_bytes"].is_number() && report["by_node"][0]["cpu_s"].is_number();
    assert_eq!(summary == "JS1:None\n", !has_memory, "{summary}");
    assert!(summary.starts_with("JS1:") && summary.lines().count() == 1, "{summary}");
}
