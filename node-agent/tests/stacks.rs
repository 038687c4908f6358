//! Call stacks of real processes: the shares of functions are those that the program has.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use polymeter_agent::cgroups::{JobCgroups, Mounts};
use polymeter_agent::sources::reader_thread::FinishedReads;
use polymeter_agent::sources::{
    Opened, Outcome, Reading, Source, SourceFactory, StackProfile, Target, online_cpus,
};
use polymeter_proto::catalogue;
use polymeter_proto::period::Period;
use polymeter_service::clock;
use polymeter_test_harness::hypervisor::{TICK, stolen};
use polymeter_test_harness::skip;
use rustix::process::{Pid, Signal, kill_process};

polymeter_test_harness::tests![
    functions_have_the_shares_of_the_program,
    a_cgroup_is_sampled_with_all_that_runs_in_it,
    hundreds_of_threads_that_run_already_are_sampled,
    a_loop_in_step_with_the_period_is_sampled_evenly,
    a_deleted_program_keeps_its_names,
    processes_that_live_for_milliseconds_are_sampled,
    unwinding_finds_callers_without_frame_pointers,
    unwinding_finds_the_callers_that_perf_finds,
    waits_have_the_times_that_the_program_measures,
    waits_of_a_cgroup_are_those_of_its_threads,
    a_storm_of_switches_costs_samples_of_its_own_only,
];

fn main() -> ExitCode {
    polymeter_test_harness::run(&[TESTS])
}

/// A program that spends three quarters of its CPU time in one function and the rest in another, in an order
/// that is left to chance, on as many threads as its argument says, which together use about one CPU; with a
/// second argument it ends after that many rounds. Its loops stay in registers: over memory, two equal loops did
/// 438 and 582 additions a microsecond on an Intel Xeon; in registers their speeds differ by 1 %.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static long rounds = -1;
static int threads;
#define WORK(name) __attribute__((noinline)) void name(volatile long *x) { \
        register unsigned long product = 1; \
        for (register long i = 0; i < 100000; i++) product *= 2862933555777941757; \
        *x = product; \
    }
WORK(three_quarters)
WORK(one_quarter)
__attribute__((noinline)) void *solve(void *arg) {
    volatile long x = 0;
    unsigned seed = (unsigned)(long)arg;
    for (long r = 0; r != rounds; r++) {
        for (int part = 0; part < 4; part++)
            if (rand_r(&seed) % 4) three_quarters(&x); else one_quarter(&x);
        if (threads > 1) usleep(threads * 1000);
    }
    return arg;
}
int main(int argc, char **argv) {
    threads = atoi(argv[1]);
    if (argc > 2) rounds = atol(argv[2]);
    pthread_t all[1024];
    for (long t = 1; t < threads; t++) pthread_create(&all[t], 0, solve, (void *)t);
    solve((void *)(long)getpid());
    return 0;
}
"#;

/// A program of about the same shares, whose loop takes a given CPU time in milliseconds. It counts the work
/// of each function in a file: the shares of the time differ where the machine is taken from it in a function.
/// The work stays in registers, as above.
const IN_STEP: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static double used_ms(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * 1e3 + used.tv_nsec / 1e6;
}
static volatile unsigned long sink;
#define WORK(name) __attribute__((noinline)) void name(double until_ms, volatile long *work) { \
        register unsigned long product = 1; \
        do { \
            for (register long i = 0; i < 10000; i++) product *= 2862933555777941757; \
            ++*work; \
        } while (used_ms() < until_ms); \
        sink = product; \
    }
WORK(three_quarters)
WORK(one_quarter)
int main(int argc, char **argv) {
    int file = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 4096)) return 1;
    volatile long *work = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    double loop_ms = atof(argv[1]);
    for (double begin_ms = used_ms();; begin_ms += loop_ms) {
        three_quarters(begin_ms + 0.75 * loop_ms, &work[0]);
        one_quarter(begin_ms + loop_ms, &work[1]);
    }
}
"#;

