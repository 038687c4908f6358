//! Experiments that are ended leave nothing behind.
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polymeter_agent::cgroups::Mounts;
use polymeter_benches::clock::wait_for;
use polymeter_benches::job::pause;
use polymeter_benches::process::children;
use polymeter_e2e::{Need, require};
use rustix::process::{Pid, Signal, kill_process};

/// Pids of the programs whose arguments contain `text`.
fn programs(text: &str) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let with_text = processes.filter(|process| {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(text)
    });
    with_text.filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?)).collect()
}

/// Cgroups of an experiment's jobs.
fn cgroups(experiment: Pid) -> Vec<PathBuf> {
    let mounts = Mounts::read(Path::new("/")).unwrap();
    let head = format!("polymeter_idle_{experiment}x");
    let roots = mounts.v1.values().chain(&mounts.v2);
    let entries = roots.flat_map(|root| fs::read_dir(root).unwrap().flatten());
    let of_experiment = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&head));
    of_experiment.map(|entry| entry.path()).collect()
}

/// Ends an experiment while its agent runs, given its supervisor and itself. Returns the exit status.
fn status_after(end: impl FnOnce(Pid, Pid)) -> Option<i32> {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().to_str().unwrap();
    // As under `nohup`.
    let mut bench = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" idle --jobs 1", env!("CARGO_BIN_EXE_polymeter-bench")])
        .env("TMPDIR", inside)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("its agent runs", 60, || programs(inside).first().copied()).unwrap();
    let experiment = children(bench.id()).unwrap()[0];
    assert!(!cgroups(experiment).is_empty());
    end(Pid::from_child(&bench), experiment);
    let status = bench.wait().unwrap();
    assert_eq!(programs(inside), Vec::new());
    assert_eq!(fs::read_dir(inside).unwrap().count(), 0, "files are left");
    assert_eq!(cgroups(experiment), Vec::<PathBuf>::new());
    status.code()
}

#[test]
fn an_experiment_that_is_ended_leaves_no_process_no_file_and_no_cgroup() {
    require(&[Need::Root]);
    let asked_to = |supervisor, _| {
        kill_process(supervisor, Signal::HUP).unwrap();
        pause(200_000_000);
        kill_process(supervisor, Signal::TERM).unwrap();
    };
    assert_eq!(status_after(asked_to), Some(128 + 15), "a signal that is ignored ends nothing");
    assert_eq!(status_after(|_, experiment| kill_process(experiment, Signal::KILL).unwrap()), Some(128 + 9));
}
