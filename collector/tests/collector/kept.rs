//! Tests of samples that rings kept: how they are stored, read and removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_analysis::gather::gather;
use polymeter_collector::Collector;
use polymeter_proto::batch::{Job, Shape};
use polymeter_proto::ledger::{Event, Firing, KeptInterval, LedgerEntry, Tally};
use polymeter_proto::series::ShapeId;
use polymeter_store::reader::{FiringRow, KeptIntervalRow, Read, SampleRow, SampleSet, SeriesScope};
use polymeter_store::{Administration, FiringTable, Keep, Retention, StoreError, prune, set_retention};

use crate::support::agent::{Agent, job, shape, values};
use crate::support::{Kind, TestEnvironment, now_us, only_job};

scenarios![
    kept_samples_stand_beside_those_of_the_plan,
    kept_samples_are_removed_with_the_others,
    firings_are_read_with_the_nodes_that_are_missing,
    statements_use_the_indexes
];

const SECOND_US: i64 = 1_000_000;
const SECONDS: i64 = 10;
/// Seconds of the job that the ring kept, at 100 ms.
const KEPT: std::ops::Range<i64> = 4..7;
const STEP_US: i64 = 100_000;
const TRIGGER: u64 = u64::MAX - 6;

fn in_ring(shape: &Shape) -> Arc<Shape> {
    let (job, columns) = (shape.job.clone(), shape.columns.clone());
    let (id, source) = (ShapeId(shape.id.0 + 1000), "ring/stat".try_into().unwrap());
    Arc::new(Shape { id, job, source, period: shape.period, columns, window: None })
}

fn kept_times_us(job: &Job) -> impl Iterator<Item = i64> {
    let begin_us = job.descriptor.started_us;
    (KEPT.start * SECOND_US..KEPT.end * SECOND_US)
        .step_by(usize::try_from(STEP_US).unwrap())
        .map(move |after_us| begin_us + after_us)
}

/// Value of a series at a time: both voices read the same.
fn value_at(job: &Job, time_us: i64) -> i64 {
    (time_us - job.descriptor.started_us) / STEP_US + 1
}

fn kept_interval(job: &Job) -> KeptInterval {
    let begin_us = job.descriptor.started_us;
    KeptInterval {
        job: job.handle,
        begin_us: begin_us + KEPT.start * SECOND_US,
        end_us: begin_us + KEPT.end * SECOND_US,
        trigger: TRIGGER,
        reason: "OOM kill".into(),
        samples: 3 * kept_times_us(job).count() as u64,
    }
}

fn firing(job: &Job) -> Firing {
    let KeptInterval { begin_us, end_us, .. } = kept_interval(job);
    Firing {
        job: job.handle,
        trigger: TRIGGER,
        rule: "oom".try_into().unwrap(),
        by: Some("uid 1000".try_into().unwrap()),
        at_us: end_us - STEP_US,
        keeps_us: Some((begin_us, end_us)),
        notice: false,
        why: "the kernel killed a process".into(),
        actions: "keeps 3 s".into(),
    }
}

