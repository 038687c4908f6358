//! Kwollect's own schema in a PostgreSQL server: rows that workers copy, and queries as its API makes them.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use polymeter_benches::clock::now_ns;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::to_f64;

use super::results::Values;

/// Length of a partition, as the paper says.
const PARTITION_S: i64 = 2 * 3_600;

/// Rows of one COPY.
const COPY_ROWS: u64 = 50_000;

/// Metrics of a device.
const METRICS: u64 = 50;

/// Distance of two values of a metric.
pub(super) const DISTANCE_S: i64 = 5;

/// Creates the table of the paper, with partitions for a time in seconds since the epoch. The index for
/// devices is that of the project.
pub(super) fn create(store: &Store, begin_s: i64, end_s: i64) -> Result<(), Box<dyn Error>> {
    let is_hypertable = store.kind() == Kind::Timescaledb;
    let partitioned = if is_hypertable { "" } else { "PARTITION BY RANGE (timestamp)" };
    store.ask(&format!(
        "CREATE TABLE metrics (timestamp timestamptz NOT NULL, device_id text NOT NULL, metric_id text NOT NULL, \
         value double precision NOT NULL, labels jsonb) {partitioned}"
    ))?;
    if is_hypertable {
        store.ask("CREATE EXTENSION IF NOT EXISTS timescaledb")?;
        store.ask(
            "SELECT create_hypertable('metrics', 'timestamp', chunk_time_interval => interval '2 hours')",
        )?;
    } else {
        for number in begin_s.div_euclid(PARTITION_S)..=end_s.div_euclid(PARTITION_S) {
            let (from_s, to_s) = (number * PARTITION_S, (number + 1) * PARTITION_S);
            store.ask(&format!(
                "CREATE TABLE metrics_{number} PARTITION OF metrics FOR VALUES FROM ('epoch'::timestamptz + interval \
                 '{from_s} s') TO ('epoch'::timestamptz + interval '{to_s} s')"
            ))?;
        }
        store.ask("CREATE INDEX ON metrics (timestamp DESC)")?;
    }
    store.ask("CREATE INDEX ON metrics (device_id, timestamp DESC)").map(drop)
}

/// SQL for the values of devices in a time, a row for each.
fn rows(devices: u64, begin_s: i64, end_s: i64) -> String {
    format!(
        "SELECT 'epoch'::timestamptz + tick * interval '1 s' AS timestamp, 'mock' || device AS device_id, \
         'metric_' || metric AS metric_id, random() * 1e9 AS value, '{{}}'::jsonb AS labels \
         FROM generate_series({begin_s}, {end_s} - 1, {DISTANCE_S}) tick, generate_series(0, {devices} - 1) device, \
         generate_series(1, {METRICS}) metric"
    )
}

/// Fills the table with the values of devices.
pub(super) fn fill(store: &Store, devices: u64, begin_s: i64, end_s: i64) -> Result<(), Box<dyn Error>> {
    create(store, begin_s, end_s)?;
    store.ask(&format!("INSERT INTO metrics {}", rows(devices, begin_s, end_s)))?;
    store.ask("ANALYZE metrics").map(drop)
}

/// Reads all values of devices in a time as PostgREST does: the server makes the JSON. Returns the number of
/// values.
pub(super) fn read(store: &Store, devices: u64, begin_s: i64, end_s: i64) -> Result<u64, Box<dyn Error>> {
    let names: Vec<String> = (0..devices).map(|device| format!("'mock{device}'")).collect();
    let json = store.ask(&format!(
        "SELECT coalesce(json_agg(found), '[]') FROM (SELECT * FROM metrics WHERE device_id IN ({}) AND timestamp >= \
         'epoch'::timestamptz + interval '{begin_s} s' AND timestamp < 'epoch'::timestamptz + interval '{end_s} s' ORDER BY \
         timestamp) found",
        names.join(",")
    ))?;
    Ok(json.matches("\"value\":").count() as u64)
}

/// Lets workers copy rows of 1000 devices side by side.
pub(super) fn copy(workers: usize, all_rows: u64) -> Result<Values<'static>, Box<dyn Error>> {
    const DEVICES: u64 = 1_000;
    let store = Store::start(Kind::best())?;
    let directory = tempfile::tempdir()?;
    // The server's user writes and reads the files.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777))?;
    let rounds = i64::try_from(all_rows.div_ceil(DEVICES * METRICS))?;
    let (begin_s, end_s) = (1_700_000_000, 1_700_000_000 + rounds * DISTANCE_S);
    create(&store, begin_s, end_s)?;
    let mut scripts = vec![String::new(); workers];
    for round in 0..rounds {
        let path = directory.path().join(format!("{round}.copy"));
        let from_s = begin_s + round * DISTANCE_S;
        let of_round = rows(DEVICES, from_s, from_s + DISTANCE_S);
        let written =
            store.psql()?.args(["-c", &format!("\\copy ({of_round}) TO '{}'", path.display())]).status()?;
        if !written.success() {
            return Err(format!("cannot write the rows to copy: {written}").into());
        }
        if let Some(script) = scripts.get_mut(usize::try_from(round)? % workers) {
            script.push_str(&format!("\\copy metrics FROM '{}'\n", path.display()));
        }
    }
    let (before_s, begin_ns) = (store.usage()?.cpu_s, now_ns());
    let mut copies: Vec<Child> = Vec::new();
    for (number, script) in scripts.iter().enumerate() {
        let path = directory.path().join(format!("{number}.sql"));
        fs::write(&path, script)?;
        copies.push(store.psql()?.arg("-f").arg(path).stdout(Stdio::null()).spawn()?);
    }
    for copy in &mut copies {
        let status = copy.wait()?;
        if !status.success() {
            return Err(format!("a COPY failed: {status}").into());
        }
    }
    let (seconds, cpu_s) = (to_f64(now_ns() - begin_ns) / 1e9, store.usage()?.cpu_s - before_s);
    let (expected, stored) =
        (u64::try_from(rounds)? * COPY_ROWS, store.ask("SELECT count(*) FROM metrics")?.parse::<u64>()?);
    if stored != expected {
        return Err(format!("{expected} rows were copied, and {stored} are stored").into());
    }
    let stored = to_f64(stored);
    Ok(vec![("values_per_s", stored / seconds), ("value_cpu_us", cpu_s * 1e6 / stored)])
}