/// A program without frame pointers, each of whose functions has one caller, and room of its own on the
/// stack. The innermost function uses the register of the frame pointer for other things.
const WITHOUT_FRAME_POINTERS: &str = r#"
#include <alloca.h>
#include <string.h>
#define APART __attribute__((noinline, noclone))
static volatile long sink;
APART long innermost(long n) {
    long a = n, b = n + 1, c = n + 2, d = n + 3, e = n + 4, f = n + 5, g = n + 6;
    for (long i = 0; i < 2000000; i++) {
        a += b ^ i; b += c ^ a; c += d ^ b; d += e ^ c; e += f ^ d; f += g ^ e; g += a ^ f;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g));
    }
    return a + b + c + d + e + f + g;
}
APART long with_room(long n) {
    volatile char room[600];
    memset((char *)room, (int)n, sizeof room);
    return innermost(n) + room[n % 600];
}
APART long with_variable_room(long n) {
    char *room = alloca(64 + n % 512);
    memset(room, (int)n, 64);
    sink += room[n % 64];
    return with_room(n) + room[n % 64];
}
APART long outermost(long n) { return with_variable_room(n) + 1; }
int main(void) {
    for (long n = 0;; n++) sink += outermost(n);
}
"#;

const CALLERS: [&str; 4] = ["with_room", "with_variable_room", "outermost", "main"];

/// A program whose first thread sleeps, waits for a lock that another thread holds, and reads a pipe that a
/// third one fills. It measures the time of each, and writes the sums to the file of its argument, in
/// nanoseconds.
const WAITING: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int asked[2], answered[2];
static volatile long sink;
static long now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}
static void *holds(void *arg) {
    for (;;) {
        pthread_mutex_lock(&lock);
        usleep(5000);
        pthread_mutex_unlock(&lock);
        usleep(500);
    }
    return arg;
}
static void *answers(void *arg) {
    for (char byte; read(asked[0], &byte, 1) == 1;) {
        usleep(2000);
        if (write(answered[1], &byte, 1) != 1) break;
    }
    return arg;
}
APART void sleeps(void) { usleep(3000 + random() % 6000); sink++; }
APART void locks(void) { pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); sink++; }
APART void reads(void) {
    char byte = 0;
    if (write(asked[1], &byte, 1) != 1 || read(answered[0], &byte, 1) != 1) exit(1);
    sink++;
}
int main(int argc, char **argv) {
    int out = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    pthread_t holder, answerer;
    if (pipe(asked) || pipe(answered)) return 1;
    pthread_create(&holder, 0, holds, 0);
    pthread_create(&answerer, 0, answers, 0);
    for (long sums[3] = {0};;) {
        long begin = now();
        sleeps();
        long slept = now();
        locks();
        long locked = now();
        reads();
        sums[0] += slept - begin, sums[1] += locked - slept, sums[2] += now() - locked;
        char text[100];
        int len = snprintf(text, sizeof text, "%19ld %19ld %19ld", sums[0], sums[1], sums[2]);
        if (pwrite(out, text, len, 0) != len) return 1;
    }
}
"#;

/// Functions in which it waits, in the order of its sums.
const WAITS: [&str; 3] = ["sleeps", "locks", "reads"];

/// A program with two threads that wake each other as fast as they can, and a third one that sleeps.
const STORM: &str = r#"
#include <pthread.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))
static int there[2], back[2];
static volatile long sink;
APART void sleeps_long(void) { for (;;) { usleep(400000); sink++; } }
static void *echoes(void *arg) {
    for (char byte; read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1;) sink++;
    return arg;
}
static void *calls(void *arg) {
    for (char byte = 0; write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1;) sink++;
    return arg;
}
int main(void) {
    pthread_t echo, call;
    if (pipe(there) || pipe(back)) return 1;
    pthread_create(&echo, 0, echoes, 0);
    pthread_create(&call, 0, calls, 0);
    sleeps_long();
}
"#;

fn need_root() {
    if !rustix::process::geteuid().is_root() {
        skip("root", "the tests do not run as root");
    }
}

/// Longest wait for samples, on a machine that does much else.
const PATIENCE_NS: u64 = 120_000_000_000;

struct Compiled {
    directory: tempfile::TempDir,
}

impl Compiled {
    fn new() -> Self {
        Self::of(PROGRAM)
    }

