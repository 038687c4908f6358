//! The record that `polymeter run` leaves: it is that of the command alone, the same in the printed report
//! and in the store, complete however the run ends, and open to requests from within the run.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use polymeter_e2e::ordinary_user::OrdinaryUser;
use polymeter_e2e::{Need, program, require, tests, text, wait_until, workload};
use serde_json::Value;

use crate::run::number;

tests![
    earlier_children_do_not_count,
    processes_that_outlive_the_command_count_until_its_end,
    printed_and_stored_reports_are_the_same,
    reports_are_ascii_in_a_locale_without_utf8,
    requests_within_a_run_concern_it,
    scripts_of_an_ordinary_user_mark_and_push,
    a_command_that_does_not_start_is_on_record,
    a_killed_run_has_ended,
    a_run_that_is_killed_at_once_is_on_record,
    a_request_without_effect_is_reported,
    a_short_command_has_no_share_of_a_core,
    a_parent_that_ignores_its_children_costs_no_status,
    a_command_has_the_signal_mask_of_its_parent,
    files_keep_their_names,
    a_full_disk_hides_no_end,
    a_disk_that_stays_full_hides_no_end,
    an_interrupted_creation_leaves_an_empty_store,
    few_descriptors_and_small_files_are_named,
    another_user_reads_why_the_run_is_out_of_reach,
    temporary_files_are_private,
];

enum Runner {
    /// Root, whose commands have a cgroup.
    Root,
    /// A user whose commands have none.
    Ordinary(OrdinaryUser),
}

impl Runner {
    fn both() -> [Self; 2] {
        [Self::Root, Self::Ordinary(OrdinaryUser::new())]
    }

    fn command(&self, name: &str) -> Command {
        match self {
            Self::Ordinary(user) => user.command(name),
            Self::Root => {
                let directory = Path::new(program("polymeter").get_program()).parent().unwrap().to_owned();
                let mut command = Command::new(name);
                command.env("PATH", format!("{}:/usr/bin:/bin", directory.display()));
                command
            }
        }
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        let mut command = self.command("polymeter");
        command.arg("run").args(options).args(["--", "sh", "-c", script]).output().unwrap()
    }

    fn has_cgroup(&self) -> bool {
        matches!(self, Self::Root)
    }
}

fn printed(output: &Output) -> Value {
    serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

/// A directory in which every user can create a store.
fn shared_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    directory
}

