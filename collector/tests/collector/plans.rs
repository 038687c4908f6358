//! Plans of a reader's statements: none touches partitions or chunks outside the time of a job, or reads
//! a whole table.

use std::collections::BTreeSet;

use polymeter_proto::read::{IdRanges, JobsOf};
use polymeter_store::StoreError;
use polymeter_store::reader::{JobFilter, JobOrder, JobRow, Read, Reader, Rollup, SeriesScope};

use crate::sql_views::run_with_plans;
use crate::support::{Kind, TestEnvironment};

scenarios! { undistributed
    samples_are_read_from_the_days_of_the_job,
    no_large_table_is_scanned,
    the_devices_of_a_job_are_found_among_thousands,
    jobs_of_one_user_are_found_among_those_of_others,
    each_order_of_jobs_has_an_index,
    corrected_times_of_jobs_are_computed_without_those_of_others,
}

/// One after the other, each for ten minutes, over three weeks.
pub(crate) const JOBS: i64 = 3000;

/// Number of the job that is read. It runs at noon, so that it has one day.
const NOON: i64 = 10 * 144 + 72;

/// Tables with a row for each job, or several. `metric` and `store_version` have few rows.
pub(crate) const LARGE: [&str; 10] = [
    "job",
    "job_node",
    "series_block",
    "ledger_line",
    "plan_change_event",
    "mark",
    "loss",
    "session",
    "window_histogram",
    "trigger_firing",
];

/// Time a number of seconds after the first job, as an expression in the store's form.
fn time(kind: Kind, seconds: &str) -> String {
    match kind {
        Kind::Sqlite => format!("(1767225600 + {seconds}) * 1000000000"),
        Kind::Postgres | Kind::Timescale | Kind::Citus => format!("to_timestamp(1767225600 + {seconds})"),
    }
}

fn create_partitions(environment: &mut TestEnvironment) {
    if environment.kind == Kind::Postgres {
        environment.execute(
            "SELECT polymeter_create_partition(date '2026-01-01' + day),
                    polymeter_create_rollup_partitions(timestamptz '2026-01-01 00:00+00' + day * interval '1 day')
             FROM generate_series(-1, 22) AS day",
        );
    }
}

/// Rows of the sessions and the history of each job.
fn history(start: &str, end: &str) -> Vec<(&'static str, String)> {
    vec![
        (
            "session (session_id, node, agent_version, started, last_sequence, last_seen)",
            format!("SELECT 's' || n, 'n' || (n % 20), '1', {start}, 1, {end} FROM job_number"),
        ),
        (
            "ledger (session_id, job_key, handle, source)",
            "SELECT 's' || n, n, 1, 'stat' FROM job_number".to_owned(),
        ),
        (
            "plan_change (time, node, job_key, metric, cause)",
            format!("SELECT {start}, 'n' || (n % 20), n, 'm1', 'baseline' FROM job_number"),
        ),
        (
            "window_histogram (job_key, time, series_id, least, count)",
            format!("SELECT n, {start}, n, 1, 1 FROM job_number"),
        ),
        (
            "trigger_firing (trigger_id, job_key, node, time, rule, why, actions)",
            format!("SELECT n, n, 'n' || (n % 20), {start}, 'r', 'w', 'marked' FROM job_number"),
        ),
        (
            "mark (time, node, job_key, name)",
            format!("SELECT {start}, 'n' || (n % 20), n, 'm' FROM job_number"),
        ),
        (
            "loss (time, node, session_id, job_key, source, samples, reason, first_time, last_time)",
            format!(
                "SELECT {start}, 'n' || (n % 20), 's' || n, n, 'stat', 1, 'clock', {start}, {start} FROM job_number"
            ),
        ),
        (
            "loss (time, node, session_id, samples, reason, first_time, last_time)",
            format!(
                "SELECT {start}, 'n' || (n % 20), 's' || n, 1, 'clock', {start}, {start} FROM job_number"
            ),
        ),
    ]
}