    fn of(source: &str) -> Self {
        Self::with(source, &["-O0", "-fno-omit-frame-pointer", "-pthread"])
    }

    fn without_frame_pointers() -> Self {
        Self::with(WITHOUT_FRAME_POINTERS, &["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"])
    }

    fn with(source: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("solve.c"), source).unwrap();
        let compiler = Command::new("gcc")
            .args(options)
            .args(["-o", "solver", "solve.c"])
            .current_dir(directory.path())
            .status();
        match compiler {
            Ok(status) if status.success() => Self { directory },
            _ => skip("gcc", "there is no C compiler"),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("solver")
    }

    fn start(&self, threads: &str) -> Running {
        Running(Command::new(self.path()).arg(threads).spawn().unwrap())
    }
}

struct Running(Child);

impl Running {
    fn stop(&self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::STOP).unwrap();
    }

    /// CPU time of its first thread.
    fn cpu_ns(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.0.id())).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Call stacks under sampling at a period of one millisecond.
struct Sampled {
    opened: Opened,
    all: Vec<StackProfile>,
}

impl Sampled {
    /// Opens the source, and waits until the kernel samples; or skips the test.
    fn start(target: &Target) -> Self {
        Self::start_metric(target, "stacks.cpu")
    }

    fn start_metric(target: &Target, metric: &str) -> Self {
        let mounts = Mounts::read(Path::new("/")).unwrap();
        let cpus = online_cpus(Path::new("/")).unwrap();
        let factory = SourceFactory { cpus: &cpus, perf_descriptors: 4096, ..SourceFactory::of(&mounts) };
        let wanted = [catalogue::find(metric).unwrap()];
        let (mut opened, unavailable) = factory.open(target, &wanted);
        let Some(opened) = opened.pop() else { skip("perf", &unavailable[0].to_string()) };
        let mut sampled = Self { opened, all: Vec::new() };
        assert!(sampled.read().is_none(), "nothing is open before the first read");
        sampled
    }

    fn read(&mut self) -> Option<Box<StackProfile>> {
        let Source::Threaded(source) = &self.opened.source else { panic!("a source of the slow lane") };
        let (finished, until_ns) = (Arc::new(FinishedReads::default()), clock::monotonic_ns() + PATIENCE_NS);
        source.request(Reading::absent(1), Some(Period::MILLISECOND), &finished).unwrap();
        loop {
            if let Some(mut read) = source.take_finished() {
                assert_eq!(read.outcome, Outcome::Read);
                return read.reading.take_stacks();
            }
            assert!(clock::monotonic_ns() < until_ns, "the read does not end");
            clock::sleep(Duration::from_millis(5));
        }
    }

    /// Reads until there are `samples`.
    fn until(&mut self, samples: u64) {
        let until_ns = clock::monotonic_ns() + PATIENCE_NS;
        while self.samples() < samples {
            assert!(clock::monotonic_ns() < until_ns, "only {} samples", self.samples());
            self.read_on();
        }
    }

    fn read_on(&mut self) {
        // As often as the agent.
        clock::sleep(Duration::from_millis(64));
        let profile = self.read();
        self.all.extend(profile.map(|profile| *profile));
    }

    fn samples(&self) -> u64 {
        self.all.iter().map(StackProfile::samples).sum()
    }

    /// Percentage of the samples whose innermost function has each name.
    fn shares(&self) -> BTreeMap<String, f64> {
        let mut counts = BTreeMap::<String, u64>::new();
        for profile in &self.all {
            for (_, stack, count) in &profile.counts {
                let function = &profile.functions[profile.stacks[*stack as usize].1 as usize];
                let module = function.module.as_ref().map_or("?", |module| module.as_str());
                let name = function.name.as_ref().map_or(module, |name| name.as_str());
                *counts.entry(name.to_owned()).or_default() += count;
            }
        }
        counts.into_iter().map(|(name, count)| (name, 100.0 * float(count) / float(self.samples()))).collect()
    }

    /// Percentage of the samples in a function that have these callers.
    fn share_with_callers(&self, function: &str, callers: &[&str]) -> f64 {
        let (mut all, mut with) = (0, 0);
        for profile in &self.all {
            for (_, stack, count) in &profile.counts {
                let names: Vec<&str> = innermost_first(profile, *stack).collect();
                if names[0] == function {
                    all += count;
                    with += if names[1..].starts_with(callers) { *count } else { 0 };
                }
            }
        }
        100.0 * float(with) / float(all)
    }

