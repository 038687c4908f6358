//! The everyday commands, called by users, and their effects.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use polymeter_e2e::fixture::{Fixture, NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::tests;
use polymeter_e2e::{TestEnvironment, program, require, skip, stored, text, wait_until};
use serde_json::Value;

tests![
    marks_and_user_values_are_in_the_report,
    job_defaults_to_the_schedulers_or_the_own_cgroup,
    exit_status_names_the_failure,
    metrics_lists_availability_and_read_cost,
    completions_ask_the_command,
    bash_completes_commands_metrics_and_periods,
    zsh_completes_commands_and_metrics,
    fish_completes_commands_metrics_and_periods,
    every_command_has_a_manual_page,
    manual_pages_have_no_warnings_in_man,
    manual_pages_have_no_warnings_in_mandoc,
];

fn succeeded(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Error message of the command, which must have failed with this status and without output.
fn error_of(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    text(&output.stderr)
}

fn report(env: &TestEnvironment, more: &[&str]) -> String {
    let store = env.store();
    let arguments = [&["report", "--store", &store, "x"], more].concat();
    succeeded(&program("polymeter").args(arguments).output().unwrap())
}

fn marks_and_user_values_are_in_the_report() {
    require(&NEEDS);
    let fixture = Fixture::new();
    assert_eq!(succeeded(&fixture.user(OWNER, "mark", &["--job", "x", "solver", "--begin"])), "");
    succeeded(&fixture.user(
        OWNER,
        "push",
        &["--job", "x", "loss=0.25", "--unit", "nats", "--label", "rank=3"],
    ));
    succeeded(&fixture.user(
        OWNER,
        "push",
        &["--job", "x", "loss=1e-1", "--unit", "nats", "--label", "rank=3"],
    ));
    succeeded(&fixture.user(OWNER, "mark", &["--job", "x", "checkpoint 1"]));
    let answer = succeeded(&fixture.user(OWNER, "mark", &["--job", "x", "solver", "--end", "--json"]));
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["answer"], "done");
    fixture.granted(OWNER, &["cpu.usage=20ms"]);
    succeeded(&fixture.user(OWNER, "mark", &["--job", "x", "never ended", "--begin"]));
    // Marks and changes are delivered in order: when the last one is stored, all are.
    wait_until("the store has the marks", || {
        let mut reader = fixture.env.reader();
        let job = stored::job(&mut reader, "x");
        job.is_some_and(|job| reader.marks(job.job_key).unwrap().len() == 4)
    });
    let report: Value = serde_json::from_str(&report(&fixture.env, &["--json"])).unwrap();
    let phases = report["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 2, "{phases:?}");
    assert_eq!((&phases[0]["name"], &phases[0]["actor"]), (&"solver".into(), &"uid 64001".into()));
    assert!(phases[0]["end_s"].as_f64() > phases[0]["begin_s"].as_f64(), "{phases:?}");
    assert_eq!((&phases[1]["name"], &phases[1]["end_s"]), (&"never ended".into(), &Value::Null));
    assert_eq!(report["marks"][0]["name"], "checkpoint 1");
    let changes = report["plan_changes"].as_array().unwrap();
    let lease = changes.iter().find(|change| change["cause"] == "lease").unwrap();
    let fields = ["metric", "old", "new", "actor"].map(|field| lease[field].as_str().unwrap());
    assert_eq!(fields, ["cpu.usage", "500ms", "20ms", "uid 64001"]);
    let series = report["series"].as_array().unwrap();
    let loss = series.iter().find(|series| series["metric"] == "user.loss").unwrap();
    assert_eq!((&loss["labels"], &loss["samples"]), (&"rank=3,unit=nats".into(), &2.into()));
    assert_eq!((&loss["min"], &loss["max"]), (&0.1.into(), &0.25.into()));

    let shown = self::report(&fixture.env, &["--show", "phases,plan"]);
    let (totals, shown) = shown.split_once("\n  mark ").expect("a table of marks");
    assert!(totals.contains("  solver "), "{totals}");
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
    fixture.end();
}

fn job_defaults_to_the_schedulers_or_the_own_cgroup() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let message = error_of(&fixture.user(OWNER, "mark", &["here"]), 2);
    assert!(message.contains("--job ID"), "{message}");
    succeeded(&fixture.user_in_job(OWNER, "mark", &["by cgroup"]));
    let message = error_of(&fixture.user_in_job(OTHER_USER, "mark", &["not mine"]), 2);
    assert!(message.contains("cannot determine the job"), "the job of another user is not shown: {message}");
    for variable in ["SLURM_JOB_ID", "OAR_JOB_ID"] {
        succeeded(&fixture.typed(OWNER, "mark", &["from environment"]).env(variable, "x").output().unwrap());
        error_of(
            &fixture.typed(OWNER, "mark", &["from environment"]).env(variable, "y").output().unwrap(),
            1,
        );
    }
    wait_until("the store has the marks", || {
        let mut reader = fixture.env.reader();
        let job = stored::job(&mut reader, "x");
        let marks = job.map(|job| reader.marks(job.job_key).unwrap()).unwrap_or_default();
        marks.iter().map(|mark| mark.name.as_str()).eq(["by cgroup", "from environment", "from environment"])
    });
    fixture.end();
}