pub(crate) fn fill(environment: &mut TestEnvironment) {
    environment.collector().stop().unwrap();
    environment.accept_inserts();
    create_partitions(environment);
    let jobs = format!(
        "WITH RECURSIVE job_number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM job_number WHERE n < {JOBS})"
    );
    let (start, end) = (time(environment.kind, "n * 600"), time(environment.kind, "n * 600 + 599"));
    for (table, select) in [
        ("node (node, first_seen)", format!("SELECT 'n' || n, {start} FROM job_number WHERE n <= 20")),
        ("metric", "SELECT 'm' || n, 'bytes', 'gauge' FROM job_number WHERE n <= 2".to_owned()),
        (
            "job (job_id, owner_uid, started, ended)",
            format!("SELECT CAST(n AS text), n % 7, {start}, {end} FROM job_number ORDER BY n + 0"),
        ),
        (
            "job_node (job_key, node, started, ended)",
            format!("SELECT n, 'n' || (n % 20), {start}, {end} FROM job_number"),
        ),
        (
            "series (node, metric, job_key, job_id, labels)",
            "SELECT 'n' || (n % 20), metric, n, CAST(n AS text), '{}' FROM job_number, metric ORDER BY n + 0, 2"
                .to_owned(),
        ),
        ("series (node, metric, labels)", "SELECT node, metric, '{}' FROM node, metric".to_owned()),
        (
            "samples (time, series_id, value)",
            format!("SELECT {start}, series_id, 1 FROM job_number JOIN series ON job_key = n"),
        ),
        (
            "samples (time, series_id, value)",
            format!(
                "SELECT {start}, series_id, 1 FROM job_number, series WHERE n % 20 = 0 AND job_key IS NULL"
            ),
        ),
    ]
    .into_iter()
    .chain(history(&start, &end))
    {
        environment.execute(&format!("INSERT INTO {table} {jobs} {select}"));
    }
    environment.execute("ANALYZE");
}

fn job_at_noon(reader: &mut Reader) -> JobRow {
    let job = reader.last_job(Some(&NOON.to_string())).unwrap().unwrap();
    assert_eq!((job.job_key, job.nodes.len()), (NOON, 1));
    job
}

/// Reads all samples of series within the time of the job, and returns their number and the plans.
fn read_samples(reader: &mut Reader, job: &JobRow, of: SeriesScope<'_>) -> (usize, Vec<String>) {
    let ids: IdRanges = reader.series(of).unwrap().iter().map(|series| series.series_id).collect();
    let mut count = 0;
    reader.record_plans();
    let read = reader.samples(of, &ids, &job.sampled_ns, |_| {
        count += 1;
        Ok::<_, StoreError>(())
    });
    read.unwrap();
    let mut plans = reader.take_plans();
    // Those of a job look first whether a clock differs at all.
    let is_of_job = !matches!(of, SeriesScope::Node(_));
    if is_of_job {
        let first = plans.remove(0);
        assert!(first.contains("clock_offset_us IS NOT NULL LIMIT 1"), "{first}");
    }
    // Where samples are compressed, a read looks first whether there are windows, in the same time.
    let is_probe = plans[0].contains("count IS NOT NULL LIMIT 1");
    assert_eq!(plans.len(), 1 + usize::from(is_probe), "{plans:?}");
    (count, plans)
}