    /// Percentage of the samples in one of these functions and what it calls.
    fn share_inside(&self, functions: &[&str]) -> f64 {
        let mut inside = 0;
        for profile in &self.all {
            for (_, stack, count) in &profile.counts {
                let is_inside = innermost_first(profile, *stack).any(|name| functions.contains(&name));
                inside += if is_inside { *count } else { 0 };
            }
        }
        100.0 * float(inside) / float(self.samples())
    }

    fn lost(&self) -> u64 {
        self.all.iter().map(|profile| profile.lost).sum()
    }

    /// Time of the samples in a function and what it calls, in nanoseconds.
    fn nanos_in(&self, function: &str) -> u64 {
        let mut nanos = 0;
        for profile in &self.all {
            let counts = profile.counts.iter();
            let inside =
                counts.filter(|(_, stack, _)| innermost_first(profile, *stack).any(|name| name == function));
            let count: u64 = inside.map(|(.., count)| count).sum();
            nanos += count * profile.period.unwrap().as_nanos();
        }
        nanos
    }

    /// Checks that the program's functions have the shares of 75 and 25 %, within some points.
    fn check(&self, points: f64) {
        self.check_share(75.0, points);
    }

    fn check_share(&self, of_three_quarters: f64, points: f64) {
        let shares = self.shares();
        let share = |name: &str| shares.get(name).copied().unwrap_or_default();
        let (three, one) = (share("three_quarters"), share("one_quarter"));
        let of_program = three + one;
        // With the interrupts on top of them, which other programs of the machine cause.
        let inside = self.share_inside(&["three_quarters", "one_quarter"]);
        assert!(inside > 90.0, "{inside} %: {shares:?}");
        assert!(
            (100.0 * three / of_program - of_three_quarters).abs() < points,
            "{of_three_quarters} % and {three} % of {of_program}: {shares:?}"
        );
        assert_eq!(self.lost(), 0, "{shares:?}");
    }
}

/// Names a function of a profile; empty if it has no name.
fn name_of(profile: &StackProfile, function: u32) -> &str {
    profile.functions[function as usize].name.as_ref().map_or("", |name| name.as_str())
}

/// Names the functions of a stack.
fn innermost_first(profile: &StackProfile, stack: u32) -> impl Iterator<Item = &str> {
    let stacks = std::iter::successors(Some(stack), |stack| profile.stacks[*stack as usize].0);
    stacks.map(|stack| name_of(profile, profile.stacks[stack as usize].1))
}

fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

fn functions_have_the_shares_of_the_program() {
    let compiled = Compiled::new();
    let running = compiled.start("1");
    let mut sampled = Sampled::start(&Target::Processes(running.0.id()));
    sampled.until(3000);
    sampled.check(3.0);
    // The callers are known by the frame pointers.
    let profile = sampled.all.iter().skip(1).max_by_key(|profile| profile.samples()).unwrap();
    let callers: Vec<&str> = profile
        .stacks
        .iter()
        .filter(|(_, function)| name_of(profile, *function) == "three_quarters")
        .map(|(caller, _)| name_of(profile, profile.stacks[caller.unwrap() as usize].1))
        .collect();
    assert!(callers.contains(&"solve"), "{callers:?}");
    assert!(profile.counts.iter().all(|(process, ..)| *process == running.0.id()));
}

/// A cgroup of version 2, which is removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes one, or skips the test.
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mounts = Mounts::read(Path::new("/")).unwrap();
        let Some(root) = mounts.v2.clone().filter(|_| mounts.perf_follows_v2()) else {
            skip("cgroup2", "perf does not follow cgroups of version 2")
        };
        let name = format!("polymeter-stacks-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let cgroup = Self(root.join(name));
        match fs::create_dir(&cgroup.0) {
            Ok(()) => cgroup,
            Err(error) => skip("cgroup2", &error.to_string()),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            clock::sleep(Duration::from_millis(10));
        }
    }
}

