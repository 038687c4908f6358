//! `polymeter compare`: differences between runs of real programs.

use polymeter_e2e::{program, stored, tests};
use polymeter_store::reader::Reader;
use serde_json::Value;
use tempfile::TempDir;

tests![a_busy_run_differs_from_an_idle_one_and_groups_need_repetitions];

const BUSY: &str = "i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done";

struct Runs(TempDir);

impl Runs {
    fn store(&self) -> String {
        format!("sqlite:{}", self.0.path().join("run.db").display())
    }

    fn run(&self, script: &str) -> String {
        let mut command = program("polymeter");
        command.args(["run", "--every", "10ms", "-o"]).arg(self.0.path().join("run.db"));
        let output = command.args(["--", "sh", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut reader = Reader::open(&self.store().parse().unwrap()).unwrap();
        let jobs = stored::jobs(&mut reader);
        jobs.into_iter().max_by_key(|job| job.started_ns).unwrap().job_id
    }

    fn compare(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = program("polymeter");
        command.args(["compare", "--store", &self.store()]).args(arguments).output().unwrap()
    }

    fn row(&self, arguments: &[&str], metric: &str) -> (Value, Value) {
        let output = self.compare(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = comparison["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["metric"] == metric).unwrap_or_else(|| panic!("{rows:?}"));
        (row.clone(), comparison["basis"].clone())
    }
}

fn a_busy_run_differs_from_an_idle_one_and_groups_need_repetitions() {
    let runs = Runs(tempfile::tempdir().unwrap());
    let busy = [runs.run(BUSY), runs.run(BUSY)];
    let idle = [runs.run("sleep 0.5"), runs.run("sleep 0.5")];
    let mut reader = Reader::open(&runs.store().parse().unwrap()).unwrap();
    let job = stored::job(&mut reader, &busy[0]).unwrap();
    let series = reader.series(polymeter_store::reader::SeriesScope::Job(job.job_key)).unwrap();
    let metric = series.iter().find(|series| series.metric.ends_with("cpu.usage")).unwrap().metric.clone();

    let (row, basis) = runs.row(&["--json", &busy[0], &idle[0]], &metric);
    assert_eq!((&row["verdict"], basis), (&"lower".into(), "parts_of_jobs".into()), "{row}");
    // Other programs may take most of the CPUs.
    assert!(row["a"].as_f64().unwrap() > 3.0 * row["b"].as_f64().unwrap(), "{row}");
    let groups = [busy.join(","), idle.join(",")];
    let (row, basis) = runs.row(&["--json", "--group", &groups[0], &groups[1]], &metric);
    assert_eq!(basis, "jobs");
    assert!(row["difference"].as_f64().unwrap() < 0.0 && row["interval"].is_array(), "{row}");

    let text = runs.compare(&[&busy[0], &idle[0]]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("B is lower") && text.contains("note: single jobs"), "{text}");
    assert_eq!(runs.compare(&["--group", &busy[0], &idle[0]]).status.code(), Some(2));
    let twice = format!("{0},{0}", busy[0]);
    assert_eq!(runs.compare(&[&twice, &idle[0]]).status.code(), Some(2));
    assert_eq!(runs.compare(&[&busy[0], &busy[0]]).status.code(), Some(2), "on both sides");
    let unknown = runs.compare(&[&busy[0], &idle[0], "--metric", "node.load1"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no values of node.load1"));
    let unknown = runs.compare(&[&busy[0], "no-such-job"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("unknown job `no-such-job`"));
}