fn count_in_buckets(environment: &TestEnvironment, reader: &mut Reader, job: &JobRow, rollup: Rollup) -> u64 {
    let of = SeriesScope::Job(job.job_key);
    let series = reader.series(of).unwrap();
    let ids: IdRanges = series.iter().map(|series| series.series_id).collect();
    let mut count = 0;
    reader.record_plans();
    let read = reader.buckets(rollup, of, &ids, &job.sampled_ns, |bucket| {
        let is_one = [bucket.min, bucket.max, bucket.first, bucket.last].iter().all(|value| *value == 1.0);
        assert!(is_one && bucket.increase == 0.0 && bucket.mean == 1.0, "{bucket:?}");
        assert!(bucket.time_ns <= job.started_ns && job.started_ns < bucket.time_ns + rollup.length_ns());
        count += bucket.count;
        Ok::<_, StoreError>(())
    });
    read.unwrap();
    // Samples that no rollup contains yet are read as well. TimescaleDB's planner knows their time, except
    // for hours, which are computed from minutes.
    let plan = reader.take_plans().concat();
    let days = days_of_samples(environment, &plan);
    match environment.kind {
        Kind::Sqlite => {}
        Kind::Timescale if rollup == Rollup::Hour => {}
        Kind::Timescale => {
            assert!(days.is_subset(&BTreeSet::from([noon(environment)])), "{rollup:?}: {plan}")
        }
        Kind::Postgres | Kind::Citus => {
            assert_eq!(days, BTreeSet::from([noon(environment)]), "{rollup:?}: {plan}");
            let computed = names(&plan, "rollup_10s_2");
            let days = computed.iter().filter_map(|name| name.get(.."rollup_10s_20260111".len()));
            assert!(days.clone().all(|day| day == "rollup_10s_20260111"), "{rollup:?}: {plan}");
            assert!(days.count() > 0 || rollup == Rollup::Hour, "{rollup:?}: {plan}");
        }
    }
    count
}

/// Names in `plan` that begin with `prefix` and a digit.
fn names(plan: &str, prefix: &str) -> BTreeSet<String> {
    let words = plan.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words
        .filter(|word| {
            word.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
        })
        .map(str::to_owned)
        .collect()
}

fn days_of_samples(environment: &TestEnvironment, plan: &str) -> BTreeSet<String> {
    match environment.kind {
        Kind::Sqlite => BTreeSet::new(),
        Kind::Postgres | Kind::Citus => {
            let partitions = names(plan, "samples_2").into_iter();
            partitions.filter_map(|name| name.get(.."samples_20260111".len()).map(str::to_owned)).collect()
        }
        Kind::Timescale => {
            let chunks = "SELECT string_agg(chunk_name, ' ') FROM timescaledb_information.chunks WHERE hypertable_name = 'samples'";
            let chunks = environment.server.as_ref().unwrap().query(chunks);
            names(plan, "_hyper_")
                .into_iter()
                .filter(|name| chunks.split(' ').any(|chunk| chunk == name))
                .collect()
        }
    }
}

fn noon(environment: &TestEnvironment) -> String {
    match environment.kind {
        Kind::Sqlite => String::new(),
        Kind::Postgres | Kind::Citus => "samples_20260111".to_owned(),
        Kind::Timescale => environment.server.as_ref().unwrap().query(
            "SELECT chunk_name FROM timescaledb_information.chunks WHERE hypertable_name = 'samples'
                 AND timestamptz '2026-01-11 12:00+00' BETWEEN range_start AND range_end",
        ),
    }
}

fn assert_one_day(environment: &TestEnvironment, plan: &str) {
    if environment.kind == Kind::Sqlite {
        let search = "SEARCH samples USING INDEX samples_by_series (series_id=? AND time>? AND time<?)";
        assert!(plan.contains(search) && !plan.contains("USE TEMP B-TREE"), "{plan}");
    } else {
        assert_eq!(days_of_samples(environment, plan), BTreeSet::from([noon(environment)]), "{plan}");
    }
}

fn samples_are_read_from_the_days_of_the_job(environment: &mut TestEnvironment) {
    fill(environment);
    let mut reader = environment.reader();
    let job = job_at_noon(&mut reader);
    assert_reads(environment, &mut reader, &job);
    if environment.kind == Kind::Timescale {
        environment.execute("SELECT compress_chunk(chunk) FROM show_chunks('samples') AS chunk");
        assert_reads(environment, &mut reader, &job);
    }
}