fn a_cgroup_is_sampled_with_all_that_runs_in_it() {
    need_root();
    let cgroup = Cgroup::new();
    let compiled = Compiled::new();
    let outside = compiled.start("1");
    let target = Target::Cgroups(JobCgroups { v2: Some(cgroup.0.clone()), ..JobCgroups::default() });
    let mut sampled = Sampled::start(&target);
    let inside: Vec<Running> = (0..2).map(|_| compiled.start("1")).collect();
    for running in &inside {
        fs::write(cgroup.0.join("cgroup.procs"), running.0.id().to_string()).unwrap();
    }
    sampled.until(1000);
    sampled.check(5.0);
    let processes = sampled.all.iter().flat_map(|profile| &profile.counts).map(|(process, ..)| *process);
    let processes: std::collections::BTreeSet<u32> = processes.collect();
    assert_eq!(processes, inside.iter().map(|running| running.0.id()).collect());
    drop((inside, outside));
}

fn hundreds_of_threads_that_run_already_are_sampled() {
    let compiled = Compiled::new();
    let running = compiled.start("200");
    let tasks = format!("/proc/{}/task", running.0.id());
    let until_ns = clock::monotonic_ns() + PATIENCE_NS;
    while fs::read_dir(&tasks).unwrap().count() < 200 {
        assert!(clock::monotonic_ns() < until_ns);
        clock::sleep(Duration::from_millis(10));
    }
    let mut sampled = Sampled::start(&Target::Processes(running.0.id()));
    sampled.until(500);
    let shares = sampled.shares();
    assert!(shares["three_quarters"] > 60.0, "{shares:?}");
}

fn a_loop_in_step_with_the_period_is_sampled_evenly() {
    // Other programs of the machine slow a loop down by some percent at times.
    ["1", "1.01", "0.99", "2.03"].into_iter().for_each(check_loop_of_ms);
}

fn check_loop_of_ms(loop_ms: &str) {
    let compiled = Compiled::of(IN_STEP);
    let file = compiled.directory.path().join("work");
    let running = Running(Command::new(compiled.path()).arg(loop_ms).arg(&file).spawn().unwrap());
    let until_ns = clock::monotonic_ns() + PATIENCE_NS;
    while fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
        assert!(clock::monotonic_ns() < until_ns);
        clock::sleep(Duration::from_millis(10));
    }
    let work = || {
        let bytes = fs::read(&file).unwrap();
        [0, 8].map(|at| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()))
    };
    // Sampling begins between the two.
    let before_ns = running.cpu_ns();
    let mut sampled = Sampled::start(&Target::Processes(running.0.id()));
    let (begin, begin_ns, stolen_before) = (work(), running.cpu_ns(), stolen());
    sampled.until(3000);
    running.stop();
    // The newest samples are in the next profile.
    (0..2).for_each(|_| sampled.read_on());
    let (end, end_ns) = (work(), running.cpu_ns());
    let stolen_ns = u64::try_from((stolen() + TICK - stolen_before).as_nanos()).unwrap();
    let (least_ns, most_ns) = (end_ns - begin_ns, end_ns - before_ns);
    // A sample stands for a period.
    let sampled_ns = sampled.samples() * Period::MILLISECOND.as_nanos();
    let figures = format!("{sampled_ns} ns of {least_ns} to {most_ns} ns, up to {stolen_ns} ns stolen");
    // The kernel samples by the clock, but does not count the time that is stolen: there may be a sample for it.
    let is_close = sampled_ns > least_ns - least_ns / 50 && sampled_ns < most_ns + most_ns / 50 + stolen_ns;
    assert!(is_close, "{figures}");
    let done = [0, 1].map(|function| float(end[function] - begin[function]));
    sampled.check_share(100.0 * done[0] / (done[0] + done[1]), 5.0);
}

fn a_deleted_program_keeps_its_names() {
    need_root();
    let compiled = Compiled::new();
    let running = compiled.start("1");
    // Another program takes its place, with other functions at the same addresses.
    fs::remove_file(compiled.path()).unwrap();
    fs::copy("/bin/true", compiled.path()).unwrap();
    let mut sampled = Sampled::start(&Target::Processes(running.0.id()));
    sampled.until(100);
    let shares = sampled.shares();
    assert!(shares["three_quarters"] > 50.0, "{shares:?}");
}

