//! The example programs, run on a store and a job of real programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polymeter_e2e::fixture::{Fixture, NEEDS, OWNER};
use polymeter_e2e::{program, require, skip, stored, tests, text, wait_until, workload};
use polymeter_store::reader::SeriesScope;
use serde_json::Value;
use tempfile::TempDir;

tests![reader_prints_jobs_series_and_rates, notebook_cells_run, job_script_marks_pushes_and_leases];

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples").join(name)
}

fn require_python() {
    if Command::new("python3").arg("--version").output().is_err() {
        skip("python3", "python3 is not installed");
    }
}

/// Creates a store with one job that used the CPU for half a second.
fn store() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("run.db");
    let run = program("polymeter")
        .args(["run", "--every", "20ms", "-o"])
        .arg(&store)
        .arg("--")
        .arg(workload::program())
        .arg("burn 500")
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    (directory, store)
}

fn python(arguments: &[&str], store: &Path) -> Output {
    let mut command = Command::new("python3");
    command.args(arguments).env("PYTHONDONTWRITEBYTECODE", "1").env("POLYMETER_STORE", store);
    command.current_dir(example("")).output().unwrap()
}

fn reader_prints_jobs_series_and_rates() {
    require_python();
    let (_directory, store) = store();
    let store_path = store.to_str().unwrap();
    let read = |more: &[&str]| {
        let output = python(&[&["read_store.py", store_path], more].concat(), &store);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let jobs = read(&[]);
    let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
    let (id, _) = job.split_once(',').unwrap();
    let series = read(&[id]);
    let cpu: Vec<_> = series
        .iter()
        .filter(|line| line.contains(",process.cpu.usage,") || line.contains(",cpu.usage,"))
        .collect();
    assert_eq!(cpu.len(), 1, "{series:?}");
    let metric = cpu[0].split(',').nth(1).unwrap();
    assert!(read(&[id, metric]).len() > 5);
    let rates = read(&[id, metric, "--rate"]);
    assert!(!rates.is_empty());
    for line in rates {
        let rate: f64 = line.rsplit(',').next().unwrap().parse().unwrap();
        assert!((0.0..2e9).contains(&rate), "one thread uses at most one core: {line}");
    }
    let refused = python(&["read_store.py", store_path, "no-such-job"], &store);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), String::new()));
}

fn notebook_cells_run() {
    require_python();
    let (_directory, store) = store();
    let notebook: Value =
        serde_json::from_str(&fs::read_to_string(example("analysis.ipynb")).unwrap()).unwrap();
    let cells = notebook["cells"].as_array().unwrap().iter().filter(|cell| cell["cell_type"] == "code");
    let code: Vec<String> = cells
        .map(|cell| cell["source"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect())
        .collect();
    assert!(code.len() > 3);
    // Without a display, if matplotlib is installed at all.
    let program = format!("import os; os.environ['MPLBACKEND'] = 'Agg'\n{}", code.join("\n\n"));
    let output = python(&["-c", &program], &store);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("1 jobs; this notebook shows run-"), "{printed}");
    assert!(printed.lines().any(|line| line.starts_with("stored ") && !line.ends_with(" 0")), "{printed}");
}

fn job_script_marks_pushes_and_leases() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let bin = fixture.env.path("bin");
    fs::create_dir(&bin).unwrap();
    // The script calls `polymeter` without options, as in a job that its node's agent tracks.
    let wrapper = format!(
        "#!/bin/sh\nverb=$1; shift\nexec '{}' \"$verb\" --job x --socket '{}' \"$@\"\n",
        fixture.command.display(),
        fixture.agent.socket.display()
    );
    fs::write(bin.join("polymeter"), wrapper).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    Command::new("chmod").args(["-R", "a+rx"]).arg(&bin).status().unwrap();
    let script = fs::read_to_string(example("job.sh")).unwrap();
    let uid = OWNER.to_string();
    let output = Command::new("setpriv")
        .args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "sh", "-c", &script])
        .env("PATH", path)
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "every call of polymeter succeeds");
    assert!(text(&output.stdout).contains("round 3: "), "{}", text(&output.stdout));
    wait_until("the marks and pushed values are stored", || {
        let mut reader = fixture.env.reader();
        let Some(job) = stored::job(&mut reader, "x") else { return false };
        let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
        let pushed = samples.get(&("user.checksum_round".to_owned(), "unit=rounds".to_owned()));
        pushed.is_some_and(|series| series.points.len() == 3) && reader.marks(job.job_key).unwrap().len() == 4
    });
    fixture.end();
}
