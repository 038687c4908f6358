//! The findings about jobs with known faults, and about healthy ones, under a real Slurm. Two ordinary users
//! and root read the reports through the collector.

mod cases;
mod tasks;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use polymeter_e2e::daemons::{Daemon, collector_with};
use polymeter_e2e::slurm::{Cluster, OTHER_USER, USER};
use polymeter_e2e::{
    Need, TestEnvironment, install, pause, program, require, skip, stored, tests, wait_until, wait_within,
    workload,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use self::cases::{Case, Intervention, Programs};

tests![
    exclusive findings_match_the_faults_of_jobs,
    exclusive findings_match_the_faults_of_jobs_of_full_length,
];

const RULES: &str = include_str!("../../../analysis/src/advice/rules.toml");

const AGENT: &str = include_str!("../../../deploy/agent.toml");

/// Reads a mapped file of 64 MiB at random, for a time in ms, with less memory than that.
const FAULTS_C: &str = r#"
    #include <fcntl.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <sys/time.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        static char block[1 << 20];
        struct timeval begin, now;
        size_t length = 64 << 20;
        int file = open(argv[1], O_RDWR | O_CREAT, 0600);
        for (size_t at = 0; at < length; at += sizeof block) if (write(file, block, sizeof block) < 0) return 1;
        fsync(file);
        volatile char *map = mmap(0, length, PROT_READ, MAP_SHARED, file, 0), sum = 0;
        madvise((void *)map, length, MADV_RANDOM);
        gettimeofday(&begin, 0);
        do {
            for (int n = 0; n < 100; n++) sum += map[((size_t)rand() << 12) % length];
            gettimeofday(&now, 0);
        } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_usec - begin.tv_usec) / 1000 < atoi(argv[2]));
        return 0;
    }"#;

/// Lengths of jobs, of the shortest jobs to which rules apply, and of periods.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    /// Length of a minute of the rules and of the jobs.
    minute_ms: f64,
    /// Sampling period; that of the packaged configuration otherwise.
    period: Option<&'static str>,
}

/// A minute lasts for a second, and all other thresholds are those that are built in.
const SHORT: Lengths = Lengths { minute_ms: 1000.0, period: Some("200ms") };

const FULL: Lengths = Lengths { minute_ms: 60_000.0, period: None };

/// Maximum number of runs of a job: seconds stand for minutes here, and the programs of the machine take some
/// of them.
const ATTEMPTS: usize = 3;

struct Fixture {
    cluster: Cluster,
    _collector: Daemon,
    lengths: Lengths,
    socket: PathBuf,
    env: TestEnvironment,
}

impl Fixture {
    fn new(lengths: Lengths) -> Self {
        let env = TestEnvironment::new();
        fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        for path in [PathBuf::from(program("polymeter").get_program()), workload::program()] {
            let copy = env.path(path.file_name().unwrap().to_str().unwrap());
            install(path, &copy);
        }
        fs::write(env.path("faults.c"), FAULTS_C).unwrap();
        let files = [env.path("faults"), env.path("faults.c")];
        assert!(Command::new("mpicc.mpich").arg("-o").args(files).status().unwrap().success());
        fs::create_dir(env.path("advice.d")).unwrap();
        if lengths.period.is_some() {
            fs::write(env.path("advice.d/10-short.toml"), rules_for_short_jobs()).unwrap();
        }
        let socket = env.path("control.sock");
        let control = format!(
            "control_socket = \"{}\"\nmanagers = [\"{}|{}\"]\n",
            socket.display(),
            tasks::ACCOUNT,
            OTHER_USER.2
        );
        let (collector, endpoint) = collector_with(&env, &env.endpoint(), &control);
        let cluster = Cluster::start(&socket, |node, _| agent_configuration(node, &endpoint, lengths.period));
        cluster.prioritise();
        Self { cluster, _collector: collector, lengths, socket, env }
    }

    fn submit(&self, case: &Case) -> Vec<String> {
        let options: Vec<&str> = case.options.iter().map(String::as_str).collect();
        let user = case.user.map(|(uid, gid, _)| (uid, gid));
        let id = self.cluster.submit_as(user, &options, &case.script);
        let is_array = options.iter().any(|option| option.starts_with("--array"));
        if is_array { vec![format!("{id}_1"), format!("{id}_2")] } else { vec![id] }
    }