fn processes_that_live_for_milliseconds_are_sampled() {
    let compiled = Compiled::new();
    let script = "while :; do ./solver 1 5 & ./solver 1 5; wait; done";
    let shell = Command::new("sh")
        .args(["-c", script])
        .current_dir(compiled.directory.path())
        .stderr(Stdio::null())
        .spawn();
    let shell = Running(shell.unwrap());
    let mut sampled = Sampled::start(&Target::Processes(shell.0.id()));
    sampled.until(200);
    let shares = sampled.shares();
    assert!(shares.get("three_quarters").is_some_and(|share| *share > 15.0), "{shares:?}");
    let processes: std::collections::BTreeSet<u32> =
        sampled.all.iter().flat_map(|profile| &profile.counts).map(|(process, ..)| *process).collect();
    assert!(processes.len() > 10, "{processes:?}");
}

fn unwinding_finds_callers_without_frame_pointers() {
    let compiled = Compiled::without_frame_pointers();
    let running = compiled.start("");
    let target = Target::Processes(running.0.id());
    let share = |metric| {
        let mut sampled = Sampled::start_metric(&target, metric);
        sampled.until(200);
        let cut: u64 = sampled.all.iter().map(|profile| profile.cut).sum();
        (sampled.share_with_callers("innermost", &CALLERS), cut, sampled.samples())
    };
    let (unwound, cut, samples) = share("stacks.cpu_dwarf");
    assert!(unwound > 98.0, "{unwound} %");
    // The outermost function of the C library says that it has no caller.
    assert!(cut * 50 < samples, "{cut} of {samples} are cut");
    let (followed, ..) = share("stacks.cpu");
    assert!(followed < 2.0, "{followed} %");
}

/// Compares with `perf record`.
fn unwinding_finds_the_callers_that_perf_finds() {
    let compiled = Compiled::without_frame_pointers();
    let running = compiled.start("");
    let data = compiled.directory.path().join("perf.data");
    let recorded = Command::new("perf")
        .args(["record", "--quiet", "-e", "cpu-clock", "-F", "100", "--call-graph", "dwarf"])
        .args(["-p", &running.0.id().to_string(), "-o", data.to_str().unwrap(), "sleep", "3"])
        .output();
    if !recorded.is_ok_and(|recorded| recorded.status.success()) {
        skip("perf record", "perf records nothing here");
    }
    let script = Command::new("perf").args(["script", "-F", "ip,sym", "-i", data.to_str().unwrap()]).output();
    let text = String::from_utf8(script.unwrap().stdout).unwrap();
    // Each line is an address and a name; an empty line ends a stack.
    let stack = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect()
    };
    let innermost =
        text.split("\n\n").map(stack).find(|stack| stack.first().is_some_and(|f| f == "innermost"));
    let Some(by_perf) = innermost else { skip("perf record", "perf finds no functions of a program") };
    let by_perf: Vec<&str> = by_perf.iter().skip(1).map(String::as_str).collect();
    assert!(by_perf.starts_with(&CALLERS), "{by_perf:?}");
    let mut sampled = Sampled::start_metric(&Target::Processes(running.0.id()), "stacks.cpu_dwarf");
    sampled.until(100);
    let share = sampled.share_with_callers("innermost", &CALLERS);
    assert!(share > 98.0, "{share} %");
}

fn measured(path: &Path) -> Vec<u64> {
    let until_ns = clock::monotonic_ns() + PATIENCE_NS;
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        let sums: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if sums.len() == WAITS.len() {
            return sums;
        }
        assert!(clock::monotonic_ns() < until_ns, "the program measures nothing");
        clock::sleep(Duration::from_millis(10));
    }
}

