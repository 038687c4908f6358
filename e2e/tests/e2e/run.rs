//! `polymeter run`: the command behaves as without it, and its resource usage is reported.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use polymeter_e2e::ordinary_user::OrdinaryUser;
use polymeter_e2e::{Need, cgroup, program, require, text, workload};
use polymeter_e2e::{skip, tests};
use polymeter_test_harness::hypervisor::{TICK, stolen};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

tests![
    exit_status_is_the_commands,
    command_not_found_exits_like_a_shell,
    usage_errors_are_reported_before_the_run,
    standard_streams_pass_through,
    signals_reach_the_command,
    report_states_usage_and_overhead,
    values_are_those_of_the_command,
    process_tree_is_read_without_root,
    short_commands_are_counted_completely,
    no_rate_exceeds_the_number_of_cpus,
    ignored_signals_stay_ignored,
    only_cgroups_of_dead_runs_are_removed,
    command_that_leaves_its_cgroup_is_reported,
    kept_store_is_private_to_the_user,
];

const TOUCHED: usize = 100 << 20;

fn polymeter(arguments: &[&str]) -> Command {
    let mut command = program("polymeter");
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    polymeter(&["run"]).args(arguments).output().unwrap()
}

fn with_workload<'a>(command: &'a mut Command, executable: &Path) -> &'a mut Command {
    let words = format!("touch {};burn 500;rest 400", TOUCHED / workload::PAGE);
    command.arg("--").arg(executable).arg(words)
}

/// CPU time that the workload printed, in seconds.
fn own_cpu_s(output: &Output) -> f64 {
    let stdout = text(&output.stdout);
    let ns = stdout.split_once("workload: cpu_ns ").unwrap_or_else(|| panic!("{stdout}")).1;
    ns.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Existing cgroup directories of the `polymeter run` with this process id.
fn cgroups_of(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("polymeter-run-{pid}-");
    let roots =
        cgroup::V1.iter().chain(&["blkio", "perf_event", cgroup::V2]).filter_map(|name| cgroup::root(name));
    let mut left = Vec::new();
    let mut directories: Vec<PathBuf> = roots.collect();
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                left.push(entry.path());
            }
            directories.push(entry.path());
        }
    }
    left
}

fn exit_status_is_the_commands() {
    for (script, status) in
        [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 128 + 9), ("kill -TERM $$", 128 + 15)]
    {
        let output = run(&["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(status), "{script}: {}", text(&output.stderr));
    }
}

fn command_not_found_exits_like_a_shell() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    fs::write(&plain, "no program").unwrap();
    // An unsearchable directory in the tests' own PATH would cause a different error.
    let output =
        polymeter(&["run", "polymeter-no-such-program"]).env("PATH", "/usr/bin:/bin").output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
    let output = run(&[plain.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(126), "{}", text(&output.stderr));
}

fn usage_errors_are_reported_before_the_run() {
    let touched = tempfile::tempdir().unwrap();
    let created = touched.path().join("ran");
    let usage = [
        (vec!["-m", "memory.curent"], "memory.current"),
        (vec!["-m", "cpu.usge=10ms"], "cpu.usage"),
        (vec!["-m", "cpu.*=fast"], "fast"),
        (vec!["--every", "10"], "10"),
        (vec!["--every", "1us"], "1us"),
        (vec!["--no-such-option"], "--no-such-option"),
    ];
    for (arguments, word) in usage {
        let output = polymeter(&["run"]).args(&arguments).arg("touch").arg(&created).output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(word), "{arguments:?}: {stderr}");
    }
    assert_eq!(run(&[]).status.code(), Some(2));
    assert!(!created.exists());
}

fn standard_streams_pass_through() {
    let mut child = polymeter(&["run", "sh", "-c", "cat; printf %s \"$E2E_WORD\" >&2"])
        .env("E2E_WORD", "härte ' \" word")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More bytes than a pipe holds, so that reading and writing must overlap.
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut stdin, expected) = (child.stdin.take().unwrap(), sent.clone());
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success() && output.stdout == expected);
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("härte ' \" word\nCOMPLETED - used "), "{stderr}");
}

/// A `polymeter run` that is killed when this value is dropped; its cgroups are removed with all processes in
/// them.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
        for directory in cgroups_of(self.0.id()) {
            drop(cgroup::remove(&directory));
        }
    }
}

