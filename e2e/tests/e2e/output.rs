//! The output of the programs and its destination: results, errors, and text from untrusted sources.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use polymeter_e2e::program;
use polymeter_e2e::{skip, tests, text};
use serde_json::Value;

tests![
    unwritable_result_is_an_error,
    closed_pipe_is_not_an_error,
    unwritable_report_is_refused_before_the_run,
    json_errors_state_the_cause,
    fatal_errors_start_with_error,
    advice_names_existing_options,
    unknown_job_reveals_no_other_jobs,
    untrusted_text_is_escaped,
    reports_fit_eighty_columns,
];

fn polymeter(arguments: &[&str]) -> Command {
    let mut command = program("polymeter");
    command.args(arguments);
    for variable in ["SLURM_JOB_ID", "OAR_JOB_ID", "POLYMETER_COLLECTOR"] {
        command.env_remove(variable);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    polymeter(arguments).output().unwrap()
}

fn store(directory: &Path) -> (String, String) {
    let path = directory.join("run.db");
    let report = directory.join("report.json");
    let ran = polymeter(&["run", "--json", "--report"])
        .arg(&report)
        .arg("-o")
        .arg(&path)
        .args(["sh", "-c", "echo out; echo err >&2"])
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert_eq!((text(&ran.stdout), text(&ran.stderr)), ("out\n".to_owned(), "err\n".to_owned()));
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    (format!("sqlite:{}", path.display()), report["job"].as_str().unwrap().to_owned())
}

fn unwritable_result_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (store, job) = store(directory.path());
    let bundle = directory.path().join("bundle");
    let commands: [&[&str]; 11] = [
        &["metrics"],
        &["metrics", "--json"],
        &["metrics", "--markdown"],
        &["--help"],
        &["run", "--help"],
        &["--version"],
        &["--version", "--json"],
        &["completions", "bash"],
        &["man"],
        &["report", "--store", &store],
        &["bundle", &job, "--store", &store, "--out", bundle.to_str().unwrap()],
    ];
    for arguments in commands {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = polymeter(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("cannot write to the standard output"), "{arguments:?}");
    }
    let output = run(&["run", "--report", "/dev/full", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("cannot write the report to /dev/full"),
        "{}",
        text(&output.stderr)
    );
    let output = run(&["run", "--report", "/dev/full", "false"]);
    assert_eq!(output.status.code(), Some(1));
    let output = run(&["run", "--report", "/dev/full", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "the status is the command's");
}

fn closed_pipe_is_not_an_error() {
    for arguments in [["metrics", "*"], ["completions", "bash"]] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = polymeter(&arguments).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{arguments:?}");
    }
}

fn unwritable_report_is_refused_before_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let created = directory.path().join("ran");
    let output = polymeter(&["run", "--report", "/nowhere/report", "touch"]).arg(&created).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("/nowhere/report") && !created.exists());
}

fn json_errors_state_the_cause() {
    let socket = ["--socket", "/nowhere", "--json"];
    let wrong: [(&[&str], &[&str], i32, &str); 14] = [
        (&["status"], &socket, 3, "unreachable"),
        (&["jobs"], &socket, 3, "unreachable"),
        (&["plan", "--job", "x"], &socket, 3, "unreachable"),
        (&["set", "cpu.usage=1s", "--job", "x"], &socket, 3, "unreachable"),
        (&["reset"], &socket, 3, "unreachable"),
        (&["mark", "here"], &socket, 3, "unreachable"),
        (&["push", "loss=1"], &socket, 3, "unreachable"),
        (&["watch"], &socket, 3, "unreachable"),
        (&["push", "loss=much"], &socket, 2, "usage"),
        (&["set"], &socket, 2, "usage"),
        (&["status", "--no-such-option"], &socket, 2, "usage"),
        (&["metrics", "no.such"], &["--json"], 1, "failed"),
        (&["report", "--store", "sqlite:/nowhere/x.db"], &["--json"], 1, "failed"),
        (&["keygen", "--out", "/nowhere"], &["--json"], 1, "failed"),
    ];
    for (command, options, status, code) in wrong {
        let output = run(&[command, options].concat());
        assert_eq!(output.status.code(), Some(status), "{command:?}: {}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{command:?}: {error}: {}", text(&output.stdout)));
        assert_eq!(
            (json["answer"].as_str(), json["code"].as_str()),
            (Some("refused"), Some(code)),
            "{command:?}"
        );
        assert!(!json["message"].as_str().unwrap().is_empty());
        assert!(text(&output.stderr).contains("polymeter: "), "people read it on stderr: {command:?}");
    }
    // Here stdout belongs to the command that is run.
    for (arguments, status, code) in [
        (["run", "--json", "/nowhere/program"], 127, "not_started"),
        (["run", "--json", "--every=x"], 2, "usage"),
    ] {
        let output = run(&arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(status), String::new()));
        let json: Value = serde_json::from_slice(&output.stderr)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        assert_eq!(json["code"], code);
    }
}