fn assert_reads(environment: &TestEnvironment, reader: &mut Reader, job: &JobRow) {
    let (count, plans) = read_samples(reader, job, SeriesScope::Job(job.job_key));
    assert_eq!(count, 2);
    assert!(plans.len() == 1 || environment.kind == Kind::Timescale, "{plans:?}");
    plans.iter().for_each(|plan| assert_one_day(environment, plan));
    for rollup in Rollup::ALL {
        assert_eq!(count_in_buckets(environment, reader, job, rollup), 2, "{rollup:?}");
    }
    // A sample every 200 minutes.
    let (count, plans) = read_samples(reader, job, SeriesScope::Node(&job.nodes[0]));
    assert!(count <= 2, "{count}");
    plans.iter().for_each(|plan| assert_one_day(environment, plan));
}

fn no_large_table_is_scanned(environment: &mut TestEnvironment) {
    fill(environment);
    let mut reader = environment.reader();
    reader.record_plans();
    let job = job_at_noon(&mut reader);
    assert_eq!(reader.last_job(None).unwrap().unwrap().job_key, JOBS);
    let page = |before| JobFilter { before, limit: 10, ..JobFilter::default() };
    let first = reader.jobs(&page(None)).unwrap();
    let second = reader.jobs(&page(first.last().map(|job| (job.started_ns, job.job_key)))).unwrap();
    let keys: Vec<i64> = first.iter().chain(&second).map(|job| job.job_key).collect();
    assert_eq!(keys, (JOBS - 19..=JOBS).rev().collect::<Vec<_>>());
    let similar = reader.candidate_ids("15x", None).unwrap();
    assert!(similar.contains(&"15".to_owned()) && similar.contains(&"150".to_owned()), "{similar:?}");
    assert!(
        reader.candidate_ids("1", Some(&JobsOf::user(3))).unwrap().iter().all(|id| id
            .parse::<i64>()
            .unwrap()
            % 7
            == 3)
    );
    assert_eq!(reader.series(SeriesScope::Job(NOON)).unwrap().len(), 2);
    assert_eq!(reader.series(SeriesScope::Node("n12")).unwrap().len(), 2);
    assert_eq!(reader.cpus(NOON).unwrap(), []);
    let metrics: Vec<String> =
        reader.series(SeriesScope::NodesOf(NOON)).unwrap().into_iter().map(|row| row.metric).collect();
    assert_eq!(reader.node_series(NOON, &metrics).unwrap().len(), 2);
    assert_eq!(reader.node_series(NOON, &metrics[..1]).unwrap().len(), 1);
    assert_eq!((&mut reader as &mut dyn Read).device_series(NOON).unwrap(), []);
    let read: &mut dyn Read = &mut reader;
    let metrics = read.job_metrics(NOON, None).unwrap();
    assert_eq!(metrics.iter().map(|row| (row.series, row.nodes)).collect::<Vec<_>>(), [(1, 1), (1, 1)]);
    assert_eq!(read.job_metrics(NOON, Some(&job.nodes[0])).unwrap(), metrics);
    assert_eq!(read.job_metrics(NOON, Some("n99")).unwrap(), []);
    assert_eq!(reader.job_nodes(NOON).unwrap().len(), 1);
    assert_eq!(reader.ledger(NOON).unwrap().len(), 1);
    assert_eq!(reader.plan_changes(NOON).unwrap().len(), 1);
    assert_eq!(reader.refused_requests(NOON).unwrap(), []);
    assert_eq!(reader.marks(NOON).unwrap().len(), 1);
    let read: &mut dyn Read = &mut reader;
    assert_eq!(
        (read.histograms(SeriesScope::Job(NOON), None).unwrap().len(), read.firings(NOON).unwrap().len()),
        (1, 1)
    );
    assert_eq!(reader.losses(NOON).unwrap().len(), 2, "one of the job, and one of its node");
    assert_eq!(reader.last_losses(3).unwrap().len(), 3);
    assert_eq!(job.sampled_ns.end - job.sampled_ns.start, (2 * 3600 + 599) * 1_000_000_000);
    let plans = reader.take_plans();
    assert!(plans.len() >= 16, "{plans:#?}");
    for plan in plans {
        assert_no_scan(&plan, LARGE.iter());
    }
}