fn signals_reach_the_command() {
    // The script ends by itself after a while, if it gets no signal.
    let script =
        "trap 'echo caught; exit 7' TERM; echo ready; for i in $(seq 400); do sleep 0.05; done; exit 8";
    let child = polymeter(&["run", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = KilledOnDrop(child);
    let pid = child.0.id();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(lines.next().as_deref(), Some("caught"));
    assert_eq!(child.0.wait().unwrap().code(), Some(7));
    assert!(cgroups_of(pid).is_empty(), "{:?}", cgroups_of(pid));
}

fn report_states_usage_and_overhead() {
    let script = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; sleep 1";
    let output = run(&["--every", "10ms", "sh", "-c", script]);
    let stderr = text(&output.stderr);
    for wanted in
        ["wall time", "CPU time", "memory", "samples", "measuring cost", "% of one core", "not kept"]
    {
        assert!(stderr.contains(wanted), "no `{wanted}` in:\n{stderr}");
    }
    assert!(output.stdout.is_empty());
}

pub(crate) fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {report:#}"))
}

fn assert_agrees(report: &Value, own_cpu_s: f64) {
    let cpu_s = number(report, "/used/cpu_s");
    assert!(
        (0.8..1.2).contains(&(cpu_s / own_cpu_s)),
        "{cpu_s} s of CPU time, the workload says {own_cpu_s}"
    );
    assert!(number(report, "/wall_s") >= 0.9, "{report:#}");
}

fn values_are_those_of_the_command() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("kept.db");
    let mut command =
        polymeter(&["run", "--json", "-o", store.to_str().unwrap(), "-m", "memory.current=20ms"]);
    let child = with_workload(&mut command, &workload::program())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(cgroups_of(pid).is_empty(), "{:?}", cgroups_of(pid));
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_agrees(&report, own_cpu_s(&output));
    assert!(number(&report, "/used/peak_memory_bytes") >= TOUCHED as f64, "{report:#}");
    assert!(number(&report, "/used/peak_memory_bytes") < 2.0 * TOUCHED as f64, "{report:#}");
    assert!(number(&report, "/used/page_faults") >= (TOUCHED / workload::PAGE) as f64, "{report:#}");
    assert!(number(&report, "/measuring/cpu_s") > 0.0);
    let ledger = |name: &str| number(&report, &format!("/ledger/{name}"));
    assert!(ledger("due") > 0.0);
    assert!((ledger("taken") - number(&report, "/stored")).abs() < 0.5, "{report:#}");
    assert!(
        (ledger("due") - ledger("taken") - ledger("missed") - ledger("absent")).abs() < 0.5,
        "{report:#}"
    );

    let url = format!("sqlite:{}", store.display());
    let again = polymeter(&["report", "--store", &url, "--json"]).output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    for same in ["job", "used", "series", "ledger", "stored", "wall_s", "ended"] {
        assert_eq!(again[same], report[same], "{same}");
    }
    // The file takes a second job; both can be selected.
    let more = run(&["-o", store.to_str().unwrap(), "true"]);
    assert!(more.status.success() && text(&more.stderr).contains("samples in"), "{}", text(&more.stderr));
    let job = report["job"].as_str().unwrap();
    let first = polymeter(&["report", "--store", &url, "--json", job]).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&first.stdout).unwrap()["used"], report["used"]);
    let last = polymeter(&["report", "--store", &url, "--json"]).output().unwrap();
    assert_ne!(serde_json::from_slice::<Value>(&last.stdout).unwrap()["job"], report["job"]);
}

fn process_tree_is_read_without_root() {
    require(&[Need::Root]);
    let user = OrdinaryUser::new();
    let mut command = user.command("polymeter");
    command.args(["run", "--json", "--every", "20ms"]);
    let output = with_workload(&mut command, &user.path("e2e-workload")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_agrees(&report, own_cpu_s(&output));
    assert!(number(&report, "/used/peak_memory_bytes") >= TOUCHED as f64, "{report:#}");
    let series = report["series"].as_array().unwrap();
    let metrics: Vec<&str> = series.iter().map(|series| series["metric"].as_str().unwrap()).collect();
    assert!(metrics.contains(&"process.cpu.usage") && !metrics.contains(&"cpu.usage"), "{metrics:?}");
    assert_eq!(report["owner"], "nobody");
}

/// The CPU time of a command with children is complete: perf must have counted from the first instruction on.
/// Its clock goes on while a hypervisor runs others; the kernel's CPU time excludes that.
fn short_commands_are_counted_completely() {
    require(&[Need::Root]);
    let user = OrdinaryUser::new();
    let work = format!("{} 'burn 100'", user.path("e2e-workload").display());
    let script = format!("{work} & {work} & wait");
    for round in 0..8 {
        let mut command = user.command("polymeter");
        command.args(["run", "--json", "--every", "10s", "--", "sh", "-c", &script]);
        let stolen_before = stolen();
        let output = command.output().unwrap();
        let stolen_s = (stolen() + TICK - stolen_before).as_secs_f64();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stderr).unwrap();
        let series = report["series"].as_array().unwrap();
        let Some(clock) = series.iter().find(|series| series["metric"] == "perf.task_clock") else {
            skip("perf", "users have no perf events");
        };
        let (counted_s, used_s) = (number(clock, "/growth") / 1e9, number(&report, "/used/cpu_s"));
        assert!(used_s >= 0.2, "{report:#}");
        let figures = format!("round {round}: {counted_s} s of {used_s} s, up to {stolen_s} s stolen");
        assert!(counted_s > used_s * 0.95 && counted_s < used_s * 1.05 + stolen_s, "{figures}");
    }
}

