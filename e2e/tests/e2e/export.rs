//! `polymeter export`: the files contain the stored samples, and appear only when they are complete.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use polymeter_e2e::{Need, data_frames, program, require, stored, tests, text};
use polymeter_store::reader::{Reader, SeriesScope};
use serde_json::Value;
use tempfile::TempDir;

tests![
    exports_have_all_samples_in_every_format,
    an_export_selects_metrics_and_nodes,
    an_export_leaves_other_files_alone,
    data_frame_libraries_read_an_export,
    derived_metrics_are_exported_with_their_unit,
    an_export_is_imported_into_another_store,
    an_interrupted_import_continues,
    a_sample_of_a_node_is_imported_once,
    an_import_refuses_other_files_and_known_jobs,
];

struct Stored {
    directory: TempDir,
    job_id: String,
}

impl Stored {
    fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("run.db");
        let output = program("polymeter")
            .args(["run", "--every", "10ms", "-m", "agent.*=50ms", "-o"])
            .arg(&database)
            .args(["--", "sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done; sleep 0.3"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut stored = Self { directory, job_id: String::new() };
        stored.job_id = stored::jobs(&mut stored.reader()).pop().unwrap().job_id;
        stored
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn reader(&self) -> Reader {
        Reader::open(&self.store().parse().unwrap()).unwrap()
    }

    fn store(&self) -> String {
        format!("sqlite:{}", self.path("run.db").display())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program("polymeter");
        command.args(["export", &self.job_id, "--store", &self.store()]).args(arguments);
        command.current_dir(self.directory.path());
        command
    }

    fn export(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Metric and bits of the value of each sample of the job, sorted.
    fn samples(&self) -> Vec<(String, u64)> {
        let mut reader = self.reader();
        let job = stored::jobs(&mut reader).pop().unwrap();
        let mut samples = Vec::new();
        for series in reader.series(SeriesScope::Job(job.job_key)).unwrap() {
            let points = reader.points(series.series_id, i64::MIN..i64::MAX).unwrap();
            samples.extend(points.iter().map(|(_, value)| (series.metric.clone(), value.to_bits())));
        }
        samples.sort_unstable();
        samples
    }

    /// Adds counters of the job with values every 50 ms from its start.
    fn add_counters<const N: usize>(&self, counters: &[(&str, [f64; N])]) {
        let mut rows = "INSERT INTO series_shape VALUES (1000, 'counters');
             INSERT INTO series_block SELECT next_id, 1000, job_key, node, job_id, NULL
             FROM series_counter, job_node JOIN job USING (job_key);"
            .to_owned();
        for (position, (metric, values)) in counters.iter().enumerate() {
            rows += &format!(
                "INSERT OR IGNORE INTO metric VALUES ('{metric}', 'count', 'counter');
                 INSERT INTO series_shape_member VALUES (1000, {position}, '{metric}', '{{}}', NULL);
                 UPDATE series_counter SET next_id = next_id + 1;"
            );
            for (number, value) in values.iter().enumerate() {
                rows += &format!(
                    "INSERT INTO samples (time, series_id, value) SELECT started + {number} * 50000000, series_id, {value}
                     FROM series JOIN job USING (job_key) WHERE metric = '{metric}';"
                );
            }
        }
        rusqlite::Connection::open(self.path("run.db")).unwrap().execute_batch(&rows).unwrap();
    }

    fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with("run.db"));
        names.sort_unstable();
        names
    }
}

fn exports_have_all_samples_in_every_format() {
    let stored = Stored::make();
    let expected = stored.samples();
    assert!(expected.len() > 50, "{} samples", expected.len());

    let output = stored.export(&["--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let exported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&exported["format"], &exported["samples"]), (&"parquet".into(), &expected.len().into()));
    let file = stored.path(&format!("job-{}.parquet", stored.job_id));
    let mut found = samples_of_parquet(&file);
    found.sort_unstable();
    assert_eq!(found, expected);

    let output = stored.export(&["--output", "x.jsonl"]);
    assert!(text(&output.stdout).starts_with(&format!("{} samples of job ", expected.len())));
    let mut found: Vec<_> =
        fs::read_to_string(stored.path("x.jsonl")).unwrap().lines().map(of_json).collect();
    found.sort_unstable();
    assert_eq!(found, expected);

    let output = stored.export(&["--format", "csv", "-o", "-"]);
    let csv = text(&output.stdout);
    let mut found: Vec<_> = csv.lines().skip(1).map(of_csv).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(stored.entries(), [format!("job-{}.parquet", stored.job_id), "x.jsonl".to_owned()]);
}

fn samples_of_parquet(path: &Path) -> Vec<(String, u64)> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(|row| {
        let row = row.unwrap();
        let field = |name: &str| {
            row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field.clone()).unwrap()
        };
        let (Field::Str(metric), Field::Double(value)) = (field("metric"), field("value")) else {
            panic!("a row has other columns: {row}")
        };
        (metric, value.to_bits())
    });
    rows.collect()
}

fn of_json(line: &str) -> (String, u64) {
    let sample: Value = serde_json::from_str(line).unwrap();
    (sample["metric"].as_str().unwrap().to_owned(), sample["value"].as_f64().unwrap().to_bits())
}

/// A line without the columns of windows, which are empty.
fn of_sample(line: &str) -> &str {
    line.strip_suffix(",,,,").unwrap_or_else(|| panic!("a window: {line}"))
}

fn of_csv(line: &str) -> (String, u64) {
    let value: f64 = of_sample(line).rsplit(',').next().unwrap().parse().unwrap();
    (line.split(',').nth(3).unwrap().to_owned(), value.to_bits())
}

fn an_export_selects_metrics_and_nodes() {
    let stored = Stored::make();
    let expected = stored
        .samples()
        .iter()
        .filter(|(metric, _)| metric.starts_with("cpu.") || metric.starts_with("process.cpu."))
        .count();
    assert_eq!(exported_lines(&stored, &["--metric", "cpu.*", "--metric", "process.cpu.*"]), expected);
    let node = stored::jobs(&mut stored.reader()).pop().unwrap().nodes.pop().unwrap();
    assert_eq!(exported_lines(&stored, &["--node", &node]), stored.samples().len());
    assert!(exported_lines(&stored, &["--with-nodes"]) > stored.samples().len());
    let metric = stored.samples().first().unwrap().0.clone();
    for (arguments, words) in [
        (vec!["--node", "elsewhere"], "cannot export elsewhere"),
        (vec!["--metric", "no.such.*"], "cannot export no.such.*"),
        (vec!["--metric", &format!("{metric}x")], &*format!("did you mean `{metric}`?")),
        (vec!["--metric", &metric, "--metric", "no.such"], "cannot export no.such"),
        (vec!["-o", "job.xlsx"], "no format has the extension `xlsx`"),
    ] {
        let refused = stored.export(&arguments);
        let stderr = text(&refused.stderr);
        assert!(!refused.status.success() && stderr.contains(words), "{arguments:?}: {stderr}");
    }
    assert_eq!(stored.entries(), [""; 0], "no file is left");
}

fn exported_lines(stored: &Stored, arguments: &[&str]) -> usize {
    let mut all = vec!["--format", "jsonl", "-o", "-"];
    all.extend(arguments);
    let output = stored.export(&all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().count()
}

fn an_export_leaves_other_files_alone() {
    let stored = Stored::make();
    fs::write(stored.path("mine.csv"), "mine").unwrap();
    let refused = stored.export(&["-o", "mine.csv"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--force"), "{}", text(&refused.stderr));
    assert_eq!(fs::read_to_string(stored.path("mine.csv")).unwrap(), "mine");
    assert!(stored.export(&["-o", "mine.csv", "--force"]).status.success());
    fs::write(stored.path("plain"), "").unwrap();
    let mode = |name: &str| fs::metadata(stored.path(name)).unwrap().permissions().mode();
    assert_eq!(mode("mine.csv"), mode("plain"), "the user's mask applies");
    fs::remove_file(stored.path("plain")).unwrap();
    assert!(fs::read_to_string(stored.path("mine.csv")).unwrap().starts_with("time,"));

    let refused = stored.export(&["-o", "no/such/directory.csv"]);
    assert!(text(&refused.stderr).contains("cannot write no/such/directory.csv"));
    let full = stored.command(&["--format", "csv", "-o", "-"]).stdout(full_device()).output().unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(text(&full.stderr).contains("No space left"), "{}", text(&full.stderr));

    // A reader that goes away is no failure.
    let mut child = stored.command(&["--format", "csv", "-o", "-"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    let mut unknown = program("polymeter");
    unknown.args(["export", "no-such-job", "--store", &stored.store()]);
    assert!(!unknown.output().unwrap().status.success());
    assert_eq!(stored.entries(), ["mine.csv"], "nothing incomplete is left");
}

fn full_device() -> fs::File {
    fs::OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn data_frame_libraries_read_an_export() {
    require(&[Need::DataFrames]);
    let stored = Stored::make();
    assert!(stored.export(&["-o", "job.parquet"]).status.success());
    let samples = stored.samples();
    let metric = samples.iter().map(|(name, _)| name.as_str()).find(|name| name.ends_with("cpu.usage"));
    let metric = metric.unwrap();
    let count = samples.iter().filter(|(name, _)| name == metric).count().to_string();
    for library in ["pandas", "polars", "duckdb"] {
        let example =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/examples/export_{library}.py"));
        let output = Command::new(data_frames::python())
            .arg(example)
            .arg(stored.path("job.parquet"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{library}: {}", text(&output.stderr));
        let printed = text(&output.stdout);
        assert!(
            printed.lines().any(|line| line.contains(metric) && line.contains(&count)),
            "{library}: {printed}"
        );
    }
}

/// The name of a derived metric, its unit, labels and values by time in the lines of a CSV file.
fn derived_of_csv(csv: &str) -> Vec<(String, String, String, String, f64)> {
    let mut rows = Vec::new();
    for line in csv.lines().skip(1).filter(|line| line.contains("derived")) {
        let fields: Vec<&str> = line.splitn(6, ',').collect();
        let (labels, value) = of_sample(fields[5]).rsplit_once(',').unwrap();
        let labels = labels.trim_matches('"').replace("\"\"", "\"");
        let word = |field: usize| fields[field].to_owned();
        rows.push((word(0), word(3), word(4), labels, value.parse().unwrap()));
    }
    rows
}

fn derived_metrics_are_exported_with_their_unit() {
    let stored = Stored::make();
    let unknown = stored.export(&["--derived", "-o", "none.csv"]);
    assert!(text(&unknown.stderr).contains("no derived metric is known"), "{}", text(&unknown.stderr));
    let cycles = [0.0, 100.0, 150.0, 400.0, 410.0];
    let instructions = [7.0, 57.0, 207.0, 207.0, 237.0];
    stored.add_counters(&[("perf.cpu_cycles", cycles), ("perf.instructions", instructions)]);
    let refused = stored.export(&["--metric", "perf.ipc", "-o", "refused.csv"]);
    let message = text(&refused.stderr);
    assert!(message.contains("add --derived, or export perf.cpu_cycles, perf.instructions"), "{message}");

    let only = stored.export(&["--derived", "--metric", "perf.ipc", "-o", "ipc.csv"]);
    assert!(only.status.success(), "{}", text(&only.stderr));
    let csv = fs::read_to_string(stored.path("ipc.csv")).unwrap();
    let found = derived_of_csv(&csv);
    let expected: Vec<f64> = cycles
        .windows(2)
        .zip(instructions.windows(2))
        .map(|(cycles, instructions)| (instructions[1] - instructions[0]) / (cycles[1] - cycles[0]))
        .collect();
    assert_eq!(csv.lines().count(), 1 + expected.len(), "{csv}");
    for ((_, metric, unit, labels, value), expected) in found.iter().zip(&expected) {
        assert_eq!(
            (metric.as_str(), unit.as_str(), labels.as_str()),
            ("perf.ipc", "instructions/cycle", "{\"derived\":\"true\"}")
        );
        assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
    }
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "{found:?}");

    let with_all = json_of(stored.command(&["--derived", "--json", "-o", "all.parquet"]));
    let without = json_of(stored.command(&["--json", "-o", "samples.parquet"]));
    let more = with_all["samples"].as_u64().unwrap() - without["samples"].as_u64().unwrap();
    assert_eq!(more, expected.len() as u64);
    let mut of_parquet = samples_of_parquet(&stored.path("all.parquet"));
    of_parquet.retain(|(metric, _)| metric == "perf.ipc");
    let of_csv: Vec<u64> = found.iter().map(|(.., value)| value.to_bits()).collect();
    assert_eq!(of_parquet.into_iter().map(|(_, bits)| bits).collect::<Vec<_>>(), of_csv);
    // An import has what was sampled.
    json_of(stored.import(&["all.parquet"], "new.db"));
    assert_eq!(stored.series("new.db").iter().filter(|series| series.contains("perf.ipc")).count(), 0);
    assert_eq!(Some(stored.number("new.db", "SELECT count(*) FROM samples")), without["samples"].as_i64());
}

/// Members of a report that follow from the plan and from the ledger.
const NOT_EXPORTED: [&str; 7] =
    ["findings", "ledger", "measuring", "notes", "plan_changes", "sources", "verdict"];

fn json_of(mut command: Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

impl Stored {
    fn import(&self, files: &[&str], database: &str) -> Command {
        let mut command = program("polymeter");
        command.args(["store", "import", "--json", "--store", &format!("sqlite:{database}")]).args(files);
        command.current_dir(self.directory.path());
        command
    }

    /// Metric, labels, times and values of each series in a database.
    fn series(&self, database: &str) -> Vec<String> {
        let store = format!("sqlite:{}", self.path(database).display());
        let mut reader = Reader::open(&store.parse().unwrap()).unwrap();
        let job = stored::jobs(&mut reader).pop().unwrap();
        let scopes = job.nodes.iter().map(|node| SeriesScope::Node(node));
        let mut all = Vec::new();
        for scope in scopes.chain([SeriesScope::Job(job.job_key)]) {
            for series in reader.series(scope).unwrap() {
                // An export has no samples of a node from before or after the job.
                let of_job = matches!(scope, SeriesScope::Job(_));
                let of_node_ns = job.started_ns..job.ended_ns.unwrap_or(i64::MAX);
                let span_ns = if of_job { i64::MIN..i64::MAX } else { of_node_ns };
                let points = reader.points(series.series_id, span_ns).unwrap();
                let points: Vec<_> = points.iter().map(|(time, value)| (time, value.to_bits())).collect();
                let labels = series.labels;
                all.push(format!(
                    "{of_job} {} {} {} {labels} {points:?}",
                    series.metric, series.kind, series.unit
                ));
            }
        }
        all.sort_unstable();
        all
    }

    /// What the report of the job in a database tells of its samples.
    fn report(&self, database: &str) -> Value {
        let mut command = program("polymeter");
        command.args(["report", &self.job_id, "--json", "--store", &format!("sqlite:{database}")]);
        command.current_dir(self.directory.path());
        let mut report = json_of(command);
        // The files have neither changes of plan, nor counts of samples that were not stored.
        let members = report.as_object_mut().unwrap();
        members.retain(|key, _| !NOT_EXPORTED.contains(&key.as_str()));
        for series in members["series"].as_array_mut().unwrap() {
            series.as_object_mut().unwrap().retain(|key, _| !["period", "periods"].contains(&key.as_str()));
        }
        report
    }

    fn number(&self, database: &str, sql: &str) -> i64 {
        let connection = rusqlite::Connection::open(self.path(database)).unwrap();
        connection.query_row(sql, (), |row| row.get(0)).unwrap()
    }
}

fn an_export_is_imported_into_another_store() {
    let stored = Stored::make();
    let exported = json_of(stored.command(&["--with-nodes", "--json", "-o", "job.parquet"]));
    let imported = json_of(stored.import(&["job.parquet"], "new.db"));
    let expected = serde_json::json!([{
        "file": "job.parquet", "job": stored.job_id, "samples": exported["samples"], "stored": exported["samples"],
    }]);
    assert_eq!(imported, expected);
    assert_eq!(stored.series("new.db"), stored.series("run.db"));
    let report = stored.report("new.db");
    assert!(report["run"]["command"].as_array().is_some_and(|command| command.len() > 1), "{report}");
    assert_eq!(report, stored.report("run.db"));
    let balance =
        "SELECT count(*) FROM ledger_balance WHERE due <> stored OR taken <> stored OR unknown <> 0";
    assert_eq!(stored.number("new.db", balance), 0);
    let counted = "SELECT (SELECT sum(stored) FROM ledger) = (SELECT count(*) FROM samples)";
    assert_eq!(stored.number("new.db", counted), 1);
    let open = "SELECT (SELECT count(*) FROM job WHERE ended IS NULL) + (SELECT count(*) FROM session WHERE ended IS NULL)";
    assert_eq!(stored.number("new.db", open), 0);
    // A second time it adds nothing.
    let again = json_of(stored.import(&["job.parquet"], "new.db"));
    assert_eq!((&again[0]["stored"], &again[0]["samples"]), (&0.into(), &exported["samples"]));
    assert_eq!(stored.series("new.db"), stored.series("run.db"));
}

fn an_interrupted_import_continues() {
    let stored = Stored::make();
    let exported = json_of(stored.command(&["--with-nodes", "--json", "-o", "job.parquet"]));
    json_of(stored.import(&["job.parquet"], "new.db"));
    // As after the first transaction.
    let connection = rusqlite::Connection::open(stored.path("new.db")).unwrap();
    connection
        .execute_batch(
            "DELETE FROM samples; UPDATE ledger_line SET stored = NULL;
             UPDATE session SET last_sequence = 1, stored = 0, ended = NULL, end_reason = NULL;
             UPDATE job_node SET ended = NULL; UPDATE job SET ended = NULL;",
        )
        .unwrap();
    let imported = json_of(stored.import(&["job.parquet"], "new.db"));
    assert_eq!(imported[0]["stored"], exported["samples"]);
    assert_eq!(stored.number("new.db", "SELECT count(*) FROM job"), 1);
    assert_eq!(stored.series("new.db"), stored.series("run.db"));
}

fn a_sample_of_a_node_is_imported_once() {
    let stored = Stored::make();
    let connection = rusqlite::Connection::open(stored.path("run.db")).unwrap();
    // Another job on the node at that time: the samples of the node are in the files of both.
    connection
        .execute_batch(
            "INSERT INTO job (job_id, started, ended) SELECT 'other', started, ended FROM job;
             INSERT INTO job_node (job_key, node, started, ended) SELECT job_key + 1, node, started, ended FROM job_node;",
        )
        .unwrap();
    let first = json_of(stored.command(&["--with-nodes", "--json", "-o", "first.parquet"]));
    let mut second = program("polymeter");
    second.args([
        "export",
        "other",
        "--with-nodes",
        "--json",
        "-o",
        "second.parquet",
        "--store",
        &stored.store(),
    ]);
    second.current_dir(stored.directory.path());
    assert!(json_of(second)["samples"].as_u64() > Some(0));
    let imported = json_of(stored.import(&["first.parquet", "second.parquet"], "new.db"));
    assert_eq!((&imported[0]["stored"], &imported[1]["stored"]), (&first["samples"], &0.into()));
    assert_eq!(stored.number("new.db", "SELECT count(*) FROM job WHERE ended IS NOT NULL"), 2);
    assert_eq!(Some(stored.number("new.db", "SELECT count(*) FROM samples")), first["samples"].as_i64());
}

fn an_import_refuses_other_files_and_known_jobs() {
    let stored = Stored::make();
    json_of(stored.command(&["--json", "-o", "job.parquet"]));
    json_of(stored.command(&["--json", "-o", "job.csv"]));
    let whole = fs::read(stored.path("job.parquet")).unwrap();
    fs::write(stored.path("cut.parquet"), &whole[..whole.len() / 2]).unwrap();
    for (file, database, cause) in [
        ("job.csv", "new.db", "no file of samples"),
        ("cut.parquet", "new.db", "no file of samples"),
        ("none.parquet", "new.db", "No such file or directory"),
        ("job.parquet", "run.db", "from another source"),
    ] {
        let output = stored.import(&[file], database).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(&format!("cannot import {file}: ")) && message.contains(cause), "{message}");
        assert!(message.contains("; "), "a remedy: {message}");
        let refusal: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(refusal.to_string().contains("cannot import"), "{refusal}");
    }
    assert_eq!(stored.number("new.db", "SELECT count(*) FROM job"), 0);
}