fn assert_no_scan<'a>(plan: &str, tables: impl Iterator<Item = &'a &'a str>) {
    for table in tables {
        let scans =
            [format!("Seq Scan on {table} "), format!("Seq Scan on {table}\n"), format!("SCAN {table}\n")];
        let is_scanned = scans.iter().any(|scan| format!("{plan}\n").contains(scan.as_str()));
        assert!(!is_scanned, "{table}: {plan}");
    }
}

/// 2,500 devices of 88 metrics, each of which serves a node.
const DEVICES: [&str; 4] = [
    "INSERT INTO series_shape (digest) WITH RECURSIVE device (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM device WHERE n < 2500)
     SELECT 'device' || n FROM device",
    "INSERT INTO metric WITH RECURSIVE value (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM value WHERE n < 87)
     SELECT 'device.' || digest || '.v' || n, 'watts', 'gauge' FROM series_shape, value WHERE digest LIKE 'device%'",
    "INSERT INTO series_shape_member (shape_id, position, metric, labels)
     WITH RECURSIVE value (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM value WHERE n < 87)
     SELECT shape_id, n, 'device.' || digest || '.v' || n, '{}' FROM series_shape, value WHERE digest LIKE 'device%'",
    "INSERT INTO series_block (first_id, shape_id, node, served_node)
     SELECT 1000000 + 88 * shape_id, shape_id, 'devices1', 'n' || substr(digest, 7) FROM series_shape WHERE digest LIKE 'device%'",
];

fn the_devices_of_a_job_are_found_among_thousands(environment: &mut TestEnvironment) {
    fill(environment);
    DEVICES.iter().for_each(|statement| environment.execute(statement));
    environment.execute("ANALYZE");
    let mut reader = environment.reader();
    reader.record_plans();
    let read: &mut dyn Read = &mut reader;
    let series = read.device_series(NOON).unwrap();
    assert_eq!((series.len(), series[0].node.as_str()), (88, "n12"));
    assert_eq!(read.series(SeriesScope::NodesOf(NOON)).unwrap().len(), 88 + 2);
    assert_eq!(read.series(SeriesScope::Node("n12")).unwrap().len(), 88 + 2);
    assert_eq!(read.node_series(NOON, &["m1", "device.device12.v3"]).unwrap().len(), 2);
    let plans = reader.take_plans();
    assert!(plans.len() >= 7, "{plans:#?}");
    for plan in plans {
        assert_no_scan(&plan, LARGE.iter().chain(&["series_shape_member"]));
        let is_of_blocks = plan.contains("FROM series_block") || plan.contains("JOIN series");
        assert!(!is_of_blocks || plan.contains("series_block_by_measured_node"), "{plan}");
    }
}