/// Report of the last job in a file, or of the one with this id.
fn stored(runner: &Runner, store: &Path, job: &[&str]) -> Value {
    let mut command = runner.command("polymeter");
    command.args(["report", "--json", "--store"]).arg(format!("sqlite:{}", store.display())).args(job);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A shell that used CPU time and memory, by itself and by children, becomes `polymeter run`.
fn earlier_children_do_not_count() {
    require(&[Need::Root]);
    for runner in Runner::both() {
        let before = "e2e-workload 'touch 40000;burn 700'; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let script =
            format!("{before}; exec polymeter run --json -- sh -c 'sleep 0.2; e2e-workload \"burn 60\"'");
        let output = runner.command("sh").args(["-c", &script]).output().unwrap();
        let report = printed(&output);
        let cpu_s = number(&report, "/used/cpu_s");
        assert!((0.05..0.5).contains(&cpu_s), "{report:#}");
        assert!(number(&report, "/used/peak_memory_bytes") < 100e6, "{report:#}");
        assert!(number(&report, "/used/page_faults") < 20_000.0, "{report:#}");
    }
}

/// The command ends, and its child goes on: what it used until then is in the report.
fn processes_that_outlive_the_command_count_until_its_end() {
    require(&[Need::Root]);
    for runner in Runner::both() {
        let script = "setsid e2e-workload 'burn 400;rest 9000' >/dev/null 2>&1 & sleep 4; true";
        let output = runner.run(&["--json", "--every", "20ms"], script);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = printed(&output);
        assert!((0.3..1.0).contains(&number(&report, "/used/cpu_s")), "{report:#}");
        let says = report["notes"].to_string().contains("1 process of the command goes on");
        assert_eq!(says, runner.has_cgroup(), "{report:#}");
    }
}

fn printed_and_stored_reports_are_the_same() {
    require(&[Need::Root]);
    let directory = shared_directory();
    for (place, runner) in Runner::both().into_iter().enumerate() {
        let store = directory.path().join(format!("{place}.db"));
        let scripts = [
            ("short", "true", 0),
            ("long", "e2e-workload 'burn 300;rest 1200'", 0),
            ("several processes", "for i in 1 2 3; do e2e-workload 'burn 100' & done; wait", 0),
            ("memory", "e2e-workload 'touch 50000;rest 200'", 0),
            ("failing", "e2e-workload 'burn 30'; exit 77", 77),
            ("killed", "kill -KILL $$", 137),
        ];
        for (name, script, status) in scripts {
            let options = ["--json", "--name", name, "--env", "PATH,E2E_NOT_SET", "-o"];
            let output = runner.run(&[&options[..], &[store.to_str().unwrap()]].concat(), script);
            assert_eq!(output.status.code(), Some(status), "{name}: {}", text(&output.stderr));
            let mut report = printed(&output);
            assert_has_identity(&report, &runner, (name, script));
            let mut again = stored(&runner, &store, &[report["job"].as_str().unwrap()]);
            let (notes, stored_notes) = (report["notes"].take(), again["notes"].take());
            assert_eq!(report, again, "{name}");
            for note in stored_notes.as_array().unwrap() {
                assert!(notes.as_array().unwrap().contains(note), "{name}: {note}");
            }
            for figure in ["/used/cpu_s", "/used/context_switches", "/used/page_faults", "/measuring/cpu_s"] {
                assert!(number(&report, figure) >= 0.0, "{name}: {report:#}");
            }
            let (state, code, signal) = match status {
                0 => ("COMPLETED", Value::from(0), Value::Null),
                77 => ("FAILED", Value::from(77), Value::Null),
                _ => ("FAILED", Value::Null, Value::from(9)),
            };
            assert_eq!(
                (&report["state"], &report["exit_code"], &report["exit_signal"]),
                (&state.into(), &code, &signal)
            );
            assert_eq!(report["ended"], true, "{name}");
            if name == "memory" {
                let touched = (50_000 * workload::PAGE) as f64;
                let peak = number(&report, "/used/peak_memory_bytes");
                assert!((touched..1.5 * touched).contains(&peak), "{report:#}");
            }
        }
        // The texts have the same lines, too.
        let output =
            runner.run(&["--show", "all", "-o", store.to_str().unwrap()], "e2e-workload 'burn 50;rest 100'");
        let url = format!("sqlite:{}", store.display());
        let again =
            runner.command("polymeter").args(["report", "--show", "all", "--store", &url]).output().unwrap();
        let (report, again) = (text(&output.stderr), text(&again.stdout));
        let labels = ["CPU time", "peak memory", "page faults", "context switches", "measuring cost"];
        for label in labels {
            let line =
                |report: &str| report.lines().find(|line| line.trim().starts_with(label)).map(str::to_owned);
            assert!(line(&report).is_some(), "{label}: {report}");
            assert_eq!(line(&report), line(&again), "{label}");
        }
    }
}

fn reports_are_ascii_in_a_locale_without_utf8() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store.db");
    let (_, printed) = ascii_output(&["run", "-o", store.to_str().unwrap(), "--", "sleep", "1"]);
    let store = format!("sqlite:{}", store.display());
    let (stored, _) = ascii_output(&["report", "--show", "all", "--store", &store]);
    for shown in [printed, stored] {
        assert!(shown.is_ascii() && shown.contains("CPU       ...."), "{shown}");
    }
}

fn ascii_output(arguments: &[&str]) -> (String, String) {
    let polymeter = program("polymeter").args(arguments).env("LC_ALL", "C").output().unwrap();
    (text(&polymeter.stdout), text(&polymeter.stderr))
}