fn exit_status_names_the_failure() {
    require(&NEEDS);
    let fixture = Fixture::new();
    for (verb, words) in [
        ("mark", vec!["--job", "x", "a", "--begin", "--end"]),
        ("mark", vec!["--job", "x"]),
        ("push", vec!["--job", "x", "loss"]),
        ("push", vec!["--job", "x", "loss=much"]),
        ("push", vec!["--job", "x", "loss=inf"]),
        ("push", vec!["--job", "x", "loss=1", "--label", "rank"]),
        ("metrics", vec!["--job", "x", "--node"]),
    ] {
        assert!(!error_of(&fixture.user(OWNER, verb, &words), 2).is_empty(), "{verb} {words:?}");
    }
    for (uid, verb, words, word) in [
        (OTHER_USER, "mark", vec!["--job", "x", "a"], "unknown job x, or not yours"),
        (OTHER_USER, "push", vec!["--job", "x", "loss=1"], "unknown job x, or not yours"),
        (OTHER_USER, "metrics", vec!["--job", "x"], "unknown job x, or not yours"),
        (OWNER, "mark", vec!["--node", "a"], "only administrators"),
        (OWNER, "mark", vec!["--job", "x", "a\u{1b}b"], "character"),
        (OWNER, "push", vec!["--job", "x", "Loss=1"], "'L'"),
        (OWNER, "push", vec!["--job", "x", "loss=1", "--label", "unit=s"], "is reserved"),
        (OWNER, "metrics", vec!["--job", "x", "node.*"], "node.*"),
    ] {
        let message = error_of(&fixture.user(uid, verb, &words), 1);
        assert!(message.contains(word), "{verb} {words:?}: {message}");
    }
    for (verb, word) in [("mark", Some("a")), ("push", Some("loss=1")), ("metrics", None)] {
        let mut command = program("polymeter");
        command.args([verb, "--socket", "/nowhere", "--job", "x"]).args(word);
        let message = error_of(&command.output().unwrap(), 3);
        assert!(message.contains("start polymeter-agent"), "{message}");
    }
    fixture.end();
}

fn metrics_lists_availability_and_read_cost() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let metrics = succeeded(&fixture.user(OWNER, "metrics", &["--job", "x", "--json"]));
    let metrics: Value = serde_json::from_str(&metrics).unwrap();
    assert_eq!(
        (&line_of(&metrics, "pids.current")["available"], &line_of(&metrics, "pids.current")["period"]),
        (&true.into(), &"50ms".into())
    );
    assert_eq!(
        (&line_of(&metrics, "cpu.user")["available"], &line_of(&metrics, "cpu.user")["period"]),
        (&true.into(), &Value::Null)
    );
    assert!(line_of(&metrics, "cpu.user")["read_ns"].as_f64().unwrap() > 0.0);
    assert_eq!(line_of(&metrics, "process.cpu.usage")["available"], false);
    assert!(!line_of(&metrics, "process.cpu.usage")["reason"].as_str().unwrap().is_empty());
    let shown = succeeded(&fixture.user(OWNER, "metrics", &["--job", "x"]));
    assert!(shown.contains("not available: "), "{shown}");
    let chosen = succeeded(&fixture.user(OWNER, "metrics", &["--job", "x", "pids.*"]));
    assert!(chosen.lines().skip(1).all(|line| line.starts_with("pids.")), "{chosen}");
    assert!(succeeded(&fixture.user(0, "metrics", &["--node", "node.load1"])).contains("node.load1"));
    fixture.end();
}

fn line_of(metrics: &Value, name: &str) -> Value {
    let mut lines = metrics["metrics"].as_array().unwrap().iter();
    lines.find(|line| line["metric"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
}

fn run_with_input(name: &str, arguments: &[&str], input: &str) -> Output {
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

fn require_program(name: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join(name).is_file()) {
        skip(name, &format!("{name} is not installed"));
    }
}

fn completions(shell: &str) -> String {
    succeeded(&program("polymeter").args(["completions", shell]).output().unwrap())
}

fn completions_ask_the_command() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            completions(shell).contains(&format!("_POLYMETER_COMPLETE={shell} "))
                || completions(shell).contains(&format!("_POLYMETER_COMPLETE=\"{shell}\"")),
            "{shell}"
        );
    }
    let mut command = program("polymeter");
    let listed = command.env("_POLYMETER_COMPLETE", "fish").args(["--", "polymeter", ""]).output().unwrap();
    let listed = succeeded(&listed);
    assert!(["push", "watch", "completions"].iter().all(|word| listed.contains(word)), "{listed}");
    let unknown = program("polymeter").args(["completions", "tcsh"]).output().unwrap();
    error_of(&unknown, 2);
}

