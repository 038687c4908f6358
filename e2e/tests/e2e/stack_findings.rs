//! Findings from the call stacks of real programs: each has the one that it deserves, and a program that
//! computes has none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use polymeter_e2e::{Need, program, require, skip, tests};
use serde_json::Value;

tests![
    exclusive what_a_program_wastes_its_time_with_is_found,
    a_program_that_computes_has_no_finding,
    exclusive the_process_that_others_wait_for_is_found,
    threads_that_sleep_for_a_lock_are_found,
    samples_of_a_rank_are_those_of_its_process,
    functions_of_a_running_job_are_shown,
];

/// Begin of each program: it works until it has used some seconds of CPU time.
const BEGIN: &str = r"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#define APART __attribute__((noinline))
static double used_s(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec + used.tv_nsec / 1e9;
}
static volatile long sum;
APART static void compute(long count) {
    volatile long x = 0;
    for (long i = 0; i < count; i++) x += i;
}
";

const HEALTHY: &str = r"
static void *work(void *none) { while (used_s() < 3) compute(1000000); return none; }
int main(void) {
    pthread_t other;
    pthread_create(&other, 0, work, 0);
    work(0);
    return pthread_join(other, 0);
}
";

/// Threads that hold one spin lock for all their work.
const SPIN_LOCK: &str = r"
static pthread_spinlock_t lock;
static void *work(void *none) {
    while (used_s() < 3) {
        pthread_spin_lock(&lock);
        compute(20000);
        pthread_spin_unlock(&lock);
    }
    return none;
}
int main(void) {
    pthread_t others[3];
    pthread_spin_init(&lock, 0);
    for (int t = 0; t < 3; t++) pthread_create(&others[t], 0, work, 0);
    work(0);
    for (int t = 0; t < 3; t++) pthread_join(others[t], 0);
    return 0;
}
";

/// One of two OpenMP threads does all the work.
const BARRIER: &str = r"
#include <omp.h>
int main(void) {
    while (used_s() < 3)
        #pragma omp parallel num_threads(2)
        compute(omp_get_thread_num() ? 1000 : 10000000);
    return 0;
}
";

/// Touches memory that it returns to the system at once.
const PAGE_FAULTS: &str = r"
int main(void) {
    const long size = 16 << 20;
    while (used_s() < 3) {
        char *pages = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) return 1;
        for (long i = 0; i < size; i += 4096) pages[i] = 1;
        munmap(pages, size);
    }
    return 0;
}
";

/// Writes few bytes at a time.
const SMALL_WRITES: &str = r#"
int main(void) {
    char bytes[16] = {0};
    int file = open("written", O_CREAT | O_RDWR, 0600);
    while (used_s() < 3)
        for (long i = 0; i < 1000; i++)
            if (pwrite(file, bytes, sizeof bytes, 16 * i) < 0) return 1;
    return 0;
}
"#;

const PYTHON: &str = r"
import time
while time.process_time() < 3:
    total = 0
    for number in range(100000):
        total += number * number % 7
";

/// The first of two ranks does twice the work of the other, which waits for it.
const RANKS: &str = r"
#include <mpi.h>
int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < 80; round++) {
        double until_s = used_s() + (rank ? 0.015 : 0.045);
        while (used_s() < until_s) compute(100000);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return MPI_Finalize();
}
";

/// Threads that sleep while they hold the lock for which the others wait.
const SLEEPING_LOCK: &str = r"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *none) {
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&lock);
        usleep(15000);
        pthread_mutex_unlock(&lock);
        usleep(1000);
    }
    return none;
}
int main(void) {
    pthread_t others[3];
    for (int t = 0; t < 3; t++) pthread_create(&others[t], 0, work, 0);
    work(0);
    for (int t = 0; t < 3; t++) pthread_join(others[t], 0);
    return 0;
}
";

/// Computes in the function that its argument names.
const SIDES: &str = r"
APART static void left(void) { compute(1000000); sum++; }
APART static void right(void) { compute(1000000); sum--; }
int main(int argc, char **argv) {
    while (used_s() < 3) if (argv[argc - 1][0] == 'l') left(); else right();
    return 0;
}
";