/// Checks that the report has what the run was, and what it could use.
fn assert_has_identity(report: &Value, runner: &Runner, (name, script): (&str, &str)) {
    let run = &report["run"];
    assert_eq!(run["command"], serde_json::json!(["sh", "-c", script]), "{run}");
    let here = match runner {
        Runner::Root => std::env::current_dir().unwrap(),
        Runner::Ordinary(user) => user.path("home"),
    };
    assert_eq!((&run["directory"], &run["is_cut"]), (&here.to_str().into(), &false.into()), "{run}");
    assert_eq!((&run["host"], &report["name"]), (&report["nodes"][0], &name.into()), "{run}");
    let variables: Vec<&String> = run["environment"].as_object().unwrap().keys().collect();
    assert_eq!(variables, ["PATH"]);
    assert!(
        report["notes"].to_string().contains("the variable E2E_NOT_SET is not set"),
        "{}",
        report["notes"]
    );
    assert_eq!(report["owner"], if runner.has_cgroup() { "root" } else { "nobody" });
    let cpus = rustix::thread::sched_getaffinity(None).unwrap().count();
    assert_eq!(report["cores"], cpus, "the affinity mask");
    assert!(number(report, "/memory_bytes") > 0.0 && report["gpus"].is_number(), "{report:#}");
    assert_eq!(report["verdict"]["things"], report["findings"].as_array().unwrap().len());
}

/// Requests without options within the run, each of which must succeed. The job's id is passed to it.
const REQUESTS: &str = "set -e
    polymeter mark solver --begin
    polymeter push loss=0.5 --unit nats --label rank=3
    polymeter set \"$METRIC=20ms\" --for 1min
    polymeter plan | grep -q \"$METRIC\"
    polymeter watch --count 2 --json > watched
    e2e-workload 'burn 200;rest 200'
    (cd / && polymeter report --json) > reported
    polymeter report \"$POLYMETER_JOB_ID\" > /dev/null
    polymeter reset
    polymeter metrics \"$METRIC\" --job \"$POLYMETER_JOB_ID\" > metrics
    polymeter mark solver --end --job \"$POLYMETER_JOB_ID\"
    polymeter mark done";

fn requests_within_a_run_concern_it() {
    require(&[Need::Root]);
    for runner in Runner::both() {
        let directory = shared_directory();
        let metric = if runner.has_cgroup() { "cpu.usage" } else { "process.cpu.usage" };
        let store = directory.path().join("run.db");
        let mut command = runner.command("polymeter");
        command.args(["run", "--json", "-o"]).arg(&store).args(["--", "sh", "-c", REQUESTS]);
        let output = command.env("METRIC", metric).current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = printed(&output);
        assert_eq!(report["phases"][0]["name"], "solver", "{report:#}");
        assert!(report["phases"][0]["end_s"].is_number(), "{report:#}");
        assert_eq!(report["marks"][0]["name"], "done", "{report:#}");
        let series = report["series"].as_array().unwrap();
        let loss = series.iter().find(|series| series["metric"] == "user.loss").unwrap();
        assert_eq!((&loss["mean"], &loss["labels"]), (&0.5.into(), &"rank=3,unit=nats".into()));
        let changes = report["plan_changes"].as_array().unwrap();
        let mut of_metric = changes.iter().filter(|change| change["metric"] == metric);
        assert!(of_metric.any(|change| change["new"] == "20ms" && change["cause"] == "lease"), "{report:#}");
        let within: Value =
            serde_json::from_str(&fs::read_to_string(directory.path().join("reported")).unwrap()).unwrap();
        assert_eq!((&within["job"], &within["ended"]), (&report["job"], &false.into()), "{within:#}");
        let watched = fs::read_to_string(directory.path().join("watched")).unwrap();
        let lines = watched.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let samples: usize = lines.map(|line| line["values"].as_array().map_or(0, Vec::len)).sum();
        assert!(samples >= 2, "{watched}");
        // Nothing is left among the temporary files, and a job of the node's agent is not this run.
        let elsewhere = runner.run(&["--json"], "polymeter mark x --job no-such-job");
        let error = text(&elsewhere.stderr);
        assert!(elsewhere.status.code() == Some(1) && error.contains("unknown job no-such-job"), "{error}");
    }
}