    /// Submits jobs that run at the same time, intervenes, and waits for their ends. Returns the jobs' ids.
    fn run(&self, cases: Vec<Case>) -> Vec<(Case, Vec<String>)> {
        if cases.iter().any(|case| case.intervention == Intervention::NoAgent) {
            let node = &self.cluster.nodes[1];
            wait_until("the agent ends when there are no jobs", || self.cluster.agent(node).is_none());
            self.cluster.disable_scripts_on(node, true);
        }
        let jobs: Vec<(Case, Vec<String>)> = cases
            .into_iter()
            .map(|case| {
                let ids = self.submit(&case);
                (case, ids)
            })
            .collect();
        for (case, ids) in &jobs {
            self.intervene(case, &ids[0]);
        }
        for (_, ids) in &jobs {
            ids.iter().for_each(|id| self.wait_for_end(id));
        }
        jobs
    }

    fn intervene(&self, case: &Case, id: &str) {
        let minutes = |minutes: f64| (self.lengths.minute_ms * minutes) as u64;
        let uid = case.user.map_or(0, |(uid, ..)| uid);
        let node = || {
            self.cluster.wait_for(id, &["RUNNING"]);
            self.cluster.of_job(id, "NodeList")
        };
        match case.intervention {
            Intervention::None => {}
            Intervention::Cgroups(hierarchies) => {
                let node = node();
                self.cluster.add_cgroups(&node, uid, id, hierarchies);
                if hierarchies.contains(&"blkio") {
                    // Linux 6.10 and later count I/O of version 1 for devices with a limit only.
                    let directory = self.cluster.job_directory("blkio", &node, uid, id);
                    let limit = format!("{} 1000000", disk_of(Path::new("/tmp")).unwrap());
                    fs::write(directory.join("blkio.throttle.write_iops_device"), limit).unwrap();
                }
                self.release(id);
            }
            Intervention::HalfCpu => {
                let node = node();
                self.cluster.add_cgroups(&node, uid, id, &["cpu"]);
                let directory = self.cluster.job_directory("cpu", &node, uid, id);
                fs::write(directory.join("cpu.cfs_quota_us"), "50000").unwrap();
                self.release(id);
            }
            Intervention::Cancel => {
                self.cluster.wait_for(id, &["RUNNING"]);
                pause(minutes(1.5));
                assert!(self.cluster.run("scancel", &[id]).status.success());
            }
            Intervention::KillAgent => {
                let node = node();
                pause(minutes(2.0));
                kill_process(self.cluster.agent(&node).unwrap(), Signal::KILL).unwrap();
                pause(minutes(1.5));
                // Its prolog starts an agent.
                let next = self.cluster.submit(false, &["-w", &node], "true");
                self.wait_for_end(&next);
            }
            Intervention::NoAgent => {
                self.wait_for_end(id);
                self.cluster.disable_scripts_on(&self.cluster.nodes[1], false);
            }
        }
    }

    fn release(&self, id: &str) {
        fs::write(self.env.path(&format!("released.{id}")), "").unwrap();
    }

    fn wait_for_end(&self, id: &str) {
        let deadline = Duration::from_secs(120).max(Duration::from_secs_f64(self.lengths.minute_ms / 50.0));
        wait_within(deadline, &format!("job {id} has ended"), || {
            // Each query is a process, which takes CPU time from the jobs.
            pause(500);
            let state = self.cluster.of_job(id, "JobState");
            !["PENDING", "CONFIGURING", "RUNNING", "COMPLETING"].contains(&state.as_str())
        });
    }

