//! Texts of `polymeter-collector`, compared with `tests/snapshots`. `POLYMETER_BLESS=1` writes them.

use std::fs;
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::process::Output;

use polymeter_test_harness::snapshot::Daemon;

polymeter_test_harness::tests![
    help_is_as_in_the_snapshot,
    check_reports_all_faults_as_in_the_snapshot,
    start_errors_are_as_in_the_snapshot,
    journal_gets_priorities,
    filter_comes_from_the_variable_or_the_option,
    json_lines_have_level_target_and_message,
];

const COLLECTOR: Daemon = Daemon {
    program: env!("CARGO_BIN_EXE_polymeter-collector"),
    crate_directory: env!("CARGO_MANIFEST_DIR"),
};

fn help_is_as_in_the_snapshot() {
    COLLECTOR.check_help();
}

fn check_reports_all_faults_as_in_the_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("collector.toml");
    fs::write(
        &path,
        "listen = 'here'\nstores = 'sqlite:a.db'\nwriters = 0\ncommit_interval = '1 s'\ncommit_rows = true\n\
         timescaledb = 'maybe'\ninsecure = 1\nmetric_listen = '127.0.0.1:1'\nmetrics_listen = 'here'\nlog_level = 'loud'\n\
         auth = 'password'\ncontrol_listen = 'tcp://[::]:7718'\ncontrol_socket = 'p'\nscheduler_user = ''\n\
         session_timeout = '1y'\nkey = '/k'\n[clock]\nbeyond = 'apart'\nout_of_range = 'keep'\nmax_age = '0s'\n",
    )
    .unwrap();
    let arguments = ["--check", "--store", "mysql:x", "--config", path.to_str().unwrap()];
    let Output { status, stderr, .. } = COLLECTOR.run(&arguments);
    assert_eq!(status.code(), Some(2));
    let place = format!("{}/", directory.path().display());
    let faults = String::from_utf8(stderr).unwrap().replace(&place, "");
    COLLECTOR.check("check", faults.as_bytes());
    let valid = COLLECTOR.run(&["--check", "--store", "sqlite:x.db"]);
    assert_eq!(valid.status.code(), Some(0));
    COLLECTOR.check("check-valid", &valid.stderr);
}

fn start_errors_are_as_in_the_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().display().to_string();
    let store = format!("sqlite:{place}/x.db");
    let errors: Vec<String> = [
        ["--listen", "ipc:///nowhere/at/all", "--store", &store],
        ["--listen", "tcp://127.0.0.1:*", "--store", "sqlite:/nowhere/at/all.db"],
    ]
    .iter()
    .map(|arguments| {
        let output = COLLECTOR.run(arguments);
        assert_eq!(output.status.code(), Some(3));
        String::from_utf8(output.stderr).unwrap()
    })
    .collect();
    COLLECTOR.check("start-errors", errors.concat().replace(&place, "DIRECTORY").as_bytes());
}

/// Standard error of a successful check with further variables, written to a file so that its device and
/// inode are known.
fn log_of_check(variables: &[(&str, &str)], more: &[&str]) -> String {
    let mut file = tempfile::tempfile().unwrap();
    let metadata = file.metadata().unwrap();
    let stream = format!("{}:{}", metadata.dev(), metadata.ino());
    let mut command = COLLECTOR.command();
    command.args(["--check", "--store", "sqlite:x.db"]);
    for (name, value) in variables {
        command.env(name, value.replace("THIS", &stream));
    }
    assert!(command.args(more).stderr(file.try_clone().unwrap()).status().unwrap().success());
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

fn journal_gets_priorities() {
    assert!(log_of_check(&[("JOURNAL_STREAM", "THIS")], &[]).starts_with("<6>the configuration is valid"));
    // The variable is from a parent process with another stderr.
    let other = log_of_check(&[("JOURNAL_STREAM", "1:1")], &[]);
    assert!(other.starts_with("polymeter-collector: info: the configuration is valid"), "{other}");
}

fn filter_comes_from_the_variable_or_the_option() {
    assert_eq!(log_of_check(&[("POLYMETER_LOG", "warn")], &[]), "");
    assert_eq!(log_of_check(&[], &["--log", "off"]), "");
    assert!(!log_of_check(&[("POLYMETER_LOG", "warn")], &["--log", "info"]).is_empty());
    let invalid = log_of_check(&[("POLYMETER_LOG", "loud")], &[]);
    assert!(invalid.contains("warning: cannot use POLYMETER_LOG: unknown log level `loud`"), "{invalid}");
}

fn json_lines_have_level_target_and_message() {
    let line = log_of_check(&[], &["--log-format", "json"]);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&value["level"], &value["program"]), (&"info".into(), &"polymeter-collector".into()));
    assert!(value["message"].as_str().unwrap().starts_with("the configuration is valid"), "{line}");
    assert_eq!(value["target"], "polymeter_collector");
}