fn waits_have_the_times_that_the_program_measures() {
    let compiled = Compiled::of(WAITING);
    let path = compiled.directory.path().join("sums");
    let running = compiled.start(path.to_str().unwrap());
    let before = measured(&path);
    let mut sampled = Sampled::start_metric(&Target::Processes(running.0.id()), "stacks.wait");
    let began = measured(&path);
    sampled.until(5000);
    let ended = measured(&path);
    sampled.until(sampled.samples() + 1);
    let after = measured(&path);
    let waited: Vec<f64> =
        before.iter().zip(&after).map(|(before, after)| float((after - before) / 1000)).collect();
    let found = WAITS.map(|function| float(sampled.nanos_in(function) / 1000));
    let (all_waited, all_found): (f64, f64) = (waited.iter().sum(), found.iter().sum());
    let shares: Vec<(f64, f64)> = waited
        .iter()
        .zip(found)
        .map(|(waited, found)| (100.0 * waited / all_waited, 100.0 * found / all_found))
        .collect();
    let described = format!("{shares:?}, {all_waited} us and {all_found} us: {:?}", sampled.shares());
    assert!(shares.iter().all(|(waited, found)| (waited - found).abs() < 3.0), "{described}");
    // The samples begin between two measurements of the program, and end between two.
    let sum_us =
        |begin: &[u64], end: &[u64]| float((end.iter().sum::<u64>() - begin.iter().sum::<u64>()) / 1000);
    let (least, lost_us) = (sum_us(&began, &ended), float(sampled.lost() * 10_000));
    assert!(all_found < 1.1 * all_waited, "{described}");
    assert!(all_found + lost_us > 0.9 * least, "{least} us, {lost_us} us lost: {described}");
}

fn waits_of_a_cgroup_are_those_of_its_threads() {
    need_root();
    let cgroup = Cgroup::new();
    let compiled = Compiled::of(WAITING);
    let start = |name: &str| {
        let path = compiled.directory.path().join(name);
        (compiled.start(path.to_str().unwrap()), path)
    };
    let ((outside, _), (inside, path)) = (start("outside"), start("inside"));
    fs::write(cgroup.0.join("cgroup.procs"), inside.0.id().to_string()).unwrap();
    measured(&path);
    let target = Target::Cgroups(JobCgroups { v2: Some(cgroup.0.clone()), ..JobCgroups::default() });
    let mut sampled = Sampled::start_metric(&target, "stacks.wait");
    let before = measured(&path);
    sampled.until(2000);
    let after = measured(&path);
    let waited: u64 = before.iter().zip(&after).map(|(before, after)| after - before).sum();
    let found: u64 = WAITS.iter().map(|function| sampled.nanos_in(function)).sum();
    // Beside a storm of switches samples are lost, of these threads as of all others.
    let (taken, lost) = (sampled.samples(), sampled.lost());
    let ratio = float(found / 1000) / float(waited / 1000) * float(taken + lost) / float(taken);
    let described = format!("{found} ns of {waited} ns, {taken} taken, {lost} lost");
    assert!((ratio - 1.0).abs() < 0.2, "{described}: {:?}", sampled.shares());
    let processes = sampled.all.iter().flat_map(|profile| &profile.counts).map(|(process, ..)| *process);
    assert_eq!(processes.collect::<std::collections::BTreeSet<u32>>(), [inside.0.id()].into());
    drop((inside, outside));
}

fn a_storm_of_switches_costs_samples_of_its_own_only() {
    let compiled = Compiled::of(STORM);
    let running = compiled.start("");
    let mut sampled = Sampled::start_metric(&Target::Processes(running.0.id()), "stacks.wait");
    let begin_ns = clock::monotonic_ns();
    sampled.until(1500);
    let elapsed_ns = clock::monotonic_ns() - begin_ns;
    let lost = sampled.lost();
    let slept = float(sampled.nanos_in("sleeps_long") / 1000) / float(elapsed_ns / 1000);
    let all = sampled.samples() + lost;
    let described = format!("{slept} of the time, {lost} of {all} lost");
    // The first sleep began before the samples; where samples are lost, sleeps are unknown.
    let unknown = float(lost * 10_000) / float(elapsed_ns / 1000);
    assert!(slept < 1.05 && slept + unknown > 0.75, "{described}");
    // Three threads cannot wait for longer than there was time.
    let most = 3 * (elapsed_ns / Period::TEN_MILLISECONDS.as_nanos()) + 100;
    assert!(sampled.samples() <= most, "{described}");
}