    /// Runs the command as a user who cannot read the store.
    fn report(&self, user: Option<(u32, u32)>, arguments: &[&str]) -> Output {
        let (uid, gid) = user.unwrap_or((0, 0));
        Command::new("setpriv")
            .args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()])
            .args([self.env.path("polymeter").as_os_str(), "report".as_ref(), "--advice".as_ref()])
            .arg(self.env.path("advice.d"))
            .args(arguments)
            .env("POLYMETER_COLLECTOR", &self.socket)
            .current_dir("/")
            .output()
            .unwrap()
    }

    /// Finds the faults in the reports of jobs, which ran with these ids, and whether other programs of this
    /// machine kept the jobs from the CPU. Jobs with faults are run again: a fault in a rule is in the report
    /// of each run.
    fn judge(&self, case: &Case, ids: &[String]) -> (Vec<String>, bool) {
        let (mut ids, mut attempt) = (ids.to_vec(), 1);
        loop {
            let faults: Vec<String> = ids.iter().flat_map(|id| self.faults(case, id)).collect();
            let was_slow = ids.iter().any(|id| self.was_slow(case, id));
            if faults.is_empty() || attempt == ATTEMPTS {
                return (faults, was_slow);
            }
            let cause = if was_slow { "other programs used the CPU" } else { "unknown cause" };
            println!("again ({cause}): {}", faults.join("\n"));
            ids = self.run(vec![case.clone()]).pop().unwrap().1;
            attempt += 1;
        }
    }

    /// True if a job, which does a fixed amount of work, took much longer than on an idle machine.
    fn was_slow(&self, case: &Case, id: &str) -> bool {
        let report: Value = serde_json::from_slice(&self.report(None, &[id, "--json"]).stdout).unwrap();
        let elapsed_s = report["wall_s"].as_f64().unwrap();
        let minute_s = self.lengths.minute_ms / 1000.0;
        case.minutes.is_some_and(|usual| elapsed_s > minute_s * (usual * 1.1 + 0.4))
    }

    fn unusable_directives(&self, case: &Case, id: &str) -> Vec<String> {
        let report: Value = serde_json::from_slice(&self.report(None, &[id, "--json"]).stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let remedies = findings.iter().filter_map(|finding| finding["remedies"]["slurm"].as_str());
        let directives = remedies.filter(|remedy| remedy.starts_with("#SBATCH"));
        directives
            .filter_map(|directive| {
                let script = self.env.path("directive.sh");
                fs::write(&script, format!("#!/bin/sh\n{directive}\ntrue\n")).unwrap();
                let tried = self.cluster.run("sbatch", &["--test-only", script.to_str().unwrap()]);
                (!tried.status.success())
                    .then(|| format!("{}: `{directive}`: {}", case.name, text(&tried.stderr)))
            })
            .collect()
    }

    /// Finds the faults in the reports of a job: none if the findings are the expected ones for all who may
    /// read it.
    fn faults(&self, case: &Case, id: &str) -> Vec<String> {
        let raw_id = self.cluster.of_job(id, "JobId");
        wait_until(&format!("the state of job {raw_id} is stored"), || {
            stored::job(&mut self.env.reader(), &raw_id).is_some_and(|row| row.state.is_some())
        });
        let owner = case.user.map(|(uid, gid, _)| (uid, gid));
        let strangers = [USER, OTHER_USER].map(|(uid, gid, _)| Some((uid, gid)));
        let mut faults = Vec::new();
        for stranger in strangers.into_iter().filter(|stranger| *stranger != owner) {
            let refused = self.report(stranger, &[id]);
            let stderr = text(&refused.stderr);
            let is_refused = refused.status.code() == Some(1) && refused.stdout.is_empty();
            if !(is_refused && stderr.contains(&format!("unknown job `{id}`, or not yours"))) {
                faults.push(format!("{}: {stranger:?} is not refused: {stderr}", case.name));
            }
        }
        for reader in BTreeSet::from([owner, None]) {
            let output = self.report(reader, &[id, "--json"]);
            assert!(output.status.success(), "{}: {}", case.name, text(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let findings = report["findings"].as_array().unwrap();
            let found: BTreeSet<&str> =
                findings.iter().map(|finding| finding["id"].as_str().unwrap()).collect();
            let (expected, state) = (case.findings.iter().copied().collect(), report["state"].as_str());
            if found != expected || state != Some(case.state) {
                faults.push(format!("{}: {state:?} {found:?}, expected {expected:?}", case.name));
            }
        }
        faults.extend(self.unusable_directives(case, id));
        let screen = text(&self.report(owner, &[id]).stdout);
        println!("== {} ({id})\n{screen}", case.name);
        if !faults.is_empty() {
            println!("{}", text(&self.report(owner, &[id, "--show", "all"]).stdout));
        }
        faults
    }
}

/// Number `MAJOR:MINOR` of the disk that contains a directory, if it is on a disk.
fn disk_of(directory: &Path) -> Option<String> {
    let device = rustix::fs::stat(directory).unwrap().st_dev;
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let device = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
    // A partition is a directory in that of its disk.
    let disk = if device.join("partition").exists() { device.parent().unwrap().to_owned() } else { device };
    Some(fs::read_to_string(disk.join("dev")).unwrap().trim().to_owned())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Rules of a site that apply to jobs of seconds where the built-in rules apply to jobs of minutes.
fn rules_for_short_jobs() -> String {
    let lines = RULES
        .lines()
        .filter(|line| {
            let is_name = line.starts_with('[') && !line.contains(".remedy]");
            is_name || line.starts_with("elapsed_min")
        })
        .map(|line| line.replace(" min\"", " s\"") + "\n");
    let rules: String = lines.collect();
    assert!(!rules.contains("min\"") && rules.contains("elapsed_min = \"5 s\""), "{rules}");
    rules
}

/// Packaged configuration for one of the nodes, which share this machine, with the CPU time of tasks.
fn agent_configuration(node: &str, collector: &str, period: Option<&str>) -> String {
    let (_, baseline) = AGENT.split_once("\n[baseline]\n").unwrap();
    let (baseline, _) = baseline.split_once("\n[steps]\n").unwrap();
    // The metrics of the node and of the agent keep their periods: an agent exits when nothing waits for an
    // acknowledgement.
    let lines = baseline.lines().filter(|line| !line.starts_with('#'));
    let baseline: String = lines
        .map(|line| match (line.split_once(" = "), period) {
            (Some((metric, _)), Some(period))
                if !metric.starts_with("\"node.") && !metric.starts_with("\"agent.") =>
            {
                format!("{metric} = \"{period}\"\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let tasks = period.unwrap_or("5s");
    let rescan = if period.is_some() { "100ms" } else { "1s" };
    format!(
        "rescan_interval = \"{rescan}\"\nnode = \"{node}\"\ncollector = \"{collector}\"\nflush_interval = \"100ms\"\n\
         jobs = [\"slurm_{node}/uid_{{uid}}/job_{{job}}\"]\n[baseline]\n\"node.cpu.idle.per_cpu\" = \"5s\"\n{baseline}\
         [tasks]\n\"cpu.usage\" = \"{tasks}\"\n"
    )
}

fn findings_match_the_faults_of_jobs() {
    require(&[Need::Root, Need::Slurm]);
    check(SHORT);
}

fn findings_match_the_faults_of_jobs_of_full_length() {
    require(&[Need::Root, Need::SlurmFindings, Need::Slurm]);
    check(FULL);
}

fn check(lengths: Lengths) {
    let fixture = Fixture::new(lengths);
    let path = |name: &str| fixture.env.path(name);
    let programs = Programs {
        minute_ms: lengths.minute_ms,
        workload: &path("e2e-workload"),
        faults: &path("faults"),
        released: &path("released"),
    };
    let over_limit = programs.over_time_limit();
    let ids = fixture.submit(&over_limit);
    let mut jobs = Vec::new();
    let has_disk = disk_of(Path::new("/tmp")).is_some();
    for mut cases in programs.light() {
        cases.retain(|case| has_disk || case.name != "small writes");
        jobs.extend(fixture.run(cases));
    }
    ids.iter().for_each(|id| fixture.wait_for_end(id));
    jobs.push((over_limit, ids));
    programs.heavy().into_iter().for_each(|cases| jobs.extend(fixture.run(cases)));
    let (mut faults, mut unjudged) = (Vec::new(), Vec::new());
    for (case, ids) in &jobs {
        match fixture.judge(case, ids) {
            (found, true) if !found.is_empty() => unjudged.push(case.name),
            (found, _) => faults.extend(found),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    fixture.answer_five_tasks(&jobs);
    if !has_disk {
        println!("no job with small writes: /tmp is on no disk");
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap();
    if swaps.lines().count() < 2 {
        println!("no job that swaps: this machine has no swap");
    }
    if !unjudged.is_empty() {
        let names = unjudged.join(", ");
        drop(fixture);
        skip(
            "idle-machine",
            &format!("other programs used the CPU during {names}; all other jobs are as expected"),
        );
    }
}