fn jobs_of_one_user_are_found_among_those_of_others(environment: &mut TestEnvironment) {
    const FEW: u32 = 77;
    fill(environment);
    environment.execute(&format!("UPDATE job SET owner_uid = {FEW} WHERE job_id IN ('5', '66')"));
    environment.execute("ANALYZE");
    let mut reader = environment.reader();
    reader.record_plans();
    // Thousands of jobs of others sort next to this id, and started later.
    assert_eq!(reader.candidate_ids("15x", Some(&JobsOf::user(FEW))).unwrap(), ["66", "5"]);
    let own = JobFilter { owner_uid: Some(FEW.into()), limit: 10, ..JobFilter::default() };
    let ids: Vec<String> = reader.jobs(&own).unwrap().into_iter().map(|job| job.job_id).collect();
    assert_eq!(ids, ["66", "5"]);
    let ended = JobFilter { is_ended: Some(true), limit: 1, ..own };
    assert_eq!(reader.jobs(&ended).unwrap().len(), 1);
    let plans = reader.take_plans();
    let of_jobs: Vec<_> = plans.iter().filter(|plan| plan.contains("FROM job WHERE")).collect();
    assert_eq!(of_jobs.len(), 3);
    for plan in of_jobs {
        assert!(plan.contains("job_by_owner_uid"), "{plan}");
    }
    // A part of the name is compared once for each job: in SQLite within the index of names.
    let of_name =
        plan_of(&mut reader, &JobFilter { name: Some("wing".to_owned()), limit: 10, ..JobFilter::default() });
    let scans = of_name.lines().filter(|line| line.contains(" on job ")).count();
    let is_of_index = of_name.contains("COVERING INDEX job_by_name");
    assert!(scans == 1 || is_of_index, "{of_name}");
    let of_user = plan_of(
        &mut reader,
        &JobFilter { owner: Some("nobody".to_owned()), limit: 10, ..JobFilter::default() },
    );
    assert!(of_user.contains("job_by_owner"), "{of_user}");
    // A name that is rare among the jobs of a user is found by its index, also for a manager.
    environment.execute("UPDATE job SET name = 'name' || (job_key % 100), account = 'a' || (owner_uid % 3)");
    environment.execute("ANALYZE");
    let visible = Some(JobsOf { uid: FEW, accounts: vec!["a1".to_owned()] });
    let of_name = JobFilter { whole_name: Some("name4".to_owned()), limit: 10_000, ..JobFilter::default() };
    for (filter, expected) in [
        (JobFilter { owner_uid: Some(1), is_ended: Some(true), ..of_name.clone() }, 4),
        (JobFilter { visible, ..of_name }, 9),
    ] {
        let mut reader = environment.reader();
        reader.record_plans();
        let found = reader.jobs(&filter).unwrap();
        let is_expected =
            |job: &JobRow| job.name.as_deref() == Some("name4") && job.owner_uid.unwrap() % 3 == 1;
        assert!(found.len() >= expected && found.iter().all(is_expected), "{}: {found:?}", found.len());
        let plans = reader.take_plans();
        let plan = plans.iter().find(|plan| plan.contains("FROM job WHERE")).unwrap();
        assert!(plan.contains("job_by_name"), "{plan}");
    }
    // The runs of a name are read page by page. An index has them in their order; where few are left, the
    // planner may prefer another one.
    environment.execute("UPDATE job SET name = 'train' WHERE owner_uid = 2");
    environment.execute("ANALYZE");
    let mut reader = environment.reader();
    let mut filter = JobFilter {
        whole_name: Some("train".to_owned()),
        owner_uid: Some(2),
        is_ended: Some(true),
        limit: 10,
        ..JobFilter::default()
    };
    let mut found = Vec::new();
    loop {
        reader.record_plans();
        let page = reader.jobs(&filter).unwrap();
        let plan = reader.take_plans().swap_remove(0);
        let is_sorted = ["TEMP B-TREE", "Sort"].iter().any(|sort| plan.contains(sort));
        assert!(filter.before.is_some() || plan.contains("job_by_name") && !is_sorted, "{plan}");
        assert!(plan.contains(" job_by_") && !plan.contains("Seq Scan on job"), "{plan}");
        let Some(last) = page.last() else { break };
        filter.before = Some((last.listed, last.job_key));
        found.extend(keys(&page));
    }
    assert_eq!(found, (1..=JOBS).rev().filter(|key| key % 7 == 2).collect::<Vec<_>>());
}

/// Value by which a job is listed, as a list of all jobs has it.
fn listed(job: &JobRow, order: JobOrder) -> i64 {
    let ended_ns = job.ended_ns.unwrap_or_default();
    match order {
        JobOrder::Started => job.started_ns,
        JobOrder::Ended => ended_ns,
        JobOrder::Elapsed => ended_ns - job.started_ns,
        JobOrder::Cores => job.cores.unwrap_or_default(),
    }
}

