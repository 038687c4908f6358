//! The everyday commands, called by users, and their effects.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use polymeter_e2e::scene::{NEEDS, OTHER_USER, OWNER, Scene};
use polymeter_e2e::tests;
use polymeter_e2e::{TestEnvironment, program, require, skip, stored, wait_until};
use serde_json::Value;

tests![
    marks_and_user_values_are_in_the_report,
    job_defaults_to_the_schedulers_or_the_own_cgroup,
    exit_status_names_the_failure,
    metrics_lists_availability_and_read_cost,
    completions_contain_every_command,
    bash_completes_commands,
    zsh_accepts_its_completions,
    fish_accepts_its_completions,
    every_command_has_a_manual_page,
    manual_pages_have_no_warnings_in_man,
    manual_pages_have_no_warnings_in_mandoc,
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Asserts that the command succeeded, and returns its output.
fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Asserts that the command failed with this status and without output, and returns its error message.
fn failed(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    text(&output.stderr)
}

/// Returns the report of the scene's job.
fn report(env: &TestEnvironment, more: &[&str]) -> String {
    let store = env.store();
    let arguments = [&["report", "--store", &store, "--job", "x"], more].concat();
    done(&program("polymeter").args(arguments).output().unwrap())
}

fn marks_and_user_values_are_in_the_report() {
    require(&NEEDS);
    let scene = Scene::set();
    assert_eq!(done(&scene.user(OWNER, "mark", &["--job", "x", "solver", "--begin"])), "");
    done(&scene.user(OWNER, "push", &["--job", "x", "loss=0.25", "--unit", "nats", "--label", "rank=3"]));
    done(&scene.user(OWNER, "push", &["--job", "x", "loss=1e-1", "--unit", "nats", "--label", "rank=3"]));
    done(&scene.user(OWNER, "mark", &["--job", "x", "checkpoint 1"]));
    let answer = done(&scene.user(OWNER, "mark", &["--job", "x", "solver", "--end", "--json"]));
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["answer"], "done");
    scene.granted(OWNER, &["cpu.usage=20ms"]);
    done(&scene.user(OWNER, "mark", &["--job", "x", "never ended", "--begin"]));
    // Marks and changes are delivered in order: when the last one is stored, all are.
    wait_until("the store has what was marked", || {
        let mut reader = scene.env.reader();
        let job = stored::job(&mut reader, "x");
        job.is_some_and(|job| reader.marks(job.job_key).unwrap().len() == 4)
    });
    let report: Value = serde_json::from_str(&report(&scene.env, &["--json"])).unwrap();
    let phases = report["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 2, "{phases:?}");
    assert_eq!((&phases[0]["name"], &phases[0]["actor"]), (&"solver".into(), &"uid 64001".into()));
    assert!(phases[0]["end_s"].as_f64() > phases[0]["begin_s"].as_f64(), "{phases:?}");
    assert_eq!((&phases[1]["name"], &phases[1]["end_s"]), (&"never ended".into(), &Value::Null));
    assert_eq!(report["marks"][0]["name"], "checkpoint 1");
    let changes = report["plan_changes"].as_array().unwrap();
    let lease = changes.iter().find(|change| change["cause"] == "lease").unwrap();
    let told = ["metric", "old", "new", "actor"].map(|field| lease[field].as_str().unwrap());
    assert_eq!(told, ["cpu.usage", "500ms", "20ms", "uid 64001"]);
    let series = report["series"].as_array().unwrap();
    let loss = series.iter().find(|series| series["metric"] == "user.loss").unwrap();
    assert_eq!((&loss["labels"], &loss["samples"]), (&"rank=3,unit=nats".into(), &2.into()));
    assert_eq!((&loss["min"], &loss["max"]), (&0.1.into(), &0.25.into()));

    let shown = self::report(&scene.env, &[]);
    let line = |word: &str| shown.lines().find(|line| line.contains(word)).map(str::to_owned);
    assert!(
        line("solver").is_some_and(|line| line.split(' ').filter(|word| *word == "s").count() == 3),
        "{shown}"
    );
    assert!(line("never ended").is_some_and(|line| line.contains(" - ")), "{shown}");
    let words = line("lease of uid 64001").unwrap();
    assert_eq!(
        words.split_whitespace().skip(3).take(3).collect::<Vec<_>>(),
        ["500ms", "20ms", "lease"],
        "{shown}"
    );
    scene.end();
}

fn job_defaults_to_the_schedulers_or_the_own_cgroup() {
    require(&NEEDS);
    let scene = Scene::set();
    let said = failed(&scene.user(OWNER, "mark", &["here"]), 2);
    assert!(said.contains("--job ID"), "{said}");
    done(&scene.user_in_job(OWNER, "mark", &["by cgroup"]));
    let said = failed(&scene.user_in_job(OTHER_USER, "mark", &["not mine"]), 2);
    assert!(said.contains("cannot determine the job"), "the job of another user is not shown: {said}");
    for variable in ["SLURM_JOB_ID", "OAR_JOB_ID"] {
        done(&scene.typed(OWNER, "mark", &["told"]).env(variable, "x").output().unwrap());
        failed(&scene.typed(OWNER, "mark", &["told"]).env(variable, "y").output().unwrap(), 1);
    }
    wait_until("the store has what was marked", || {
        let mut reader = scene.env.reader();
        let job = stored::job(&mut reader, "x");
        let marks = job.map(|job| reader.marks(job.job_key).unwrap()).unwrap_or_default();
        marks.iter().map(|mark| mark.name.as_str()).eq(["by cgroup", "told", "told"])
    });
    scene.end();
}

fn exit_status_names_the_failure() {
    require(&NEEDS);
    let scene = Scene::set();
    for (verb, words) in [
        ("mark", vec!["--job", "x", "a", "--begin", "--end"]),
        ("mark", vec!["--job", "x"]),
        ("push", vec!["--job", "x", "loss"]),
        ("push", vec!["--job", "x", "loss=much"]),
        ("push", vec!["--job", "x", "loss=inf"]),
        ("push", vec!["--job", "x", "loss=1", "--label", "rank"]),
        ("metrics", vec!["--job", "x", "--node"]),
    ] {
        assert!(!failed(&scene.user(OWNER, verb, &words), 2).is_empty(), "{verb} {words:?}");
    }
    for (uid, verb, words, word) in [
        (OTHER_USER, "mark", vec!["--job", "x", "a"], "unknown job x, or not yours"),
        (OTHER_USER, "push", vec!["--job", "x", "loss=1"], "unknown job x, or not yours"),
        (OTHER_USER, "metrics", vec!["--job", "x"], "unknown job x, or not yours"),
        (OWNER, "mark", vec!["--node", "a"], "only administrators"),
        (OWNER, "mark", vec!["--job", "x", "<b>"], "character"),
        (OWNER, "push", vec!["--job", "x", "Loss=1"], "'L'"),
        (OWNER, "push", vec!["--job", "x", "loss=1", "--label", "unit=s"], "is reserved"),
        (OWNER, "metrics", vec!["--job", "x", "node.*"], "node.*"),
    ] {
        let said = failed(&scene.user(uid, verb, &words), 1);
        assert!(said.contains(word), "{verb} {words:?}: {said}");
    }
    for (verb, word) in [("mark", Some("a")), ("push", Some("loss=1")), ("metrics", None)] {
        let mut command = program("polymeter");
        command.args([verb, "--socket", "/nowhere", "--job", "x"]).args(word);
        let said = failed(&command.output().unwrap(), 3);
        assert!(said.contains("start polymeter-agent"), "{said}");
    }
    scene.end();
}

fn metrics_lists_availability_and_read_cost() {
    require(&NEEDS);
    let scene = Scene::set();
    let metrics = done(&scene.user(OWNER, "metrics", &["--job", "x", "--json"]));
    let metrics: Value = serde_json::from_str(&metrics).unwrap();
    let of = |name: &str| {
        let mut lines = metrics["metrics"].as_array().unwrap().iter();
        lines.find(|line| line["metric"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    assert_eq!(
        (&of("pids.current")["available"], &of("pids.current")["period"]),
        (&true.into(), &"50ms".into())
    );
    assert_eq!((&of("cpu.user")["available"], &of("cpu.user")["period"]), (&true.into(), &Value::Null));
    assert!(of("cpu.user")["read_ns"].as_f64().unwrap() > 0.0);
    assert_eq!(of("process.cpu.usage")["available"], false);
    assert!(!of("process.cpu.usage")["reason"].as_str().unwrap().is_empty());
    let shown = done(&scene.user(OWNER, "metrics", &["--job", "x"]));
    assert!(shown.contains("not available: "), "{shown}");
    let chosen = done(&scene.user(OWNER, "metrics", &["--job", "x", "pids.*"]));
    assert!(chosen.lines().skip(1).all(|line| line.starts_with("pids.")), "{chosen}");
    assert!(done(&scene.user(0, "metrics", &["--node", "node.load1"])).contains("node.load1"));
    scene.end();
}

/// Runs a program with `input` on its standard input.
fn read_by(name: &str, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Skips the running test if the program is not installed.
fn require_program(name: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join(name).is_file()) {
        skip(name, &format!("{name} is not installed"));
    }
}

fn completions(shell: &str) -> String {
    done(&program("polymeter").args(["completions", shell]).output().unwrap())
}

fn completions_contain_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = completions(shell);
        assert!(["push", "begin", "completions"].iter().all(|word| script.contains(word)), "{shell}");
    }
    let unknown = program("polymeter").args(["completions", "tcsh"]).output().unwrap();
    failed(&unknown, 2);
}

fn must_accept(shell: &str) {
    require_program(shell);
    let checked = read_by(shell, &["-n"], &completions(shell));
    assert_eq!((checked.status.code(), text(&checked.stderr)), (Some(0), String::new()));
}

fn zsh_accepts_its_completions() {
    must_accept("zsh");
}

fn fish_accepts_its_completions() {
    must_accept("fish");
}

fn bash_completes_commands() {
    must_accept("bash");
    let try_it = "COMP_WORDS=(polymeter ma); COMP_CWORD=1; _polymeter polymeter ma polymeter; echo \"${COMPREPLY[@]}\"";
    let completed = read_by("bash", &[], &format!("{}\n{try_it}\n", completions("bash")));
    assert_eq!(done(&completed), "mark man\n");
}

/// Writes all manual pages to a directory and returns their names.
fn pages(directory: &Path) -> Vec<String> {
    done(&program("polymeter").args(["man", "--out"]).arg(directory).output().unwrap());
    let pages = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let names = pages(directory.path());
    for name in ["polymeter.1", "polymeter-push.1", "polymeter-agent.8", "polymeter-collector.8"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    let help = done(&program("polymeter").arg("--help").output().unwrap());
    for name in &names {
        let page = fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
        if let Some(verb) = name.strip_prefix("polymeter-").and_then(|name| name.strip_suffix(".1")) {
            assert!(help.contains(&format!("  {verb} ")), "{verb} is in no help: {help}");
        }
    }
    let printed = done(&program("polymeter").arg("man").output().unwrap());
    assert_eq!(printed, fs::read_to_string(directory.path().join("polymeter.1")).unwrap());
}

fn manual_pages_have_no_warnings_in_man() {
    require_program("man");
    let directory = tempfile::tempdir().unwrap();
    for name in pages(directory.path()) {
        let path = directory.path().join(&name);
        let checked = Command::new("man").args(["--warnings", "-l"]).arg(path).output().unwrap();
        assert_eq!((checked.status.code(), text(&checked.stderr)), (Some(0), String::new()), "{name}");
    }
}

fn manual_pages_have_no_warnings_in_mandoc() {
    require_program("mandoc");
    let directory = tempfile::tempdir().unwrap();
    for name in pages(directory.path()) {
        let path = directory.path().join(&name);
        let checked = Command::new("mandoc").args(["-Tlint", "-Werror"]).arg(path).output().unwrap();
        assert_eq!(checked.status.code(), Some(0), "{name}");
    }
}