/// Rates stay plausible: at a period of 1 ms, the kernel's ticks would show several times the existing CPUs.
fn no_rate_exceeds_the_number_of_cpus() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let work = format!("{} 'burn 200'", workload::program().display());
    let script = format!("{work} & {work} & {work} & wait");
    let mut command = polymeter(&["run", "--json", "-m", "cpu.*=1ms", "--", "sh", "-c", &script]);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    let cpus = polymeter_agent::sources::online_cpus(Path::new("/")).unwrap().len() as f64;
    let series = report["series"].as_array().unwrap();
    let of_cores: Vec<_> = series.iter().filter(|series| series["rate_unit"] == "cores").collect();
    assert!(of_cores.iter().any(|series| series["metric"] == "cpu.usage"), "{report:#}");
    for series in of_cores.iter().filter(|series| !series["max"].is_null()) {
        let is_of_one = series["metric"].as_str().unwrap().ends_with(".per_cpu");
        let max = number(series, "/max");
        assert!(max <= if is_of_one { 1.0 } else { cpus } + 1e-6, "{series:#}");
        assert!(series["metric"] != "cpu.usage" || number(series, "/window_s") >= 0.04, "{series:#}");
    }
}

fn ignored_signals_stay_ignored() {
    let script = format!(
        "trap '' HUP; exec '{}' run -- sh -c 'kill -HUP $$; echo alive'",
        program("polymeter").get_program().display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "alive\n".to_owned()), "{output:?}");
}

/// Starts a command under `polymeter run` that prints its process id and waits.
fn start_waiting_command() -> (KilledOnDrop, u32) {
    let child = polymeter(&["run", "sh", "-c", "echo $$; exec sleep 600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = KilledOnDrop(child);
    let mut line = String::new();
    BufReader::new(child.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let command = line.trim().parse().unwrap();
    (child, command)
}

fn only_cgroups_of_dead_runs_are_removed() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let (mut dead, survivor) = start_waiting_command();
    let (live, _) = start_waiting_command();
    let directories = |run: &KilledOnDrop| cgroups_of(run.0.id());
    assert!(directories(&dead).len() > 1 && directories(&live).len() == directories(&dead).len());
    dead.0.kill().unwrap();
    dead.0.wait().unwrap();
    let kept = directories(&dead);
    assert!(!kept.is_empty());
    // The command may have created cgroups of its own.
    fs::create_dir(kept[0].join("within")).unwrap();

    // The process that survived is left alone and reported.
    let stderr = text(&run(&["true"]).stderr);
    let flat = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(directories(&dead), kept, "{stderr}");
    assert!(flat.contains(&format!("contains process {survivor};")), "{stderr}");
    assert!(Path::new(&format!("/proc/{survivor}")).exists());

    kill_process(Pid::from_raw(survivor.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    // Concurrent tests' runs may remove them at once.
    polymeter_e2e::wait_until("the survivor is gone", || {
        !kept.iter().any(|directory| {
            fs::read_to_string(directory.join("cgroup.procs")).is_ok_and(|processes| !processes.is_empty())
        })
    });
    let before = directories(&live);
    let stderr = text(&run(&["true"]).stderr);
    assert!(directories(&dead).is_empty(), "{stderr}");
    assert_eq!(directories(&live), before);
}

fn command_that_leaves_its_cgroup_is_reported() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let names = cgroup::V1.iter().chain(&["blkio", "perf_event", cgroup::V2]);
    let leave: String = names
        .filter_map(|name| cgroup::root(name))
        .map(|root| format!("echo $$ > '{}'; ", root.join("cgroup.procs").display()))
        .collect();
    let burn = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    let output = run(&["--json", "sh", "-c", &format!("{leave}{burn}")]);
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    let seen =
        report["series"].as_array().unwrap().iter().find(|series| series["metric"] == "cpu.usage").unwrap();
    let (used_s, seen_s) = (number(&report, "/used/cpu_s"), number(seen, "/growth") / 1e9);
    assert!(used_s > 0.2 && seen_s < used_s / 2.0, "{used_s} s, {seen_s} s in the cgroup");
    // The notes may also name cgroups that concurrent tests leave for a moment.
    assert!(has_left(&report), "{}", report["notes"]);
    let stayed: Value = serde_json::from_slice(&run(&["--json", "sh", "-c", burn]).stderr).unwrap();
    assert!(!has_left(&stayed), "{}", stayed["notes"]);
}

fn has_left(report: &Value) -> bool {
    report["notes"]
        .as_array()
        .unwrap()
        .iter()
        .any(|note| note.as_str().unwrap().contains("moved to another cgroup"))
}

fn kept_store_is_private_to_the_user() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("run.db");
    let output = run(&["--output", store.to_str().unwrap(), "--", "true"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o600);
    let report =
        polymeter(&["report", "--store"]).arg(format!("sqlite:{}", store.display())).output().unwrap();
    assert!(report.status.success(), "{}", text(&report.stderr));
}