/// Sends the samples of a job, one a second, and those that the ring kept.
fn send(agent: &mut Agent, job: &Arc<Job>) {
    let of_plan = shape(job.handle.0, Some(job));
    for second in 0..SECONDS {
        let time_us = job.descriptor.started_us + second * SECOND_US;
        let (row, _) = values(value_at(job, time_us));
        agent.frame(&[(&of_plan, time_us, &row)], &[], &[]);
    }
    let of_ring = in_ring(&of_plan);
    let rows: Vec<_> =
        kept_times_us(job).map(|time_us| (time_us, values(value_at(job, time_us)).0)).collect();
    let rows: Vec<_> = rows.iter().map(|(time_us, row)| (&of_ring, *time_us, row.as_slice())).collect();
    let kept = rows.len() as u64 * 3;
    let tally = Tally { due: 900, taken: 900, not_kept: 900 - kept, ..Tally::default() };
    let entry = LedgerEntry { job: Some(job.handle), source: "ring/stat".try_into().unwrap(), tally };
    let events = [Event::Fired(firing(job)), Event::Kept(kept_interval(job))];
    agent.kept_frame(&rows, &[entry], &events);
    // Repeated frames change nothing.
    agent.send_from(0);
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

fn samples(
    reader: &mut dyn Read,
    set: SampleSet,
    of: i64,
    ids: &[i64],
    span_ns: &std::ops::Range<i64>,
) -> Vec<SampleRow> {
    let mut rows = Vec::new();
    reader
        .samples_of_set(set, SeriesScope::Job(of), ids, span_ns, |row| {
            rows.push(row);
            Ok::<_, StoreError>(())
        })
        .unwrap();
    rows
}

fn kept_samples_stand_beside_those_of_the_plan(environment: &mut TestEnvironment) {
    let job = job(1, "7", now_us() - 100 * SECOND_US);
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send(&mut agent, &job);
    collector.stop().unwrap();
    let (stored, mut reader) = (only_job(environment), environment.reader());
    let begin_ns = job.descriptor.started_us * 1000;
    let expected = KeptIntervalRow {
        node: "n1".to_owned(),
        begin_ns: begin_ns + KEPT.start * SECOND_US * 1000,
        end_ns: begin_ns + KEPT.end * SECOND_US * 1000,
        trigger: TRIGGER.cast_signed(),
        reason: "OOM kill".to_owned(),
        samples: 90,
    };
    assert_eq!(reader.kept_intervals(stored.job_key).unwrap(), [expected]);
    assert!(reader.kept_intervals(stored.job_key + 1).unwrap().is_empty());
    let series = reader.series(SeriesScope::Job(stored.job_key)).unwrap();
    let ids: Vec<i64> = series.iter().map(|row| row.series_id).collect();
    assert_eq!(ids.len(), 3, "both voices have the same series");
    let mut of = |set| samples(&mut reader, set, stored.job_key, &ids, &stored.sampled_ns);
    let (plan, kept, all) = (of(SampleSet::Plan), of(SampleSet::Kept), of(SampleSet::All));
    assert_eq!((plan.len(), kept.len()), (30, 90));
    // Three of the plan's times are in the ring, too.
    assert_eq!(all.len(), 30 + 90 - 3 * 3);
    for row in &series {
        let mut times: Vec<i64> = (0..SECONDS)
            .map(|second| job.descriptor.started_us + second * SECOND_US)
            .chain(kept_times_us(&job))
            .collect();
        times.sort_unstable();
        times.dedup();
        let position =
            ["cpu.usage", "memory.margin", "node.load1"].iter().position(|name| *name == row.metric);
        let values: Vec<(i64, f64)> = times
            .iter()
            .map(|time_us| (time_us * 1000, values(value_at(&job, *time_us)).1[position.unwrap()]))
            .collect();
        let found: Vec<(i64, f64)> = all
            .iter()
            .filter(|sample| sample.series_id == row.series_id)
            .map(|sample| (sample.time_ns, sample.value))
            .collect();
        assert_eq!(found, values, "{}", row.metric);
    }
    let report = gather(&mut reader, &stored, None).unwrap();
    let described: Vec<(&str, &str, u64)> =
        report.kept.iter().map(|of| (of.text.as_str(), of.reason.as_str(), of.samples)).collect();
    assert_eq!(
        described,
        [(
            "the last 2.90 s before trigger oom fired, 6.90 s after the start, at 100ms",
            "oom on n1: the kernel killed a process",
            90
        )]
    );
    let ring = report.ring.unwrap();
    assert_eq!((ring.taken, ring.kept, ring.not_kept, ring.unknown), (900, 90, 810, 0));
    assert_eq!((report.ledger.taken, report.stored, report.unknown), (30, 30, 0), "without those of rings");
    // Rows and the ledger agree, and rollups are without kept samples.
    let number = |select: &str| environment.number(select);
    let of_ring = "FROM ledger_balance WHERE source = 'ring/stat'";
    for (column, count) in [("stored", 90), ("not_kept", 810), ("unknown", 0), ("taken", 900)] {
        assert_eq!(number(&format!("SELECT CAST(sum({column}) AS bigint) {of_ring}")), count, "{column}");
    }
    assert_eq!(number("SELECT count(*) FROM kept_sample"), 90);
    assert_eq!(number("SELECT stored FROM session"), 120);
    assert_eq!(number("SELECT CAST(sum(count) AS bigint) FROM samples_1min"), 30);
}

fn firings_are_read_with_the_nodes_that_are_missing(environment: &mut TestEnvironment) {
    let job = job(1, "7", now_us() - 100 * SECOND_US);
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send(&mut agent, &job);
    collector.stop().unwrap();
    let (stored, mut reader) = (only_job(environment), environment.reader());
    let begin_ns = job.descriptor.started_us * 1000;
    let mut expected = FiringRow {
        time_ns: begin_ns + (KEPT.end * SECOND_US - STEP_US) * 1000,
        node: "n1".to_owned(),
        rule: "oom".to_owned(),
        actor: Some("uid 1000".to_owned()),
        why: "the kernel killed a process".to_owned(),
        actions: "keeps 3 s".to_owned(),
        trigger: TRIGGER.cast_signed(),
        begin_ns: Some(begin_ns + KEPT.start * SECOND_US * 1000),
        end_ns: Some(begin_ns + KEPT.end * SECOND_US * 1000),
        nodes_asked: None,
        nodes_missing: BTreeMap::new(),
    };
    assert_eq!(reader.firings(stored.job_key).unwrap(), [expected.clone()]);
    assert!(reader.firings(stored.job_key + 1).unwrap().is_empty());
    let missing = BTreeMap::from([("n7".to_owned(), "no \"answer\"".to_owned())]);
    let mut table = FiringTable::open(&environment.url()).unwrap();
    table.record(stored.job_key, TRIGGER, 2, &missing).unwrap();
    (expected.nodes_asked, expected.nodes_missing) = (Some(2), missing);
    assert_eq!(reader.firings(stored.job_key).unwrap(), [expected]);
    environment.execute("UPDATE trigger_firing SET actor = NULL, started = NULL, ended = NULL");
    let row = environment.reader().firings(stored.job_key).unwrap().remove(0);
    assert_eq!((row.actor, row.begin_ns, row.end_ns), (None, None, None));
}

fn kept_samples_are_removed_with_the_others(environment: &mut TestEnvironment) {
    let day_us = 86_400 * SECOND_US;
    let mut config = environment.config();
    config.clock.max_age = std::time::Duration::from_secs(500 * 86_400);
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let jobs = [(1, "old", 40), (2, "kept", 40), (3, "new", 2)];
    for (handle, id, days) in jobs {
        send(&mut agent, &job(handle, id, now_us() - days * day_us));
    }
    collector.stop().unwrap();
    environment.execute("UPDATE job SET ended = started; UPDATE job_node SET ended = started");
    let key = |id: &str| environment.jobs().into_iter().find(|job| job.job_id == id).unwrap().job_key;
    let mut administration = Administration::open(&environment.url()).unwrap();
    administration.keep(key("kept"), None).unwrap();
    let keep = Keep::Days(30);
    let retention = Retention { samples: keep, ten_seconds: keep, minute: keep, hour: Keep::Forever };
    set_retention(&environment.url(), &retention).unwrap();
    for _ in 0..2 {
        prune(&environment.url(), None, |_, _| ()).unwrap();
        for (id, is_left) in [("old", false), ("kept", true), ("new", true)] {
            let key = key(id);
            let samples = format!(
                "SELECT count(*) FROM kept_sample WHERE series_id IN (SELECT series_id FROM series WHERE job_key = {key})"
            );
            let intervals = format!("SELECT count(*) FROM kept_interval WHERE job_key = {key}");
            let found = (environment.number(&samples), environment.number(&intervals));
            assert_eq!(found, if is_left { (90, 1) } else { (0, 0) }, "{id}");
        }
    }
}

fn statements_use_the_indexes(environment: &mut TestEnvironment) {
    let job = job(1, "7", now_us() - 100 * SECOND_US);
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send(&mut agent, &job);
    collector.stop().unwrap();
    // Other jobs have far more samples.
    let many = match environment.kind {
        Kind::Sqlite => return,
        Kind::Postgres | Kind::Timescale | Kind::Citus => {
            "INSERT INTO kept_interval SELECT 1000 + n, 'n1', now(), now(), n, 'r', 1 FROM generate_series(1, 20000) AS n;
             INSERT INTO kept_sample SELECT now() - make_interval(secs => n % 3000 * 0.01), 1000 + n % 100, n
                 FROM generate_series(1, 300000) AS n;
             INSERT INTO trigger_firing SELECT n, 1000 + n, 'n1', now(), 'r', NULL, NULL, NULL, 'w', 'a'
                 FROM generate_series(1, 20000) AS n;
             ANALYZE trigger_firing; ANALYZE kept_interval; ANALYZE kept_sample"
        }
    };
    environment.execute(many);
    let (stored, mut reader) = (only_job(environment), environment.reader());
    let ids: Vec<i64> =
        reader.series(SeriesScope::Job(stored.job_key)).unwrap().iter().map(|row| row.series_id).collect();
    reader.record_plans();
    assert_eq!(reader.kept_intervals(stored.job_key).unwrap().len(), 1);
    assert_eq!(reader.firings(stored.job_key).unwrap().len(), 1);
    for set in [SampleSet::Kept, SampleSet::All] {
        assert!(!samples(&mut reader, set, stored.job_key, &ids, &stored.sampled_ns).is_empty());
    }
    let plans = reader.take_plans();
    let about_kept: Vec<&String> =
        plans.iter().filter(|plan| plan.contains("kept_") || plan.contains("trigger_firing")).collect();
    assert!(about_kept.len() >= 4, "{plans:?}");
    for plan in about_kept {
        let indexes = ["kept_sample_by_series", "kept_interval_by_job", "trigger_firing_by_job"];
        assert!(indexes.iter().any(|index| plan.contains(index)), "{plan}");
        assert!(!plan.contains("Seq Scan on kept_") && !plan.contains("Seq Scan on trigger_"), "{plan}");
    }
}
