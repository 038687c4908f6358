//! `polymeter bundle`: a bundle contains the stored data, and `polymeter bundle verify` reports modified
//! files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Output;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, RowAccessor};
use polymeter_e2e::{program, stored, tests, text};
use polymeter_store::reader::{Reader, SeriesScope};
use serde_json::Value;
use tempfile::TempDir;

tests![
    bundle_contains_the_stored_samples,
    version_is_printed_as_text_and_json,
    bundle_check_reports_modified_files,
    bundle_refuses_existing_targets_and_unknown_jobs,
    experiment_results_are_sealed_as_a_bundle,
];

struct Bundled {
    directory: TempDir,
    job_id: String,
}

impl Bundled {
    fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("run.db");
        let output = program("polymeter")
            .args(["run", "--every", "10ms", "-o"])
            .arg(&database)
            .args(["--", "sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done; sleep 0.3"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut reader = Reader::open(&format!("sqlite:{}", database.display()).parse().unwrap()).unwrap();
        let job_id = stored::jobs(&mut reader).pop().unwrap().job_id;
        let bundled = Self { directory, job_id };
        bundled.add_stacks();
        fs::write(bundled.path("described.toml"), "seed = 7\n").unwrap();
        let output = bundled.polymeter(&[
            "bundle",
            &bundled.job_id,
            "--store",
            &bundled.store(),
            "--out",
            bundled.bundle().to_str().unwrap(),
            "--description",
            bundled.path("described.toml").to_str().unwrap(),
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        bundled
    }

    /// Adds call stacks of functions with hostile names, in the first second of the job.
    fn add_stacks(&self) {
        let database = rusqlite::Connection::open(self.path("run.db")).unwrap();
        let rows = "
            CREATE TEMP TABLE run AS SELECT job_key, started + 500000000 AS at FROM job;
            INSERT INTO stack_function SELECT job_key, id, name, module FROM run, (
                SELECT 1 AS id, 'main' AS name, 'a.out' AS module UNION ALL SELECT 2, '</script><b>;' || char(10), 'a.out'
                UNION ALL SELECT 3, NULL, 'libm.so.6');
            INSERT INTO stack_node SELECT job_key, id, parent, id FROM run, (
                SELECT 1 AS id, NULL AS parent UNION ALL SELECT 2, 1 UNION ALL SELECT 3, 1);
            INSERT INTO stack_interval SELECT job_key, at, 9, job_node.node, 'stacks.cpu', 1000000, 10000, 100, 4, 0, 0, 20
            FROM run JOIN job_node USING (job_key);
            INSERT INTO stack_sample SELECT job_key, at, 9, 42, id, count FROM run, (
                SELECT 1 AS id, 10 AS count UNION ALL SELECT 2, 70 UNION ALL SELECT 3, 20);";
        database.execute_batch(rows).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn bundle(&self) -> PathBuf {
        self.path("bundle")
    }

    fn store(&self) -> String {
        format!("sqlite:{}", self.path("run.db").display())
    }

    fn reader(&self) -> Reader {
        Reader::open(&self.store().parse().unwrap()).unwrap()
    }

    fn polymeter(&self, arguments: &[&str]) -> Output {
        program("polymeter").current_dir(self.directory.path()).args(arguments).output().unwrap()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.bundle().join(name)).unwrap()).unwrap()
    }

    fn verify(&self) -> Result<String, String> {
        let output = self.polymeter(&["bundle", "verify", "bundle"]);
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

/// Time in microseconds since the epoch, job, node, metric, labels, and the bits of the value, so that NaN
/// equals itself.
type Sample = (i64, Option<String>, String, String, String, u64);

fn samples_of_file(path: &Path) -> Vec<Sample> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(|row| {
        let row = row.unwrap();
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let [Field::TimestampMicros(time_us), job, node, metric, _, labels, Field::Double(value)] =
            fields[..7]
        else {
            panic!("a row has other columns: {row}")
        };
        let job = (*job != Field::Null).then(|| word_of(job));
        (*time_us, job, word_of(node), word_of(metric), word_of(labels), value.to_bits())
    });
    rows.collect()
}

fn word_of(field: &Field) -> String {
    if let Field::Str(word) = field { word.clone() } else { panic!("{field:?} is no text") }
}

fn samples_of_store(reader: &mut Reader) -> Vec<Sample> {
    let job = stored::jobs(reader).pop().unwrap();
    let (from_ns, to_ns) = (job.started_ns, job.ended_ns.unwrap());
    let mut samples = Vec::new();
    let wanted =
        [(SeriesScope::Job(job.job_key), Some(job.job_id)), (SeriesScope::Node(&job.nodes[0]), None)];
    for (of, job_id) in wanted {
        for series in reader.series(of).unwrap() {
            let labels = Value::from_iter(series.labels.iter()).to_string();
            for (time_ns, value) in reader.points(series.series_id, i64::MIN..i64::MAX).unwrap() {
                if job_id.is_some() || (from_ns..=to_ns).contains(&time_ns) {
                    let (node, metric) = (series.node.clone(), series.metric.clone());
                    samples.push((
                        time_ns / 1000,
                        job_id.clone(),
                        node,
                        metric,
                        labels.clone(),
                        value.to_bits(),
                    ));
                }
            }
        }
    }
    samples
}

fn bundle_contains_the_stored_samples() {
    let bundled = Bundled::make();
    let mut reader = bundled.reader();
    let (mut read, mut stored) =
        (samples_of_file(&bundled.bundle().join("samples.parquet")), samples_of_store(&mut reader));
    read.sort_unstable();
    stored.sort_unstable();
    assert!(stored.len() > 50, "{} samples", stored.len());
    assert!(read.iter().all(|(.., labels, _)| labels.starts_with('{')));
    assert_eq!(read, stored);
    assert_eq!(bundled.json("job.json")["samples"], stored.len());
    assert_eq!(bundled.json("job.json")["job_id"], bundled.job_id.as_str());

    let job = stored::jobs(&mut reader).pop().unwrap();
    let rows = |name: &str| fs::read_to_string(bundled.bundle().join(name)).unwrap().lines().count() - 1;
    assert_eq!(rows("series.csv"), reader.series(SeriesScope::Job(job.job_key)).unwrap().len());
    assert_eq!(rows("plan_changes.csv"), reader.plan_changes(job.job_key).unwrap().len());
    assert_eq!(rows("ledger.csv"), reader.ledger(job.job_key).unwrap().len());
    let due = reader.ledger(job.job_key).unwrap().iter().map(|row| row.tally.due).sum::<u64>();
    assert!(due > 0 && bundled.json("report.json")["ledger"]["due"] == due);

    assert_stacks(&bundled);

    let provenance = bundled.json("provenance.json");
    assert_eq!(provenance["seed"], 7);
    assert_eq!(provenance["program"], version());
    assert!(bundled.json("machine.json")["kernel"].is_string());
    let plot = fs::read_to_string(bundled.bundle().join("plot.svg")).unwrap();
    assert!(plot.contains(">cpu.usage<") && plot.ends_with("</svg>\n"), "{plot}");
    let readme = fs::read_to_string(bundled.bundle().join("README.md")).unwrap();
    for change in reader.plan_changes(job.job_key).unwrap() {
        // `polymeter run` samples the metrics of the agent every second.
        let period = if change.metric.starts_with("agent.") { "1s" } else { "10ms" };
        assert!(readme.contains(&format!("-m {}={period}", change.metric)), "{readme}");
    }
}

fn assert_stacks(bundled: &Bundled) {
    let folded = "main 100000\nmain;</script><b>:\\u{a} 700000\nmain;[libm.so.6] 200000\n";
    assert_eq!(text(&flame_output(bundled, &["--format", "collapsed"])), folded);
    assert_eq!(fs::read_to_string(bundled.bundle().join("stacks.folded")).unwrap(), folded);
    let tree = text(&flame_output(bundled, &[]));
    assert!(tree.contains("1 s in 100 samples of 10 ms") && tree.contains("4 samples lost"), "{tree}");
    assert!(tree.contains("  70.0 %  70.0 %    </script><b>;\\u{a} (a.out)\n"), "{tree}");
    flame_output(bundled, &["-o", "flame.html"]);
    let page = fs::read_to_string(bundled.path("flame.html")).unwrap();
    assert!(page.matches("</script").count() == 2 && page.contains("default-src 'none'"), "names are text");
    assert_eq!(&flame_output(bundled, &["--format", "pprof", "-o", "-"])[..2], [0x1f, 0x8b]);
    let firefox: Value = serde_json::from_slice(&flame_output(bundled, &["--format", "firefox"])).unwrap();
    assert_eq!(firefox["threads"][0]["samples"]["weight"], serde_json::json!([100.0, 700.0, 200.0]));
    let of_report = &bundled.json("report.json")["call_stacks"][0];
    assert_eq!((&of_report["samples"], &of_report["without_symbol_percent"]), (&100.into(), &20.0.into()));
    assert_eq!(serde_json::from_slice::<Value>(&flame_output(bundled, &["--json"])).unwrap(), *of_report);
    let against = text(&flame_output(bundled, &["--against", &bundled.job_id, "--process", "42"]));
    assert!(against.contains("+0.0 %"), "{against}");
    assert_exported_stacks(bundled);
    assert_job_may_be_omitted(bundled, &tree);
    for (arguments, status, message) in [
        (&["--process", "43"][..], 1, "has no call stacks of stacks.cpu in this part"),
        (&["--from", "+1h"], 1, "has no call stacks"),
        (&["--metric", "stacks.wait"], 1, "it has samples of stacks.cpu"),
        (&["--node", "nowhere"], 1, "did not run on nowhere"),
        (&["--phase", "solve"], 1, "has no phase solve"),
        (&["--from", "+2s", "--to", "+1s"], 2, "--to is not after --from"),
        (&["--against", "x", "--format", "pprof"], 2, "only text and html"),
        (&["-o", "flame.html"], 1, "the file exists"),
    ] {
        let output = flame(bundled, arguments);
        let stderr = text(&output.stderr);
        assert!(output.status.code() == Some(status) && stderr.contains(message), "{arguments:?}: {stderr}");
    }
}

/// The only job of a store, several runs of it, and several jobs.
fn assert_job_may_be_omitted(bundled: &Bundled, tree: &str) {
    fs::copy(bundled.path("run.db"), bundled.path("jobs.db")).unwrap();
    let store = format!("sqlite:{}", bundled.path("jobs.db").display());
    let flame = |of_scheduler: Option<&str>| {
        let mut command = program("polymeter");
        for name in ["SLURM_JOB_ID", "OAR_JOB_ID"] {
            command.env_remove(name);
        }
        command.envs(of_scheduler.map(|id| ("SLURM_JOB_ID", id)));
        command.args(["flame", "--store", &store]).output().unwrap()
    };
    let copy_job = |changes: &str| {
        let sql = format!(
            "CREATE TEMP TABLE copy AS SELECT * FROM job ORDER BY job_key LIMIT 1; UPDATE copy SET {changes};
             INSERT INTO job SELECT * FROM copy;"
        );
        rusqlite::Connection::open(bundled.path("jobs.db")).unwrap().execute_batch(&sql).unwrap();
    };
    assert_eq!(text(&flame(None).stdout), tree);
    copy_job("job_key = 101, started = started - 1000000000");
    let of_last_run = flame(None);
    assert_eq!(text(&of_last_run.stdout), tree);
    assert!(text(&of_last_run.stderr).contains("ran 2 times, and this is run 2"), "{of_last_run:?}");
    copy_job("job_key = 102, job_id = 'other', started = started + 1000000000");
    let several = flame(None);
    let message = text(&several.stderr);
    assert_eq!(several.status.code(), Some(1), "{message}");
    assert!(message.contains("the store contains several; name one, such as "), "{message}");
    assert!(message.contains(&bundled.job_id) && message.contains("other"), "{message}");
    assert_eq!(text(&flame(Some(&bundled.job_id)).stdout), tree);
}

fn flame_output(bundled: &Bundled, more: &[&str]) -> Vec<u8> {
    let output = flame(bundled, more);
    assert!(output.status.success(), "{more:?}: {}", text(&output.stderr));
    output.stdout
}

fn flame(bundled: &Bundled, more: &[&str]) -> Output {
    let store = bundled.store();
    bundled.polymeter(&[&["flame", &bundled.job_id, "--store", &store], more].concat())
}

fn version() -> Value {
    let output = program("polymeter").args(["--version", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn version_is_printed_as_text_and_json() {
    let output = program("polymeter").arg("--version").output().unwrap();
    let version = version();
    assert_eq!(text(&output.stdout), format!("polymeter {}\n", version["version"].as_str().unwrap()));
    assert!(version["protocol"].is_u64() && version["schema"].is_u64() && version["curve"].is_boolean());
    assert_eq!(program("polymeter").arg("--json").output().unwrap().status.code(), Some(2));
}

fn bundle_check_reports_modified_files() {
    let bundled = Bundled::make();
    assert!(bundled.verify().unwrap().starts_with("unchanged: "));

    let samples = bundled.bundle().join("samples.parquet");
    let whole = fs::read(&samples).unwrap();
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&samples, bytes).unwrap();
    fs::remove_file(bundled.bundle().join("ledger.csv")).unwrap();
    fs::create_dir(bundled.bundle().join("plots")).unwrap();
    fs::write(bundled.bundle().join("plots/new.svg"), "").unwrap();
    let message = bundled.verify().unwrap_err();
    for fault in
        ["samples.parquet was changed", "ledger.csv is missing", "plots/new.svg is not in the manifest"]
    {
        assert!(message.contains(fault), "{message}");
    }
    assert_eq!(message.lines().count(), 3, "{message}");

    std::os::unix::fs::symlink("/etc/passwd", bundled.bundle().join("ledger.csv")).unwrap();
    assert!(bundled.verify().unwrap_err().contains("neither a regular file nor a directory"));
    fs::write(bundled.bundle().join("MANIFEST.sha256"), "../../etc/passwd\n").unwrap();
    assert!(bundled.verify().unwrap_err().contains("MANIFEST.sha256:1:"));
    fs::remove_file(bundled.bundle().join("MANIFEST.sha256")).unwrap();
    assert!(bundled.verify().unwrap_err().contains("MANIFEST.sha256"));
    fs::create_dir(bundled.bundle().join("MANIFEST.sha256")).unwrap();
    assert!(bundled.verify().unwrap_err().contains("MANIFEST.sha256: not a regular file"));
}

fn bundle_refuses_existing_targets_and_unknown_jobs() {
    let bundled = Bundled::make();
    let store = bundled.store();
    let again = bundled.polymeter(&["bundle", &bundled.job_id, "--store", &store, "--out", "bundle"]);
    assert!(!again.status.success() && text(&again.stderr).contains("is not empty"));
    let other = bundled.polymeter(&["bundle", "no-such-job", "--store", &store]);
    let stderr = text(&other.stderr);
    assert!(!other.status.success() && stderr.contains("unknown job"), "{stderr}");
    assert!(!stderr.contains(&bundled.job_id), "the ids of other jobs are not shown: {stderr}");
    assert!(!bundled.path("bundle-no-such-job").exists());
    assert!(bundled.verify().is_ok());
}

fn experiment_results_are_sealed_as_a_bundle() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("runs.csv"), "wall_s\n1.5\n").unwrap();
    fs::write(directory.path().join("description.toml"), "seed = 11\n").unwrap();
    let seal = || program("polymeter").args(["bundle", "seal"]).arg(directory.path()).output().unwrap();
    let verify = || program("polymeter").args(["bundle", "verify"]).arg(directory.path()).output().unwrap();
    assert!(!verify().status.success());
    assert!(seal().status.success());
    assert!(verify().status.success());
    let manifest = fs::read_to_string(directory.path().join("MANIFEST.sha256")).unwrap();
    for file in ["runs.csv", "description.toml", "provenance.json", "machine.json", "README.md"] {
        assert!(manifest.contains(&format!("  {file}\n")), "{manifest}");
    }
    let provenance = fs::read_to_string(directory.path().join("provenance.json")).unwrap();
    assert!(provenance.contains("\"seed\": 11"), "{provenance}");
    // An interrupted experiment is continued and sealed again.
    fs::write(directory.path().join("runs.csv"), "wall_s\n1.5\n1.6\n").unwrap();
    assert!(!verify().status.success());
    assert!(seal().status.success());
    assert!(verify().status.success());
}

/// Checks that exports in each format have a row for each stack.
fn assert_exported_stacks(bundled: &Bundled) {
    let store = bundled.store();
    let expected = [
        ("main".to_owned(), 10.0),
        ("main;</script><b>:\\u{a}".to_owned(), 70.0),
        ("main;[libm.so.6]".to_owned(), 20.0),
    ];
    let (status, lines, stderr) = export_stacks(bundled, &store, &["--format", "jsonl", "-o", "-"]);
    assert_eq!(status, Some(0), "{stderr}");
    let rows = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows = rows.map(|row| stack_row(&row["labels"], row["value"].as_f64().unwrap())).collect();
    assert_eq!(sorted(rows), expected);
    let (_, csv, _) = export_stacks(bundled, &store, &["--format", "csv", "-o", "-"]);
    assert_eq!(csv.lines().count(), 4, "{csv}");
    assert!(csv.contains(",stacks.cpu,count,") && csv.contains(r#"main;[libm.so.6]"#), "{csv}");

    let (_, told, _) = export_stacks(bundled, &store, &["-o", "stacks.parquet"]);
    assert!(told.starts_with("3 rows of job "), "{told}");
    let file = fs::File::open(bundled.path("stacks.parquet")).unwrap();
    let mut rows = Vec::new();
    for row in SerializedFileReader::new(file).unwrap().get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let labels = serde_json::from_str(row.get_string(5).unwrap()).unwrap();
        rows.push(stack_row(&labels, row.get_double(6).unwrap()));
    }
    assert_eq!(sorted(rows), expected);
    let copy = format!("sqlite:{}", bundled.path("copy.db").display());
    let imported = bundled.polymeter(&["store", "--store", &copy, "import", "stacks.parquet"]);
    assert!(!imported.status.success(), "call stacks are no series");
    let (status, _, stderr) =
        export_stacks(bundled, &store, &["--metric", "stacks.wait", "-o", "-", "--format", "csv"]);
    assert!(status == Some(1) && stderr.contains("has none"), "{stderr}");
}

fn sorted(mut rows: Vec<(String, f64)>) -> Vec<(String, f64)> {
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    rows
}

fn stack_row(labels: &Value, value: f64) -> (String, f64) {
    assert_eq!((&labels["process"], &labels["period_us"]), (&"42".into(), &"10000".into()));
    (labels["stack"].as_str().unwrap().to_owned(), value)
}

fn export_stacks(bundled: &Bundled, store: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let output =
        bundled.polymeter(&[&["export", &bundled.job_id, "--store", store, "--stacks"], more].concat());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}