fn fatal_errors_start_with_error() {
    let directory = tempfile::tempdir().unwrap();
    let (listen, store) = ("tcp://127.0.0.1:*", "sqlite:/nowhere/store.db");
    for arguments in [["--listen", "nonsense", "--store", store], ["--listen", listen, "--store", store]] {
        let output = program("polymeter-collector").args(arguments).current_dir(&directory).output().unwrap();
        let stderr = text(&output.stderr);
        assert!(
            !output.status.success() && stderr.starts_with("polymeter-collector: error: "),
            "{arguments:?}: {stderr}"
        );
        assert!(!stderr.contains("warning: "), "{arguments:?}: {stderr}");
    }
}

fn advice_names_existing_options() {
    for verb in [vec!["jobs"], vec!["status"]] {
        let output = run(&[verb.as_slice(), &["--socket", "/nowhere"]].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{verb:?}: {stderr}");
        assert!(stderr.contains("--socket") && !stderr.contains("--collector"), "{verb:?}: {stderr}");
    }
    for verb in [vec!["plan"], vec!["push", "x=1"], vec!["watch"]] {
        let stderr = text(&run(&[verb.as_slice(), &["--job", "x", "--socket", "/nowhere"]].concat()).stderr);
        assert!(stderr.contains("--collector"), "{verb:?}: {stderr}");
    }
}

fn unknown_job_reveals_no_other_jobs() {
    let directory = tempfile::tempdir().unwrap();
    let (store, job) = store(directory.path());
    for command in ["report", "bundle"] {
        let out = directory.path().join("bundle");
        let mut command_line = match command {
            "report" => polymeter(&["report", "--store", &store, "42"]),
            _ => polymeter(&["bundle", "42", "--store", &store, "--out", out.to_str().unwrap()]),
        };
        let output = command_line.output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr.contains("unknown job `42`") && !stderr.contains(&job), "{stderr}");
    }
    let similar_id = format!("{job}0");
    let stderr = text(&run(&["report", "--store", &store, &similar_id]).stderr);
    assert!(stderr.contains(&format!("did you mean `{job}`?")), "{stderr}");
}

fn untrusted_text_is_escaped() {
    let directory = tempfile::tempdir().unwrap();
    let (store, job) = store(directory.path());
    let path = store.strip_prefix("sqlite:").unwrap();
    let database = rusqlite::Connection::open(path).unwrap();
    let (key, time): (i64, i64) = database
        .query_row("SELECT job_key, started FROM job", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let hostile =
        ["=1+1", "evil\u{202e}txt", "no\u{200b}thing", "two\u{2028}lines", "esc\u{1b}[31m", " ", "-1+1|cmd"];
    for name in hostile {
        let marked = "INSERT INTO mark (time, node, job_key, job_id, name) VALUES (?1, 'n1', ?2, ?3, ?4)";
        database.execute(marked, rusqlite::params![time, key, job, name]).unwrap();
    }
    database.execute("UPDATE job SET owner = ?1", ["root\u{202e}toor\nroot"]).unwrap();
    drop(database);

    let is_safe = |text: &str| text.chars().all(|character| character == '\n' || !character.is_control());
    let report = text(&run(&["report", "--store", &store, &job, "--show", "all"]).stdout);
    assert!(is_safe(&report) && !report.contains(['\u{202e}', '\u{200b}', '\u{2028}']), "{report:?}");
    for written in
        ["evil\\u{202e}txt", "no\\u{200b}thing", "two\\u{2028}lines", "esc\\u{1b}[31m", "\\u{a}root"]
    {
        assert!(report.contains(written), "no {written} in {report}");
    }
    let json = run(&["report", "--store", &store, &job, "--json"]);
    assert!(!text(&json.stdout).contains('\u{202e}'));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let names: Vec<_> =
        json["marks"].as_array().unwrap().iter().map(|mark| mark["name"].as_str().unwrap()).collect();
    assert!(hostile.iter().all(|name| names.contains(name)), "programs get what was given: {names:?}");

    let out = directory.path().join("bundle");
    let bundled = run(&["bundle", &job, "--store", &store, "--out", out.to_str().unwrap()]);
    assert_eq!(bundled.status.code(), Some(0), "{}", text(&bundled.stderr));
    let marks = fs::read_to_string(out.join("marks.csv")).unwrap();
    assert!(is_safe(&marks) && !marks.contains(['\u{202e}', '\u{200b}', '\u{2028}']), "{marks:?}");
    assert!(marks.contains(",'=1+1,") && marks.contains(",'-1+1|cmd,"), "{marks}");
    assert!(fs::read_to_string(out.join("README.md")).unwrap().contains("apostrophe"));
}

fn reports_fit_eighty_columns() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = store(directory.path());
    // A terminal of 80 columns, if the machine has `script`, which creates one.
    let command = format!(
        "stty cols 80; NO_COLOR=1 '{}' report --show all --store '{store}'",
        program("polymeter").get_program().display()
    );
    let shown = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output();
    let Ok(shown) = shown.map(|shown| text(&shown.stdout)) else {
        skip("script", "there is no such program");
    };
    let series: Vec<&str> = shown
        .lines()
        .skip_while(|line| !line.starts_with("  metric"))
        .skip(1)
        .take_while(|line| !line.trim().is_empty())
        .collect();
    assert!(series.len() > 3 && shown.lines().all(|line| line.trim_end().chars().count() <= 80), "{shown}");
    let rows = series.iter().filter(|line| !line.starts_with("  (") && !line.starts_with("   "));
    let mut names: Vec<&str> = rows.filter_map(|line| line.split_whitespace().next()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "{shown}");
}