fn assert_accepts(shell: &str) {
    require_program(shell);
    let checked = run_with_input(shell, &["-n"], &completions(shell));
    assert_eq!((checked.status.code(), text(&checked.stderr)), (Some(0), String::new()));
}

fn programs() -> String {
    program("polymeter").get_program().to_str().unwrap().rsplit_once('/').unwrap().0.to_owned()
}

/// Checks what an interactive zsh shows when `words` and a tab are typed.
fn assert_zsh_shows(expected: &str, words: &str) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("_polymeter"), completions("zsh")).unwrap();
    let script = directory.path().join("complete.zsh");
    fs::write(&script, include_str!("complete.zsh")).unwrap();
    let functions = succeeded(&Command::new("zsh").args(["-fc", "echo $FPATH"]).output().unwrap());
    let path = std::env::var("PATH").unwrap();
    let shown = Command::new("zsh")
        .arg("-f")
        .arg(&script)
        .args([expected, words])
        .env("PATH", format!("{}:{path}", programs()))
        .env("FPATH", format!("{}:{}", directory.path().display(), functions.trim_end()))
        .output()
        .unwrap();
    let shown = succeeded(&shown);
    assert!(shown.contains(expected), "{words}: {shown}");
}

fn zsh_completes_commands_and_metrics() {
    assert_accepts("zsh");
    assert_zsh_shows("polymeter report", "polymeter rep");
    assert_zsh_shows("memory.current=", "polymeter set memory.curr");
    assert_zsh_shows("--plain", "polymeter watch --");
}

fn fish_completes_commands_metrics_and_periods() {
    assert_accepts("fish");
    assert!(candidates_of_fish("polymeter rep").starts_with("report\t"));
    assert!(candidates_of_fish("polymeter set memory.curr").contains("memory.current="));
    assert!(candidates_of_fish("polymeter set cpu.usage=1m").contains("cpu.usage=1min"));
}

fn candidates_of_fish(words: &str) -> String {
    let script = format!("set PATH {} $PATH\n{}\ncomplete -C '{words}'\n", programs(), completions("fish"));
    succeeded(&run_with_input("fish", &["--no-config"], &script))
}

/// Completes with bash, given the line up to the cursor, its words as bash splits them, and the last part.
fn completed_by_bash(line: &str, words: &str, last: &str) -> String {
    let directory = programs();
    let script = format!(
        "PATH={directory}:$PATH\n{}\nCOMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=({words})\n\
         COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _polymeter polymeter '{last}' x; echo \"${{COMPREPLY[@]}}\"\n",
        completions("bash")
    );
    succeeded(&run_with_input("bash", &[], &script)).trim_end().to_owned()
}

fn bash_completes_commands_metrics_and_periods() {
    assert_accepts("bash");
    assert_eq!(completed_by_bash("polymeter ma", "polymeter ma", "ma"), "mark man");
    assert_eq!(
        completed_by_bash("polymeter set memory.curr", "polymeter set memory.curr", "memory.curr"),
        "memory.current="
    );
    let period = completed_by_bash("polymeter set cpu.usage=1m", "polymeter set cpu.usage = 1m", "1m");
    assert_eq!(period, "1ms 1min");
    let all = completed_by_bash("polymeter set cpu.usage=", "polymeter set cpu.usage =", "");
    assert!(all.starts_with("100us 1ms"), "{all}");
    let second = "polymeter set cpu.usage=1s memory.curr";
    assert_eq!(
        completed_by_bash(second, "polymeter set cpu.usage = 1s memory.curr", "memory.curr"),
        "memory.current="
    );
    assert_eq!(completed_by_bash("polymeter set x=1 --for 3", "polymeter set x = 1 --for 3", "3"), "30min");
}

fn pages(directory: &Path) -> Vec<String> {
    succeeded(&program("polymeter").args(["man", "--out"]).arg(directory).output().unwrap());
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
    let help = succeeded(&program("polymeter").arg("--help").output().unwrap());
    for name in &names {
        let page = fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
        assert!(page.contains(".SH \"EXIT STATUS\"") && page.contains(".SH \"EXAMPLES\""), "{name}");
        let verb = name.strip_prefix("polymeter-").and_then(|name| name.strip_suffix(".1"));
        if let Some(verb) = verb.filter(|verb| !verb.contains('-')) {
            assert!(help.contains(&format!("  {verb} ")), "{verb} is in no help: {help}");
        }
    }
    let printed = succeeded(&program("polymeter").arg("man").output().unwrap());
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