/// Runs the script of the documents under `set -e`, with nothing but the program.
fn scripts_of_an_ordinary_user_mark_and_push() {
    require(&[Need::Root]);
    let user = OrdinaryUser::new();
    let script = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/job.sh"));
    let mut command = user.command("polymeter");
    let output = command.args(["run", "--json", "--", "sh", "-c", &script.unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = printed(&output);
    assert!(!report["phases"].as_array().unwrap().is_empty(), "{report:#}");
}

fn a_command_that_does_not_start_is_on_record() {
    require(&[Need::Root]);
    let directory = shared_directory();
    let plain = directory.path().join("plain");
    fs::write(&plain, "no program").unwrap();
    for (place, runner) in Runner::both().into_iter().enumerate() {
        let store = directory.path().join(format!("{place}.db"));
        for (name, status) in [("polymeter-no-such-program", 127), (plain.to_str().unwrap(), 126)] {
            let mut command = runner.command("polymeter");
            let output = command.args(["run", "-o"]).arg(&store).args(["--", name]).output().unwrap();
            assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
            let report = stored(&runner, &store, &[]);
            assert_eq!((&report["ended"], &report["exit_code"]), (&true.into(), &status.into()));
            assert_eq!(report["state"], "FAILED");
        }
    }
}

/// `polymeter run` itself is killed: nothing in its process can store the end.
fn a_killed_run_has_ended() {
    require(&[Need::Root]);
    let directory = shared_directory();
    for (place, runner) in Runner::both().into_iter().enumerate() {
        let store = directory.path().join(format!("{place}.db"));
        let url = format!("sqlite:{}", store.display());
        let mut command = runner.command("polymeter");
        command.args(["run", "-o"]).arg(&store).args(["--", "sh", "-c", "echo $$; exec sleep 600"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let pid = rustix::process::Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let report = |wanted: bool| {
            let mut command = runner.command("polymeter");
            let output = command.args(["report", "--json", "--store", &url]).output().unwrap();
            let report = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
            (report["ended"] == wanted).then_some(report)
        };
        wait_until("the run is stored", || report(false).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        wait_until("the run has ended", || report(true).is_some());
        let report = report(true).unwrap();
        assert_eq!(report["lost_nodes"].as_array().unwrap().len(), 1, "{report:#}");
        assert!(
            !listed_jobs(&runner, &url, "--running").contains("run-")
                && listed_jobs(&runner, &url, "--ended").contains("run-")
        );
        // A live run is left alone by those that read its file meanwhile.
        let script = "polymeter jobs --running --json --store \"$URL\" > /dev/null; sleep 0.1";
        let mut command = runner.command("polymeter");
        command.args(["run", "--json", "-o"]).arg(&store).args(["--", "sh", "-c", script]);
        let output = command.env("URL", &url).current_dir(directory.path()).output().unwrap();
        let live = printed(&output);
        assert_eq!((&live["ended"], live["lost_nodes"].as_array().unwrap().len()), (&true.into(), 0));
    }
}

/// The command kills the runner before it does anything else.
fn a_run_that_is_killed_at_once_is_on_record() {
    require(&[Need::Root]);
    let directory = shared_directory();
    for (place, runner) in Runner::both().into_iter().enumerate() {
        let store = directory.path().join(format!("{place}.db"));
        let url = format!("sqlite:{}", store.display());
        wait_until("a run is on record", || {
            let output = runner.run(&["-o", store.to_str().unwrap()], "kill -KILL $PPID");
            assert!(!output.status.success());
            let of_state = |state| listed_jobs(&runner, &url, state);
            let listed = of_state("--running") + &of_state("--ended");
            listed.contains("kill -KILL $PPID") && listed.contains("\"started\"")
        });
        // Removes the cgroups of killed runs.
        assert!(runner.run(&[], "true").status.success());
    }
}

fn listed_jobs(runner: &Runner, url: &str, which: &str) -> String {
    let mut command = runner.command("polymeter");
    text(&command.args(["jobs", which, "--json", "--store", url]).output().unwrap().stdout)
}

fn a_request_without_effect_is_reported() {
    require(&[Need::Root]);
    for runner in Runner::both() {
        // Metrics of machines that no test runs on, of a kind of job that this one is not, and of neither.
        let metric = if runner.has_cgroup() { "process.cpu.*=5ms" } else { "cpu.*=5ms" };
        for request in ["node.gpu.nvlink.*=10ms", metric] {
            let output = runner.run(&["-m", request], "true");
            let stderr = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
            let wanted = format!("-m '{request}' has no effect");
            assert!(output.status.success() && stderr.contains(&wanted), "{request}: {stderr}");
            let report = printed(&runner.run(&["--json", "-m", request], "true"));
            let notes = report["notes"].as_array().unwrap();
            assert!(notes.iter().any(|note| note.as_str().unwrap().starts_with(&wanted)), "{report:#}");
        }
        let sampled = if runner.has_cgroup() { "cpu.*=5ms" } else { "process.*=5ms" };
        for request in [sampled, "io.*=off", "node.gpu.*=off"] {
            let stderr = text(&runner.run(&["-m", request], "true").stderr);
            assert!(!stderr.contains("no effect"), "{request}: {stderr}");
        }
    }
}

fn a_short_command_has_no_share_of_a_core() {
    require(&[Need::Root]);
    for runner in Runner::both() {
        let report = printed(&runner.run(&["--json"], "true"));
        let measuring = &report["measuring"];
        assert!(number(&report, "/wall_s") < 1.0 || measuring["core_percent"].is_number());
        assert!(number(&report, "/wall_s") >= 1.0 || measuring["core_percent"].is_null(), "{report:#}");
        assert!(number(&report, "/measuring/cpu_s") > 0.0, "{report:#}");
    }
}

/// Daemons that ignore SIGCHLD leave that to what they execute. The command inherits it as without Polymeter.
fn a_parent_that_ignores_its_children_costs_no_status() {
    require(&[Need::Root]);
    for runner in Runner::both() {
        let output = run_ignoring_children(&runner, &["sh", "-c", "sleep 0.3; exit 5"]);
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        let report = printed(&output);
        assert_eq!((&report["exit_code"], &report["ended"]), (&5.into(), &true.into()), "{report:#}");
        // A shell resets it, grep(1) does not.
        let ignored = text(&run_ignoring_children(&runner, &["grep", "SigIgn", "/proc/self/status"]).stdout);
        let mask = u64::from_str_radix(ignored.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_eq!(mask >> 16 & 1, 1, "SIGCHLD: {ignored}");
    }
}

/// A signal that the parent blocks is blocked for the command, and still passed on to it.
fn a_command_has_the_signal_mask_of_its_parent() {
    require(&[Need::Root]);
    for runner in Runner::both() {
        let shown = |command: &[&str]| {
            let mut env = runner.command("env");
            env.args(["--block-signal=USR1,WINCH"]).args(command);
            let output = env.output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout)
        };
        let mask = ["grep", "SigBlk", "/proc/self/status"];
        let alone = shown(&mask);
        assert!(alone.contains("8000200"), "{alone}");
        assert_eq!(shown(&[&["polymeter", "run", "--"], &mask[..]].concat()), alone);
        let script = "kill -USR1 $PPID; for i in $(seq 200); do grep -q 'ShdPnd.*200$' /proc/$$/status && \
                      echo pending && break; sleep 0.1; done";
        assert_eq!(shown(&["polymeter", "run", "--", "bash", "-c", script]), "pending\n");
    }
}

fn run_ignoring_children(runner: &Runner, command: &[&str]) -> Output {
    let mut env = runner.command("env");
    env.args(["--ignore-signal=CHLD", "polymeter", "run", "--json", "--"]).args(command);
    env.output().unwrap()
}

/// Names that mean something to SQLite, to a shell, or to a terminal.
fn files_keep_their_names() {
    require(&[Need::Root]);
    let directory = tempfile::tempdir().unwrap();
    let runner = Runner::Root;
    for name in [":memory:", "file:x?mode=memory", "my runs' & more.db", "a\nb\t$(id).db", "plain.db"] {
        let mut command = runner.command("polymeter");
        command.args(["run", "-o", name, "--", "true"]).current_dir(directory.path());
        let output = command.output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{name}: {stderr}");
        assert!(fs::metadata(directory.path().join(name)).unwrap().len() > 0, "{name}");
        // The line with the next step works as it stands.
        let (_, shown) = stderr.trim_end().rsplit_once("show them with ").unwrap();
        let mut again = runner.command("bash");
        again.args(["-c", shown]).current_dir(directory.path());
        let again = again.output().unwrap();
        let stdout = text(&again.stdout);
        assert!(stdout.starts_with("COMPLETED"), "{name}: {shown}: {stdout} {}", text(&again.stderr));
    }
}

/// Runs a script in a mount namespace of its own, in a new directory on a small disk.
fn on_small_disk(kibibytes: u32, script: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("disk")).unwrap();
    let mounted = format!("mount -t tmpfs -o size={kibibytes}k small disk && cd disk && {script}");
    let mut command = Runner::Root.command("unshare");
    command.args(["-m", "bash", "-c", &mounted]).current_dir(directory.path());
    command.output().unwrap()
}

/// The disk is full before the command ends: what the process knows is in its report, and no sentence says
/// that the command runs, or that nothing is missing.
fn a_full_disk_hides_no_end() {
    require(&[Need::Root]);
    let stored = "until polymeter report > /dev/null 2>&1; do sleep 0.2; done";
    let fill = "head -c 10M /dev/zero > fill 2> /dev/null; e2e-workload 'burn 300;rest 1500'; exit 7";
    let fill = format!("{stored}; {fill}");
    let run = format!("polymeter run -o s.db --every 5ms --report ../report -- sh -c \"{fill}\"");
    let script = format!("{run}; echo \"status $?\"; cat ../report");
    let output = on_small_disk(1_600, &script);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.contains("status 7"), "{stdout} {stderr}");
    assert!(stdout.contains("FAILED, exit status 7"), "{stdout} {stderr}");
    assert!(!stdout.contains("RUNNING") && !stdout.contains(" to now"), "{stdout}");
    let line = |label: &str| stdout.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or("");
    assert!(line("data").contains("no contact for"), "{stdout}");
    let seconds = |label: &str| line(label).split_whitespace().nth(2).and_then(|word| word.parse().ok());
    assert!(seconds("wall time").is_some_and(|wall_s: f64| wall_s >= 1.7), "{stdout}");
    assert!(seconds("CPU time").is_some_and(|cpu_s: f64| cpu_s >= 0.25), "{stdout}");
    assert!(stderr.contains("database or disk is full"), "{stderr}");
}

/// The runner cannot store the end, and no reader can later: it is shown as that of a killed run.
fn a_disk_that_stays_full_hides_no_end() {
    require(&[Need::Root]);
    let stored = "until polymeter report > /dev/null 2>&1; do sleep 0.2; done";
    let fill = "head -c 10M /dev/zero > fill 2> /dev/null; e2e-workload 'burn 300'";
    let run = format!("polymeter run -o s.db --every 5ms --report ../report -- sh -c \"{stored}; {fill}\"");
    let ended = "until polymeter report --store sqlite:s.db 2> /dev/null | grep ^ENDED; do sleep 0.2; done";
    let pages = "polymeter report --store sqlite:s.db --html ../page.html && grep -c RUNNING ../page.html";
    let jobs = "polymeter jobs --store sqlite:s.db";
    let script = format!(
        "{run}; timeout 60 sh -c '{ended}'; {pages}; {jobs} --ended | sed 's/^/ended: /'; {jobs} --running; df -k . | tail -n 1"
    );
    let output = on_small_disk(1_600, &script);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.contains("\nENDED, lost contact with"), "{stdout} {stderr}");
    assert!(stdout.contains("ended: run-") && stdout.contains(" lost "), "{stdout} {stderr}");
    assert!(stdout.contains("\n0\n") && stdout.contains("no job runs"), "{stdout} {stderr}");
    assert!(stdout.contains("100%"), "{stdout} {stderr}");
}

fn an_interrupted_creation_leaves_an_empty_store() {
    require(&[Need::Root]);
    let script = "polymeter run -o s.db -- true; ls -s s.db; polymeter report --store sqlite:s.db; \
                  mount -o remount,size=100M . && polymeter run -o s.db -- true && echo created";
    let output = on_small_disk(120, script);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stderr.contains("cannot store samples") && stderr.contains("is full"), "{stderr}");
    assert!(stderr.contains("the file is empty") && !stderr.contains("another program"), "{stderr}");
    assert!(stdout.contains("created"), "{stdout} {stderr}");
}

/// Limits of a shell or of a service.
fn few_descriptors_and_small_files_are_named() {
    require(&[Need::Root]);
    let directory = tempfile::tempdir().unwrap();
    for limit in ["-n 20", "-n 32", "-n 50", "-n 100"] {
        let (status, stderr) = limited(directory.path(), limit, "polymeter run -o limited.db -- true");
        assert_eq!(status, Some(1), "{limit}: {stderr}");
        assert!(stderr.contains("file descriptors") && stderr.contains("ulimit -n"), "{limit}: {stderr}");
    }
    for limit in ["-n 20", "-n 40"] {
        let command = "polymeter-collector --listen ipc://$PWD/x --store sqlite:limited.db";
        let (status, stderr) = limited(directory.path(), limit, command);
        assert!(status.is_some_and(|status| status > 0), "{limit}: {stderr}");
        assert!(stderr.contains("file descriptors") && stderr.contains("LimitNOFILE"), "{limit}: {stderr}");
    }
    let output = Runner::Root.run(&["-o", directory.path().join("run.db").to_str().unwrap()], "sleep 1");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for command in ["export $JOB -o x.csv", "report --html x.html"] {
        let job = "JOB=$(polymeter report --json --store sqlite:run.db | sed -n 's/^  \"job\": \"\\(.*\\)\",/\\1/p')";
        let command = format!("{job}; ulimit -f 1; polymeter {command} --store sqlite:run.db");
        let (status, stderr) = limited(directory.path(), "-c 0", &command);
        assert_eq!(status, Some(1), "{command}: {stderr}");
        assert!(stderr.contains("cannot write x."), "{command}: {stderr}");
        assert!(!directory.path().join("x.csv").exists() && !directory.path().join("x.html").exists());
    }
}

fn limited(directory: &Path, limit: &str, command: &str) -> (Option<i32>, String) {
    let mut shell = Runner::Root.command("bash");
    shell.args(["-c", &format!("ulimit -c 0; ulimit {limit}; {command}")]).current_dir(directory);
    let output = shell.output().unwrap();
    (output.status.code(), text(&output.stderr))
}

fn another_user_reads_why_the_run_is_out_of_reach() {
    require(&[Need::Root]);
    let user = OrdinaryUser::new();
    let home = user.path("");
    let script = format!(
        "PATH={}:$PATH setpriv --reuid=65534 --regid=65534 --clear-groups polymeter mark x",
        home.display()
    );
    let stderr = text(&Runner::Root.run(&[], &script).stderr);
    let words = "only the user of the `polymeter run` around this command reaches its agent";
    assert!(stderr.contains(words), "{stderr}");
}

fn temporary_files_are_private() {
    require(&[Need::Root]);
    for runner in Runner::both() {
        let modes = "stat -c %a \"${POLYMETER_SOCKET%/*}\" \"${POLYMETER_RUN_STORE%/*}\"";
        let mut command = runner.command("sh");
        let output = command.args(["-c", &format!("umask 0; polymeter run -- sh -c '{modes}'")]).output();
        assert_eq!(text(&output.unwrap().stdout), "700\n700\n");
    }
}