struct Programs(tempfile::TempDir);

impl Programs {
    fn new() -> Self {
        require(&[Need::Root, Need::Perf, Need::Cgroup2]);
        Self(tempfile::tempdir().unwrap())
    }

    fn compile(&self, name: &str, compiler: &str, options: &[&str], source: &str) -> PathBuf {
        let file = self.0.path().join(format!("{name}.c"));
        fs::write(&file, format!("{BEGIN}{source}")).unwrap();
        let output = self.0.path().join(name);
        let mut command = Command::new(compiler);
        command.args(["-O1", "-fno-omit-frame-pointer", "-pthread", "-fopenmp"]).args(options);
        match command.arg("-o").arg(&output).arg(&file).status() {
            Ok(status) if status.success() => output,
            _ => skip(compiler, "there is no C compiler"),
        }
    }

    fn report(&self, command: &[&str]) -> Value {
        let file = self.0.path().join("report.json");
        let mut run = program("polymeter");
        run.args(["run", "--stacks", "2ms", "--json", "--report"]).arg(&file).arg("--").args(command);
        run.current_dir(self.0.path()).env("OMP_WAIT_POLICY", "active");
        // Open MPI, where it is installed, refuses root otherwise.
        run.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let output = run.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        serde_json::from_slice(&fs::read(&file).unwrap()).unwrap()
    }
}

fn findings(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["id"].as_str().unwrap()).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn what_a_program_wastes_its_time_with_is_found() {
    let programs = Programs::new();
    for (rule, options, source, named) in [
        ("waiting-for-locks", &[][..], SPIN_LOCK, "pthread_spin_lock"),
        ("waiting-in-openmp", &[], BARRIER, "gomp"),
        ("page-faults", &[], PAGE_FAULTS, "page_fault"),
        ("calls-of-io", &[], SMALL_WRITES, "write"),
        ("functions-without-symbol", &["-s"], HEALTHY, "functions-without"),
    ] {
        let executable = programs.compile(rule, "gcc", options, source);
        let report = programs.report(&[text(&executable)]);
        let stacks = &report["call_stacks"][0];
        assert_eq!(findings(&report), [rule], "{stacks:#}");
        let evidence = report["findings"][0]["evidence"].as_str().unwrap();
        assert!(evidence.contains(named), "{evidence}");
    }
    let script = programs.0.path().join("count.py");
    fs::write(&script, PYTHON).unwrap();
    let report = programs.report(&["/usr/bin/python3", text(&script)]);
    assert_eq!(findings(&report), ["interpreted-code"], "{:#}", report["call_stacks"][0]);
}

fn a_program_that_computes_has_no_finding() {
    let programs = Programs::new();
    let healthy = programs.compile("healthy", "gcc", &[], HEALTHY);
    let report = programs.report(&[text(&healthy)]);
    let stacks = &report["call_stacks"][0];
    assert!(stacks["samples"].as_u64().unwrap() >= 400, "{stacks:#}");
    assert_eq!(findings(&report), [""; 0], "{stacks:#}");
}

fn the_process_that_others_wait_for_is_found() {
    let programs = Programs::new();
    let ranks = programs.compile("ranks", "mpicc", &[], RANKS);
    let report = programs.report(&["mpirun", "-n", "2", text(&ranks)]);
    assert_eq!(findings(&report), ["function-imbalance"], "{:#}", report["call_stacks"][0]);
    let imbalance = &report["call_stacks"][0]["imbalance"];
    assert_eq!((&imbalance["function"], &imbalance["processes"]), (&"compute".into(), &2.into()));
    let (most, mean) = (imbalance["most_s"].as_f64().unwrap(), imbalance["mean_s"].as_f64().unwrap());
    assert!((most / mean - 1.5).abs() < 0.15, "{imbalance:#}");
}

