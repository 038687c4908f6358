//! Texts of `polymeter-agent`, compared with `tests/snapshots`. `POLYMETER_BLESS=1` writes them.

use std::fs;
use std::process::Output;

use polymeter_test_harness::snapshot::Daemon;

const AGENT: Daemon =
    Daemon { program: env!("CARGO_BIN_EXE_polymeter-agent"), crate_directory: env!("CARGO_MANIFEST_DIR") };

#[test]
fn help_is_as_in_the_snapshot() {
    AGENT.check_help();
}

#[test]
fn check_reports_all_faults_as_in_the_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.toml");
    let check = |text: &str| {
        fs::write(&path, text).unwrap();
        let Output { status, stderr, .. } = AGENT.run(&["--check", "--config", path.to_str().unwrap()]);
        let place = format!("{}/", directory.path().display());
        (status.code(), String::from_utf8(stderr).unwrap().replace(&place, ""))
    };
    let (status, faults) = check(
        "nod = 'n1'\nvisibility = 'all'\nflush_interval = '1 s'\noutbox_bytes = '5'\ncollector = 'http://x'\n\
         control_socket = 'agent.sock'\nkey = '/k'\njobs = ['a/b', 'x/{job}', 'x/{job}']\nrealtime_priority = 99\n\
         remote_control = 1\nadministrators = ['']\njob_visibility = 'none'\nlog_level = 'inof'\nlog_format = 'xml'\n\
         [limits]\njob_cpu_percent = 0\n[baseline]\n'cpu.usge' = '1s'\n'memory.*' = 'fast'\n'Cpu' = '1s'\n\
         [steps]\n'node.load1' = '1s'\n",
    );
    assert_eq!(status, Some(2));
    AGENT.check("check", faults.as_bytes());
    assert_eq!(
        check("control_socket = 'off'\n"),
        (Some(0), "polymeter-agent: info: the configuration is valid\n".to_owned())
    );
}