fn filter_by(change: fn(&mut JobFilter)) -> JobFilter {
    let mut filter = JobFilter { limit: 10, ..JobFilter::default() };
    change(&mut filter);
    filter
}

fn each_order_of_jobs_has_an_index(environment: &mut TestEnvironment) {
    fill(environment);
    environment.execute("UPDATE job SET cores = job_key % 50 WHERE job_key % 3 > 0");
    environment.execute("UPDATE job SET ended = started + (ended - started) * (1 + job_key % 7)");
    environment.execute("UPDATE job SET ended = NULL WHERE job_key % 100 = 0");
    environment.execute(
        "UPDATE job SET name = 'Wing_100%', state = 'FAILED', cluster = 'c2' WHERE job_key IN (7, 14, 2100)",
    );
    environment.execute("UPDATE job SET name = 'wingX1000', state = 'Timeout' WHERE job_key = 21");
    environment.execute("ANALYZE");
    let mut reader = environment.reader();
    let all = reader.jobs(&JobFilter { limit: u32::MAX, ..JobFilter::default() }).unwrap();
    assert_eq!(all.len() as i64, JOBS);
    for (order, index) in [
        (JobOrder::Started, "job_by_start"),
        (JobOrder::Ended, "job_by_end"),
        (JobOrder::Elapsed, "job_by_elapsed"),
        (JobOrder::Cores, "job_by_cores"),
    ] {
        for is_ascending in [false, true] {
            let needs_end = matches!(order, JobOrder::Ended | JobOrder::Elapsed);
            let mut expected: Vec<(i64, i64)> = all
                .iter()
                .filter(|job| !needs_end || job.ended_ns.is_some())
                .map(|job| (listed(job, order), job.job_key))
                .collect();
            expected.sort();
            if !is_ascending {
                expected.reverse();
            }
            let (mut found, mut before) = (Vec::new(), None);
            loop {
                let filter = JobFilter { order, is_ascending, before, limit: 899, ..JobFilter::default() };
                let page = reader.jobs(&filter).unwrap();
                let Some(last) = page.last() else { break };
                before = Some((last.listed, last.job_key));
                found.extend(page.iter().map(|job| (job.listed, job.job_key)));
            }
            assert_eq!(found, expected, "{order:?}, ascending: {is_ascending}");
            reader.record_plans();
            let page = JobFilter {
                order,
                is_ascending,
                before: expected.get(1500).copied(),
                limit: 10,
                ..JobFilter::default()
            };
            assert_eq!(reader.jobs(&page).unwrap().len(), 10);
            let plans = reader.take_plans();
            assert!(plans.iter().any(|plan| plan.contains(index)), "{order:?}: {plans:#?}");
        }
    }
    // Running jobs have no end: the one that started first is the longest.
    let running =
        JobFilter { is_ended: Some(false), order: JobOrder::Elapsed, limit: 2, ..JobFilter::default() };
    assert_eq!(keys(&reader.jobs(&running).unwrap()), [100, 200]);
    for (filter, expected) in [
        (filter_by(|filter| filter.name = Some("iNG_100%".to_owned())), vec![2100, 14, 7]),
        (filter_by(|filter| filter.name = Some("wing".to_owned())), vec![2100, 21, 14, 7]),
        (filter_by(|filter| filter.name = Some("\\".to_owned())), vec![]),
        (filter_by(|filter| filter.state = Some("failed, TIMEOUT".to_owned())), vec![2100, 21, 14, 7]),
        (filter_by(|filter| filter.state = Some("'; DROP TABLE job; --,timeout".to_owned())), vec![21]),
        (filter_by(|filter| filter.cluster = Some("c2".to_owned())), vec![2100, 14, 7]),
    ] {
        assert_eq!(keys(&reader.jobs(&filter).unwrap()), expected, "{filter:?}");
    }
}

