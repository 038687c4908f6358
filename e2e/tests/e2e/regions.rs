//! The regions of instrumented programs, from the library to the report.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polymeter_e2e::fixture::{Fixture, NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::{program, require, skip, stored, tests};
use polymeter_store::reader::SeriesScope;
use serde_json::{Value, json};

tests![
    regions_of_two_ranks_are_reported_as_the_program_measured_them,
    many_processes_of_a_user_are_recorded_in_her_own_job_only,
];

/// Works in two regions for as many milliseconds as its argument says. Prints the entries of the inner region,
/// and the time of the outer one, measured within and around it: these differ without a bound where the program
/// does not run in between.
const PROGRAM: &str = r#"
#include <polymeter/polymeter.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
static int milliseconds;
struct seconds { double within, around; };
static void *run(void *measured) {
    struct seconds *seconds = measured;
    double around = now();
    polymeter_region_begin("step");
    double within = now();
    for (int i = 0; i < milliseconds; i++) {
        polymeter_region_begin("solve, part=1");
        double end = now() + 0.001;
        while (now() < end);
        polymeter_region_end("solve, part=1");
    }
    seconds->within = now() - within;
    polymeter_region_end("step");
    seconds->around = now() - around;
    return NULL;
}
int main(int argc, char **argv) {
    milliseconds = atoi(argv[1]);
    struct seconds seconds[2];
    pthread_t thread;
    pthread_create(&thread, NULL, run, &seconds[0]);
    run(&seconds[1]);
    pthread_join(thread, NULL);
    printf("%d %.6f %.6f\n", 2 * milliseconds, seconds[0].within + seconds[1].within,
        seconds[0].around + seconds[1].around);
    for (int tries = atoi(argv[2]); tries > 0 && polymeter_regions_flush() != 0; tries--);
    return 0;
}"#;

fn checked(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Compiles the program in a directory, which gets the library as well.
fn compile(directory: &Path) -> PathBuf {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node-agent/regions/include");
    let library = directory.join("libpolymeter_regions.so");
    std::fs::copy(program("libpolymeter_regions.so").get_program(), &library).unwrap();
    std::fs::copy(&library, directory.join("libpolymeter_regions.so.1")).unwrap();
    std::fs::write(directory.join("program.c"), PROGRAM).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.current_dir(directory).arg("-I").arg(include);
    compiler.args([
        "-O2",
        "-Wall",
        "-Werror",
        "program.c",
        "-o",
        "program",
        "-L.",
        "-lpolymeter_regions",
        "-lpthread",
    ]);
    let compiled = compiler.output().unwrap_or_else(|error| skip("gcc", &error.to_string()));
    checked(compiled);
    directory.join("program")
}

fn regions_of_two_ranks_are_reported_as_the_program_measured_them() {
    let directory = tempfile::tempdir().unwrap();
    let compiled = compile(directory.path());
    let store = format!("sqlite:{}", directory.path().join("run.db").display());
    let script = format!(
        "for rank in 0 1; do PMI_RANK=$rank {} $((300 + 1200 * rank)) 0 >$rank & done; wait",
        compiled.display()
    );
    let mut run = program("polymeter");
    run.args(["run", "-o"]).arg(directory.path().join("run.db")).args(["--", "sh", "-c", &script]);
    for name in ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID"] {
        run.env_remove(name);
    }
    let output = run.current_dir(directory.path()).env("LD_LIBRARY_PATH", directory.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    checked(output);
    assert!(printed.contains("solve, part=1"), "{printed}");
    // Entries, and the seconds within and around the outer region.
    let mut own = [0.0; 3];
    for rank in ["0", "1"] {
        let measured = std::fs::read_to_string(directory.path().join(rank)).unwrap();
        own.iter_mut()
            .zip(measured.split_whitespace())
            .for_each(|(sum, of_rank)| *sum += of_rank.parse::<f64>().unwrap());
    }
    let [entries, within_s, around_s] = own;

    let json: Value = serde_json::from_str(&report(&store, &["--json"])).unwrap();
    let (step, solve) = (region_of(&json, "step"), region_of(&json, "solve, part=1"));
    assert_eq!((solve["entries"].as_f64(), &step["entries"]), (Some(entries), &4.into()));
    assert_eq!((&solve["processes"], &solve["threads"]), (&2.into(), &4.into()));
    let number = |value: &Value| value.as_f64().unwrap();
    // A hundredth is for the scale of the library's clock.
    assert!((0.99 * within_s..1.01 * around_s).contains(&number(&step["time_s"])), "{step} {own:?}");
    let inside = number(&step["self_s"]) + number(&solve["time_s"]);
    assert!((number(&step["time_s"]) - inside).abs() < 1e-3, "{step} {solve}");
    let ranks = &solve["ranks"];
    assert_eq!((&ranks["count"], &ranks["most"]), (&2.into(), &"rank 1".into()));
    assert!(number(&ranks["least_s"]) >= 0.6 && number(&ranks["most_s"]) >= 3.0, "{ranks}");
    assert!((number(&ranks["mean_s"]) * 2.0 - number(&solve["self_s"])).abs() < 1e-6, "{solve}");
    assert!((1.0..2.0).contains(&number(&solve["thread_imbalance"])), "{solve}");

    let shown = report(&store, &["--show", "regions"]);
    assert!(shown.contains("solve, part=1") && shown.contains("rank 1"), "{shown}");
    let page = directory.path().join("page.html");
    report(&store, &["--html", &page.display().to_string()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Regions of the program") && page.contains("solve, part=1"), "no table of regions");
}

fn region_of(json: &Value, name: &str) -> Value {
    let regions = json["regions"].as_array().unwrap();
    regions.iter().find(|region| region["region"] == name).unwrap_or_else(|| panic!("{regions:?}")).clone()
}

fn report(store: &str, more: &[&str]) -> String {
    checked(program("polymeter").args(["report", "--store", store]).args(more).output().unwrap())
}

/// More processes than a user may have connections: each has its sums recorded.
fn many_processes_of_a_user_are_recorded_in_her_own_job_only() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let compiled = compile(&fixture.env.path(""));
    let program = compiled.display();
    run_as(&fixture, OTHER_USER, &format!("PMI_RANK=99 {program} 1 1"));
    run_as(
        &fixture,
        OWNER,
        &format!("for rank in $(seq 40); do PMI_RANK=$rank {program} 1 100 & done; wait"),
    );
    assert_eq!(fixture.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
    stored::wait_for_end(&fixture.env, "x");
    let mut reader = fixture.env.reader();
    let job = stored::job(&mut reader, "x").unwrap();
    let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
    let mut ranks: Vec<u32> = Vec::new();
    for ((_, labels), series) in samples.iter().filter(|((metric, _), _)| metric == "region.entries") {
        let Some((others, "solve, part=1")) = labels.split_once(",region=") else { continue };
        assert_eq!(series.points.last().unwrap().1, 2.0, "{labels}");
        ranks.push(others.split_once(",rank=").unwrap().1.parse().unwrap());
    }
    ranks.sort_unstable();
    assert_eq!(ranks, (1..=40).collect::<Vec<_>>());
}

fn run_as(fixture: &Fixture, uid: u32, script: &str) {
    let mut shell = Command::new("setpriv");
    shell.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "sh", "-c", script]);
    shell.env("LD_LIBRARY_PATH", fixture.env.path("")).env("POLYMETER_JOB_ID", "x");
    checked(shell.env("POLYMETER_SOCKET", &fixture.agent.socket).output().unwrap());
}