fn threads_that_sleep_for_a_lock_are_found() {
    let programs = Programs::new();
    let locks = programs.compile("locks", "gcc", &[], SLEEPING_LOCK);
    let file = programs.0.path().join("report.json");
    let mut run = program("polymeter");
    run.args(["run", "-m", "stacks.wait=10ms", "--json", "--report"]).arg(&file).arg("--").arg(&locks);
    let output = run.current_dir(programs.0.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let stacks = &report["call_stacks"][0];
    assert_eq!(stacks["metric"], "stacks.wait");
    assert!(findings(&report).contains(&"sleeping-for-locks"), "{stacks:#}");
    // Four threads for about 6 s: one of them sleeps, and the others wait.
    let activities = stacks["activities"].as_array().unwrap();
    let locks = activities.iter().find(|activity| activity["activity"] == "locks").unwrap();
    let percent = locks["percent"].as_f64().unwrap();
    assert!((55.0..85.0).contains(&percent), "{stacks:#}");
}

fn samples_of_a_rank_are_those_of_its_process() {
    let programs = Programs::new();
    let sides = text(&programs.compile("sides", "gcc", &[], SIDES)).to_owned();
    let store = programs.0.path().join("run.db");
    let script = format!("OMPI_COMM_WORLD_RANK=0 {sides} left & OMPI_COMM_WORLD_RANK=1 {sides} right; wait");
    let mut run = program("polymeter");
    run.args(["run", "--stacks", "5ms", "-o", text(&store), "--", "sh", "-c", &script]);
    let output = run.current_dir(programs.0.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let store = format!("sqlite:{}", store.display());
    let report = program("polymeter").args(["report", "--store", &store, "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let job = report["job"].as_str().unwrap();
    let flame = |rank: &str| {
        program("polymeter")
            .args(["flame", job, "--store", &store, "--json", "--rank", rank])
            .output()
            .unwrap()
    };
    for (rank, own, other) in [("0", "left", "right"), ("1", "right", "left")] {
        let shown: Value = serde_json::from_slice(&flame(rank).stdout).unwrap();
        let functions = shown["functions"].as_array().unwrap();
        let total = |name: &str| {
            let found = functions.iter().find(|function| function["function"] == name);
            found.map_or(0.0, |function| function["total_percent"].as_f64().unwrap())
        };
        assert!(total(own) > 80.0 && total(other) == 0.0, "{shown:#}");
        let name = shown["by_process"][0]["name"].as_str().unwrap();
        assert!(name.ends_with(&format!(", rank {rank}")), "{name}");
    }
    let unknown = flame("7");
    let message = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && message.contains("ranks from 0 to 1"), "{message}");
}

fn functions_of_a_running_job_are_shown() {
    let programs = Programs::new();
    let sides = text(&programs.compile("sides", "gcc", &[], SIDES)).to_owned();
    let watch = text(Path::new(program("polymeter").get_program())).to_owned();
    let watch = |more: &str| format!("{watch} watch --functions=20s --for 3s {more}");
    let script = format!("{sides} left & {} >text; {} >lines; wait", watch(""), watch("--json"));
    let run = |file: &str, options: &[&str]| {
        let mut run = program("polymeter");
        run.arg("run").args(options).args(["-o", file, "--", "sh", "-c", &script]);
        let output = run.current_dir(programs.0.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let read = |name: &str| fs::read_to_string(programs.0.path().join(name)).unwrap();
        let lines: Vec<Value> =
            read("lines").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (read("text"), lines)
    };
    let (shown, lines) = run("with.db", &["--stacks", "5ms"]);
    assert!(shown.contains("compute") && shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let last = &lines.last().unwrap()["call_stacks"];
    assert_eq!(last["functions"][0]["function"], "compute", "{last:#}");
    let (shown, lines) = run("without.db", &[]);
    assert!(shown.contains("stacks.cpu=10ms --for 1min"), "{shown}");
    let last = lines.last().unwrap();
    let remedy = last["remedy"].as_str().unwrap();
    assert!(last["call_stacks"].is_null() && remedy.starts_with("polymeter set --job "), "{last:#}");
}