fn plan_of(reader: &mut Reader, filter: &JobFilter) -> String {
    reader.record_plans();
    reader.jobs(filter).unwrap();
    reader.take_plans().swap_remove(0)
}

fn corrected_times(key: i64) -> String {
    let (began_s, ended_s) = (key * 600, key * 600 + 599);
    let has_other = key % 5 == 0 && key < JOBS;
    let is_skewed = key % 3 == 0 || has_other && (key + 1) % 3 == 0;
    let (mut began, mut ended) = (began_s - ahead_s(key), ended_s - ahead_s(key));
    if has_other && is_skewed {
        began = began.min(began_s - 60 - ahead_s(key + 1));
        ended = ended.max(began_s + 700 - ahead_s(key + 1));
    }
    format!("{key} {began} {ended}")
}

fn ahead_s(session: i64) -> i64 {
    if session % 3 == 0 { session % 7 * 60 } else { 0 }
}

fn corrected_times_of_jobs_are_computed_without_those_of_others(environment: &mut TestEnvironment) {
    fill(environment);
    // A third of the sessions had clocks that were ahead: by up to six minutes.
    environment.execute("UPDATE job_node SET session_id = 's' || job_key");
    environment.execute("UPDATE job SET owner = 'user' || owner_uid");
    let (begin, end) =
        (time(environment.kind, "job_key * 600 - 60"), time(environment.kind, "job_key * 600 + 700"));
    environment.execute(&format!(
        "INSERT INTO job_node (job_key, node, started, ended, session_id)
         SELECT job_key, 'n' || ((job_key + 1) % 20), {begin}, {end}, 's' || (job_key + 1) FROM job WHERE job_key % 5 = 0 AND job_key < {JOBS}"
    ));
    let ahead_us = "CAST(substr(session_id, 2) AS int) % 7 * 60000000";
    environment.execute(&format!(
        "UPDATE session SET clock_offset_us = {ahead_us} WHERE CAST(substr(session_id, 2) AS int) % 3 = 0"
    ));
    environment.execute("ANALYZE");
    let [started, ended] = ["started", "ended"].map(|of| match environment.kind {
        Kind::Sqlite => format!("{of} / 1000000000 - 1767225600"),
        Kind::Postgres | Kind::Timescale | Kind::Citus => {
            format!("CAST(extract(epoch FROM {of}) AS int) - 1767225600")
        }
    });
    let columns = format!("CAST(job_key || ' ' || ({started}) || ' ' || ({ended}) AS text)");
    let found = environment.lines(&format!("SELECT {columns} FROM jobs ORDER BY job_key"));
    assert_eq!(found, (1..=JOBS).map(corrected_times).collect::<Vec<_>>());
    for key in [9, 14, 20, 21, 35] {
        let of_job = environment.lines(&format!("SELECT {columns} FROM jobs WHERE job_id = '{key}'"));
        assert_eq!(of_job, [corrected_times(key)]);
    }
    let Some(server) = &environment.server else { return };
    server.query("CREATE ROLE user3 LOGIN IN ROLE polymeter_user");
    let own = run_with_plans(server, "user3", "SELECT count(*) FROM jobs WHERE job_id = '10'");
    assert_eq!(own.0, "1");
    let (all, of_all) = run_with_plans(server, "postgres", "SELECT count(*) FROM jobs");
    assert_eq!(all, JOBS.to_string());
    assert!(of_all.contains("Anti Join"), "each job is looked up in the corrected ones: {of_all}");
    let (_, of_job) = run_with_plans(server, "postgres", "SELECT * FROM jobs WHERE job_id = '21'");
    for table in ["job", "job_node", "session"] {
        assert!(!of_job.contains(&format!("Seq Scan on {table} ")), "{table}: {of_job}");
    }
}

fn keys(jobs: &[JobRow]) -> Vec<i64> {
    jobs.iter().map(|job| job.job_key).collect()
}
