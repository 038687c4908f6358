//! Instrumented programs, compiled by the compilers of this machine, and what they send to an agent.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

mod stand_in;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use polymeter_test_harness::skip;
use stand_in::{Agent, Region};

polymeter_test_harness::tests![
    counts_and_times_are_those_of_the_program,
    likwid_markers_count_in_each_thread,
    kokkos_tools_count_regions_and_kernels,
    fortran_names_are_trimmed,
    python_regions_nest,
    ranks_and_processes_are_named,
    without_an_agent_or_a_job_nothing_happens,
    a_restarted_agent_gets_all_counts,
    a_silent_agent_delays_the_end_for_a_second,
    a_child_after_fork_begins_anew,
    signals_are_left_to_the_program,
];

fn main() -> ExitCode {
    polymeter_test_harness::run(&[TESTS])
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Shared library, in a directory under the names by which programs find it.
struct Installed {
    directory: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let programs = std::env::current_exe().unwrap();
        let built = programs.with_file_name("libpolymeter_regions.so");
        assert!(built.exists(), "{} is missing", built.display());
        for name in ["libpolymeter_regions.so", "libpolymeter_regions.so.1"] {
            std::os::unix::fs::symlink(&built, directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles a program with a compiler and further options behind the source.
    fn compile(&self, compiler: &str, source: (&str, &str), options: &[&str]) -> PathBuf {
        let (file, program) = (self.path(source.0), self.path("program"));
        std::fs::write(&file, source.1).unwrap();
        let output = Command::new(compiler)
            .current_dir(self.directory.path())
            .args(["-O2", "-o", "program"])
            .args(options)
            .arg(&file)
            .args(["-L.", "-lpolymeter_regions", "-lpthread"])
            .output()
            .unwrap_or_else(|error| skip(compiler, &format!("{compiler}: {error}")));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    fn compile_c(&self, source: &str) -> PathBuf {
        let include = format!("-I{}", folder("include").display());
        self.compile("gcc", ("program.c", source), &["-Wall", "-Werror", &include])
    }

    /// Runs in the job `j`, whose agent has this socket.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>, socket: &Path) -> Command {
        let mut command = Command::new(program);
        for name in ["SLURM_JOB_ID", "OAR_JOB_ID", "SLURM_PROCID", "PMI_RANK", "OMPI_COMM_WORLD_RANK"] {
            command.env_remove(name);
        }
        command
            .env("LD_LIBRARY_PATH", self.directory.path())
            .env("POLYMETER_JOB_ID", "j")
            .env("POLYMETER_SOCKET", socket);
        command
    }
}

fn output_of(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn number(output: &str, name: &str) -> u64 {
    let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name}: {output}")).parse().unwrap()
}

/// Fails unless a time lies between those that the program measured within the region and around it, which
/// differ without a bound where the program does not run in between. A hundredth is for the clock's scale.
fn assert_within(measured_ns: u64, output: &str, region: &str) {
    let [within, around] = ["within", "around"].map(|bound| number(output, &format!("{region} {bound}")));
    let bounds = within - within / 100..=around + around / 100;
    assert!(bounds.contains(&measured_ns), "{measured_ns} ns, but {within} to {around} ns");
}

const CLOCK: &str = r#"
#include <stdio.h>
#include <time.h>
static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
static inline void work(double seconds) {
    long end = now_ns() + (long)(1e9 * seconds);
    while (now_ns() < end);
}
"#;

fn counts_and_times_are_those_of_the_program() {
    let (installed, agent) = (Installed::new(), Agent::start());
    let source = format!(
        r#"{CLOCK}
        #include <polymeter/polymeter.h>
        int main(void) {{
            long within[2] = {{0, 0}}, around[2] = {{0, 0}};
            around[0] -= now_ns();
            polymeter_region_begin("outer \"x\"");
            within[0] -= now_ns();
            for (int i = 0; i < 100; i++) {{
                around[1] -= now_ns();
                polymeter_region_begin("inner");
                within[1] -= now_ns();
                work(0.001);
                within[1] += now_ns();
                polymeter_region_end("inner");
                around[1] += now_ns();
                work(0.0005);
            }}
            within[0] += now_ns();
            polymeter_region_end("outer \"x\"");
            around[0] += now_ns();
            polymeter_region_end("never begun");
            polymeter_region_begin(NULL);
            printf("outer within %ld\nouter around %ld\n", within[0], around[0]);
            printf("inner within %ld\ninner around %ld\n", within[1], around[1]);
            return 0;
        }}"#
    );
    let output = output_of(&mut installed.command(installed.compile_c(&source), &agent.socket));
    let (outer, inner) = (agent.region("outer \"x\""), agent.region("inner"));
    assert_eq!((outer.entries, inner.entries), (1, 100));
    assert_within(outer.time_ns, &output, "outer");
    assert_within(inner.time_ns, &output, "inner");
    assert_eq!(inner.self_ns, inner.time_ns);
    assert!(outer.time_ns.abs_diff(outer.self_ns + inner.time_ns) < 1_000, "{outer:?} {inner:?}");
    assert_eq!((outer.thread_ns, inner.thread_ns), (outer.time_ns, inner.time_ns), "one thread");
    assert_eq!(agent.region("(unmatched ends)").entries, 1);
    assert_eq!(agent.region("(unnamed)").entries, 1, "it is open at the end");
}

fn likwid_markers_count_in_each_thread() {
    let (installed, agent) = (Installed::new(), Agent::start());
    let source = format!(
        r#"{CLOCK}
        #include <pthread.h>
        #include <likwid-marker.h>
        static void *run(void *argument) {{
            LIKWID_MARKER_THREADINIT;
            for (long i = 0; i < 10 * (1 + (long)argument); i++) {{
                LIKWID_MARKER_START("work");
                work(0.001);
                LIKWID_MARKER_START("overlapping");
                LIKWID_MARKER_STOP("work");
                LIKWID_MARKER_STOP("overlapping");
            }}
            int events = 7, count = 0;
            double time = 0;
            LIKWID_MARKER_GET("work", &events, NULL, &time, &count);
            if (events != 0 || count != 10 * (1 + (long)argument) || time < 0.001 * count) return "wrong";
            return NULL;
        }}
        int main(void) {{
            LIKWID_MARKER_INIT;
            LIKWID_MARKER_REGISTER("work");
            pthread_t threads[4];
            void *result;
            for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run, (void *)i);
            for (int i = 0; i < 4; i++) {{
                pthread_join(threads[i], &result);
                if (result) return 1;
            }}
            LIKWID_MARKER_CLOSE;
            return 0;
        }}"#
    );
    let include = format!("-I{}", folder("include/polymeter/likwid").display());
    let program =
        installed.compile("gcc", ("program.c", &source), &["-DLIKWID_PERFMON", "-Wall", "-Werror", &include]);
    output_of(&mut installed.command(program, &agent.socket));
    let (work, overlapping) = (agent.region("work"), agent.region("overlapping"));
    assert_eq!((work.entries, overlapping.entries, work.threads), (100, 100, 4));
    assert!(work.time_ns >= 100_000_000 && work.thread_ns >= 40_000_000, "{work:?}");
    assert!(work.thread_ns < work.time_ns && agent.find("(unmatched ends)").is_none(), "{work:?}");
    // Without the macros nothing is left of them.
    let plain = installed.compile("gcc", ("plain.c", "#include <likwid.h>\nint main(void) { LIKWID_MARKER_INIT; LIKWID_MARKER_START(\"x\"); return 0; }"), &[&include]);
    output_of(&mut installed.command(plain, &agent.socket));
    assert!(agent.find("x").is_none());
}

fn kokkos_tools_count_regions_and_kernels() {
    let (installed, agent) = (Installed::new(), Agent::start());
    let source = format!(
        r#"{CLOCK}
        #include <dlfcn.h>
        #include <stdint.h>
        #include <stdlib.h>
        static void *library;
        static void *symbol(const char *name) {{ void *s = dlsym(library, name); if (!s) abort(); return s; }}
        typedef void kernel_begin(const char *, uint32_t, uint64_t *);
        int main(void) {{
            library = dlopen(getenv("KOKKOS_TOOLS_LIBS"), RTLD_NOW);
            if (!library) return 1;
            ((void (*)(int, uint64_t, uint32_t, void *))symbol("kokkosp_init_library"))(0, 20240906, 0, NULL);
            ((void (*)(const char *))symbol("kokkosp_push_profile_region"))("solve");
            const char *kinds[3][2] = {{{{"kokkosp_begin_parallel_for", "kokkosp_end_parallel_for"}},
                {{"kokkosp_begin_parallel_scan", "kokkosp_end_parallel_scan"}},
                {{"kokkosp_begin_parallel_reduce", "kokkosp_end_parallel_reduce"}}}};
            for (int i = 0; i < 30; i++) {{
                uint64_t id = 0;
                ((kernel_begin *)symbol(kinds[i % 3][0]))(i % 3 ? "dot" : "axpy", 0, &id);
                work(0.001);
                ((void (*)(uint64_t))symbol(kinds[i % 3][1]))(id);
            }}
            ((void (*)(void))symbol("kokkosp_pop_profile_region"))();
            ((void (*)(void))symbol("kokkosp_pop_profile_region"))();
            ((void (*)(void))symbol("kokkosp_finalize_library"))();
            dlclose(library);
            return 0;
        }}"#
    );
    let program = installed.compile_c(&source);
    let library = installed.path("libpolymeter_regions.so");
    output_of(installed.command(program, &agent.socket).env("KOKKOS_TOOLS_LIBS", library));
    let [solve, axpy, dot] = ["solve", "axpy", "dot"].map(|name| agent.region(name));
    assert_eq!([solve.entries, axpy.entries, dot.entries], [1, 10, 20]);
    assert!(axpy.time_ns >= 10_000_000 && dot.time_ns >= 20_000_000, "{axpy:?} {dot:?}");
    assert!(solve.time_ns >= axpy.time_ns + dot.time_ns, "{solve:?}");
    assert_eq!(agent.region("(unmatched ends)").entries, 1);
}

fn fortran_names_are_trimmed() {
    let (installed, agent) = (Installed::new(), Agent::start());
    let source = r"
program demo
  use polymeter_regions
  implicit none
  character(len=20) :: name
  integer :: i
  name = 'time step'
  do i = 1, 5
    call region_begin(name)
    call region_begin('solve')
    call region_end('solve')
    call region_end('time step')
  end do
end program demo
";
    let module = folder("share/polymeter_regions.f90").display().to_string();
    let program = installed.compile("gfortran", ("demo.f90", source), &[&module]);
    output_of(&mut installed.command(program, &agent.socket));
    assert_eq!((agent.region("time step").entries, agent.region("solve").entries), (5, 5));
    assert!(agent.find("(unmatched ends)").is_none());
}

fn python_regions_nest() {
    let (installed, agent) = (Installed::new(), Agent::start());
    let script = r#"
import time
from polymeter_regions import flush, region

@region("load")
def load():
    time.sleep(0.01)

try:
    with region("epoch é"):
        for _ in range(3):
            load()
        raise ValueError
except ValueError:
    pass
assert flush() is True
"#;
    let python = || {
        let mut command = installed.command("python3", &agent.socket);
        command.args(["-B", "-c", script]).env("PYTHONPATH", folder("share"));
        command
    };
    if let Err(error) = Command::new("python3").arg("--version").output() {
        skip("python3", &error.to_string());
    }
    output_of(&mut python());
    let (epoch, load) = (agent.region("epoch é"), agent.region("load"));
    assert_eq!((epoch.entries, load.entries), (1, 3));
    assert!(load.time_ns >= 30_000_000 && epoch.time_ns >= load.time_ns, "{epoch:?} {load:?}");
    let requests = agent.requests();
    output_of(python().env("LD_LIBRARY_PATH", "/nonexistent"));
    assert_eq!(agent.requests(), requests, "without the library");
}

/// A program that enters a region as often as its argument says, and sleeps as many milliseconds as the
/// second says.
const LOOP: &str = r#"
#include <stdlib.h>
#include <unistd.h>
#include <polymeter/polymeter.h>
int main(int argc, char **argv) {
    for (int i = 0; i < atoi(argv[1]); i++) {
        polymeter_region_begin("loop");
        polymeter_region_end("loop");
    }
    usleep(1000 * atoi(argv[2]));
    return 0;
}"#;

fn ranks_and_processes_are_named() {
    let (installed, agent) = (Installed::new(), Agent::start());
    let program = installed.compile_c(LOOP);
    for (rank, variable) in [(0, "PMI_RANK"), (1, "OMPI_COMM_WORLD_RANK"), (2, "SLURM_PROCID")] {
        let entries = (10 + rank).to_string();
        output_of(
            installed.command(&program, &agent.socket).args([&entries, "0"]).env(variable, rank.to_string()),
        );
    }
    let script = format!("{} 5 0; {} 6 0", program.display(), program.display());
    output_of(
        installed
            .command("sh", &agent.socket)
            .args(["-c", &script])
            .env("SLURM_PROCID", "0")
            .env("PMI_RANK", "9"),
    );
    let mut all: Vec<(Option<u64>, u64)> =
        agent.all().iter().map(|(process, region)| (process.rank, region.entries)).collect();
    all.sort_unstable();
    assert_eq!(all, [(Some(0), 10), (Some(1), 11), (Some(2), 12), (Some(9), 5), (Some(9), 6)]);
}

fn without_an_agent_or_a_job_nothing_happens() {
    let installed = Installed::new();
    let program = installed.compile_c(LOOP);
    let nowhere = installed.path("nowhere.sock");
    output_of(installed.command(&program, &nowhere).args(["100000", "1500"]));
    let agent = Agent::start();
    output_of(installed.command(&program, &agent.socket).args(["1000", "0"]).env_remove("POLYMETER_JOB_ID"));
    assert_eq!(agent.requests(), 0, "outside of a job");
    // The descriptors of the program stay its own.
    let script = format!("exec 0<&- 1>&- 2>&-; exec {} 1000 0", program.display());
    output_of(installed.command("sh", &agent.socket).args(["-c", &script]));
    assert_eq!(agent.region("loop").entries, 1000);
}

fn a_restarted_agent_gets_all_counts() {
    let installed = Installed::new();
    let source = format!(
        r#"{CLOCK}
        #include <polymeter/polymeter.h>
        int main(void) {{
            for (int i = 0; i < 3000; i++) {{
                polymeter_region_begin("step");
                work(0.001);
                polymeter_region_end("step");
                if (i % 1000 == 999) {{ puts("."); fflush(stdout); getchar(); }}
            }}
            return 0;
        }}"#
    );
    let program = installed.compile_c(&source);
    let agent = Agent::start();
    let mut child = stand_in::Interactive::start(&mut installed.command(program, &agent.socket));
    child.wait_for_line();
    agent.wait_for(|agent| agent.find("step").is_some_and(|region| region.entries == 1000));
    let directory = agent.stop();
    child.go_on();
    child.wait_for_line();
    let agent = Agent::start_in(directory);
    child.go_on();
    child.wait_for_line();
    child.go_on();
    assert!(child.wait().success());
    let step = agent.region("step");
    assert_eq!(step.entries, 3000);
    assert!(step.time_ns >= 3_000_000_000, "{step:?}");
}

fn a_silent_agent_delays_the_end_for_a_second() {
    let installed = Installed::new();
    let agent = Agent::silent();
    output_of(installed.command(installed.compile_c(LOOP), &agent.socket).args(["1000", "0"]));
    assert!(agent.all().is_empty());
}

fn a_child_after_fork_begins_anew() {
    let (installed, agent) = (Installed::new(), Agent::start());
    let source = r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        #include <polymeter/polymeter.h>
        static void count(int entries) {
            for (int i = 0; i < entries; i++) { polymeter_region_begin("r"); polymeter_region_end("r"); }
        }
        static void *run(void *none) { count(100000); return NULL; }
        int main(void) {
            pthread_t thread;
            count(100);
            polymeter_region_begin("open");
            pthread_create(&thread, NULL, run, NULL);
            for (int child = 0; child < 20; child++) {
                pid_t pid = fork();
                if (pid == 0) { count(7); exit(0); }
                int status;
                waitpid(pid, &status, 0);
                if (status) return 1;
            }
            if (vfork() == 0) { execl("/bin/true", "true", NULL); _exit(1); }
            pthread_join(thread, NULL);
            return 0;
        }"#;
    output_of(&mut installed.command(installed.compile_c(source), &agent.socket));
    let mut entries: Vec<u64> = agent
        .all()
        .iter()
        .filter(|(_, region)| region.name == "r")
        .map(|(_, region)| region.entries)
        .collect();
    entries.sort_unstable();
    assert_eq!(entries.pop(), Some(100_100));
    assert_eq!(entries, [7; 20], "the children");
    assert_eq!(agent.all().iter().filter(|(_, region)| region.name == "open").count(), 1);
}

fn signals_are_left_to_the_program() {
    let (installed, agent) = (Installed::new(), Agent::start());
    let source = r#"
        #include <signal.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        #include <polymeter/polymeter.h>
        static volatile sig_atomic_t taken, wrong;
        static pid_t main_thread;
        static void handler(int number) { taken++; if (gettid() != main_thread) wrong = 1; }
        int main(void) {
            // The kernel fills the first of their words only.
            sigset_t before = {0}, after = {0};
            struct sigaction action = {.sa_handler = handler};
            main_thread = gettid();
            sigaction(SIGUSR1, &action, NULL);
            sigprocmask(SIG_SETMASK, NULL, &before);
            polymeter_region_begin("r");
            sigprocmask(SIG_SETMASK, NULL, &after);
            for (int i = 0; i < 1000; i++) kill(getpid(), SIGUSR1);
            polymeter_region_end("r");
            sigaction(SIGPIPE, NULL, &action);
            return memcmp(&before, &after, sizeof before) != 0 || wrong || !taken || action.sa_handler != SIG_DFL;
        }"#;
    let program = installed.compile(
        "gcc",
        ("program.c", source),
        &["-D_GNU_SOURCE", &format!("-I{}", folder("include").display())],
    );
    output_of(&mut installed.command(program, &agent.socket));
    let Region { entries, .. } = agent.region("r");
    assert_eq!(entries, 1);
}
