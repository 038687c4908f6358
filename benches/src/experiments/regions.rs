//! Measures the time of an entry into a region with its end.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use polymeter_benches::table::{self, say};

/// Entries of a case; with --quick a hundredth of them.
const ENTRIES: u64 = 20_000_000;

/// Program with all cases, which prints its CPU time in nanoseconds for each pair.
const PROGRAM: &str = r#"
#define LIKWID_PERFMON
#include <likwid-marker.h>
#include <polymeter/polymeter.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static long entries;
static const char *name;
static char names[64][24];
static double cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e9 * t.tv_sec + t.tv_nsec;
}
#define CASE(text, body) \
    if (!strcmp(name, text)) { for (long i = 0; i < entries; i++) { body; } }
static void *run(void *result) {
    struct timespec t;
    double begin = cpu_ns();
    CASE("clock_gettime twice", clock_gettime(CLOCK_MONOTONIC, &t); clock_gettime(CLOCK_MONOTONIC, &t))
    CASE("one region", polymeter_region_begin("solver"); polymeter_region_end("solver"))
    CASE("a name of 64 bytes",
        polymeter_region_begin("0123456789012345678901234567890123456789012345678901234567890123");
        polymeter_region_end("0123456789012345678901234567890123456789012345678901234567890123"))
    CASE("64 regions in turn", polymeter_region_begin(names[i % 64]); polymeter_region_end(names[i % 64]))
    CASE("LIKWID markers", LIKWID_MARKER_START("solver"); LIKWID_MARKER_STOP("solver"))
    *(double *)result = (cpu_ns() - begin) / entries;
    return NULL;
}
int main(int argc, char **argv) {
    name = argv[1];
    entries = atol(argv[2]);
    int count = atoi(argv[3]);
    pthread_t threads[64];
    double results[64], sum = 0;
    for (int i = 0; i < 64; i++) snprintf(names[i], sizeof names[i], "region number %d", i);
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, run, &results[i]);
    for (int i = 0; i < count; i++) { pthread_join(threads[i], NULL); sum += results[i]; }
    printf("%.1f\n", sum / count);
    return 0;
}
"#;

/// Measures the CPU time of an entry into a region with its end, in a program that is linked with the library
/// beside this program.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Take a second.
    #[arg(long)]
    quick: bool,
}

/// A case, the number of threads, and whether the program is in a job.
const CASES: [(&str, u32, bool); 7] = [
    ("clock_gettime twice", 1, true),
    ("one region", 1, false),
    ("one region", 1, true),
    ("one region", 4, true),
    ("a name of 64 bytes", 1, true),
    ("64 regions in turn", 1, true),
    ("LIKWID markers", 1, true),
];

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    table::machine();
    let directory = tempfile::tempdir()?;
    build(directory.path())?;
    let entries = if arguments.quick { ENTRIES / 100 } else { ENTRIES };
    let mut rows = Vec::new();
    for (case, threads, is_in_job) in CASES {
        let mut program = Command::new(directory.path().join("program"));
        program.args([case, &entries.to_string(), &threads.to_string()]);
        program
            .env("LD_LIBRARY_PATH", directory.path())
            .env("POLYMETER_SOCKET", directory.path().join("socket"));
        for variable in ["POLYMETER_JOB_ID", "SLURM_JOB_ID", "OAR_JOB_ID"] {
            program.env_remove(variable);
        }
        if is_in_job {
            program.env("POLYMETER_JOB_ID", "1");
        }
        let output = program.output()?;
        if !output.status.success() {
            return Err(format!("the program of case `{case}` fails: {}", output.status).into());
        }
        let place = if is_in_job { "in a job without an agent" } else { "outside of a job" };
        let time = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        rows.push(vec![case.to_owned(), threads.to_string(), place.to_owned(), time]);
    }
    say(&format!("CPU time of an entry with its end; {entries} of each thread"));
    say("");
    table::table(&["case", "threads", "place", "ns"], &rows);
    Ok(())
}

fn build(directory: &Path) -> Result<(), Box<dyn Error>> {
    let library = std::env::current_exe()?.with_file_name("libpolymeter_regions.so");
    for name in ["libpolymeter_regions.so", "libpolymeter_regions.so.1"] {
        std::fs::copy(&library, directory.join(name))
            .map_err(|error| format!("{}: {error}; cargo build --workspace makes it", library.display()))?;
    }
    std::fs::write(directory.join("program.c"), PROGRAM)?;
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node-agent/regions/include");
    let output = Command::new("cc")
        .current_dir(directory)
        .arg("-I")
        .arg(&include)
        .arg("-I")
        .arg(include.join("polymeter/likwid"))
        .args(["-O2", "program.c", "-o", "program", "-L.", "-lpolymeter_regions", "-lpthread"])
        .output()?;
    if !output.status.success() {
        return Err(format!("cannot compile: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(())
}
