//! Tests of the energy and the traffic of jobs: from the counters of nodes, as the owner of a job reads them.

use std::sync::Arc;

use polymeter_analysis::gather::gather;
use polymeter_analysis::job_usage::{job_energy, job_usage};
use polymeter_analysis::model::{Energy, Report};
use polymeter_proto::batch::{Column, Job, Shape};
use polymeter_proto::ledger::Event;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::read::{Query, SampleSet};
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind as MetricKind, Labels, MetricDescriptor, MetricId, Number, SeriesId,
    ShapeId, Unit,
};
use polymeter_store::JobUsageTable;
use polymeter_store::reader::{Access, GuardedReader, JobRow, Read, RowBlock, SeriesOwner};

use crate::support::agent::{Agent, job};
use crate::support::{TestEnvironment, now_us};

scenarios! {
    a_user_reads_the_energy_of_own_jobs,
}

const SECOND_US: i64 = 1_000_000;

pub(crate) const ALICE: u32 = 64_001;
pub(crate) const BOB: u32 = 64_002;

/// Length of the recording, and the time of the jobs in it.
const RECORDED_S: i64 = 1200;
pub(crate) const BEGIN_S: i64 = 300;
pub(crate) const END_S: i64 = 900;

/// Times at which counters of energy misbehave.
const LATE_S: i64 = 600;
const RESTART_S: i64 = 700;

pub(crate) fn owned(handle: u32, job_id: &str, uid: u32, started_us: i64) -> Arc<Job> {
    let Job { descriptor, .. } = (*job(handle, job_id, started_us)).clone();
    let descriptor = JobDescriptor { owner_uid: Some(uid), owner: None, ..descriptor };
    Arc::new(Job { handle: JobHandle(handle), descriptor })
}

fn column(series: u32, metric: u32, name: &'static str, unit: Unit, package: Option<&str>) -> Column {
    let number = if unit == Unit::Joules { Number::Float } else { Number::Unsigned };
    let labels = package.map(|package| ("package".to_owned(), package.to_owned()));
    Column {
        series: SeriesId(series),
        metric: (
            MetricId(metric),
            MetricDescriptor {
                name: MetricName::new(name).unwrap(),
                unit,
                kind: MetricKind::Counter,
                number,
            },
        ),
        labels: Labels::new(labels.into_iter().collect()).unwrap(),
    }
}

fn shape(id: u32, job: Option<&Arc<Job>>, columns: Vec<Column>) -> Arc<Shape> {
    let source = "source".try_into().unwrap();
    Arc::new(Shape {
        id: ShapeId(id),
        job: job.cloned(),
        source,
        period: Period::SECOND,
        window: None,
        columns,
    })
}

/// Sends the samples of a node with two packages of 100 W and 50 W, four busy cores, and a port that receives
/// 1 MB/s; each of its jobs uses as many cores as given. The jobs run in the middle of the recording.
pub(crate) fn record(agent: &mut Agent, begin_us: i64, jobs: &[(&Arc<Job>, u64)], is_faulty: bool) {
    let of_node = shape(
        1,
        None,
        vec![
            column(1, 1, "node.energy.package", Unit::Joules, Some("0")),
            column(2, 1, "node.energy.package", Unit::Joules, Some("1")),
            column(3, 2, "node.cpu.user", Unit::Nanoseconds, None),
            column(4, 4, "node.infiniband.receive.bytes", Unit::Bytes, None),
        ],
    );
    let shapes: Vec<_> = jobs
        .iter()
        .zip(2..)
        .map(|((job, cores), id)| {
            (shape(id, Some(job), vec![column(id * 10, 3, "cpu.usage", Unit::Nanoseconds, None)]), *cores)
        })
        .collect();
    for second in (0..RECORDED_S).step_by(5) {
        let (at_us, seconds) = (begin_us + second * SECOND_US, u64::try_from(second).unwrap());
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let joules = |watts: f64, before: f64| Some((before + watts * seconds as f64).to_bits());
        // The counter of one package may be behind for a moment, and that of the other one restart.
        let first = joules(100.0, if is_faulty && second == LATE_S { 1e6 - 600.0 } else { 1e6 });
        let other = joules(50.0, if is_faulty && second >= RESTART_S { -35_000.0 } else { 1e6 });
        let node = [first, other, Some(seconds * 4_000_000_000), Some(seconds * 1_000_000)];
        let mut rows = vec![(&of_node, at_us, node.to_vec())];
        if (BEGIN_S..=END_S).contains(&second) {
            rows.extend(shapes.iter().map(|(shape, cores)| {
                let used_ns = (seconds - 300) * *cores * 1_000_000_000;
                (shape, at_us, vec![Some(used_ns)])
            }));
        }
        let rows: Vec<_> =
            rows.iter().map(|(shape, at_us, values)| (*shape, *at_us, values.as_slice())).collect();
        agent.frame(&rows, &[], &[]);
    }
    let at_us = begin_us + END_S * SECOND_US;
    let ends: Vec<Event> = jobs.iter().map(|(job, _)| Event::JobEnded { job: job.handle, at_us }).collect();
    agent.frame(&[], &[], &ends);
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

fn report(environment: &TestEnvironment, access: Access, job: &JobRow) -> Report {
    let mut reader = GuardedReader::new(environment.reader(), access);
    gather(&mut reader, job, Some(4)).unwrap()
}

fn assert_near(energy: Option<&Energy>, joules: f64, is_estimate: bool) {
    let energy = energy.unwrap();
    assert!((energy.joules / joules - 1.0).abs() < 0.02, "{energy:?}, not {joules}");
    assert_eq!((energy.is_estimate, energy.nodes), (is_estimate, 1));
}

/// Stores the figures of all jobs, as a collector does some time after their ends.
pub(crate) fn summarise(environment: &mut TestEnvironment) {
    environment.execute("UPDATE job_usage SET claimed_until = ended");
    let mut table = JobUsageTable::open(&environment.url()).unwrap();
    for job in environment.jobs() {
        let report = gather(&mut environment.reader() as &mut dyn Read, &job, None).unwrap();
        let (usage, energy) = (job_usage(&report), job_energy(&report));
        table.put(job.job_key, job.ended_ns.unwrap() / 1000, None, &usage, &energy).unwrap();
    }
}

/// The view has the figures of the report: those that count, and the sources beside them.
pub(crate) fn assert_view_agrees(environment: &TestEnvironment, job: &JobRow) {
    let report = report(environment, Access::All, job);
    let energy = report.energy.unwrap();
    let select = |what: &str, condition: &str| {
        environment.lines(&format!(
            "SELECT {what} FROM energy_by_job WHERE job_key = {} AND {condition} ORDER BY 1",
            job.job_key
        ))
    };
    let counted: f64 = select("CAST(joules AS text)", "is_counted")
        .iter()
        .map(|joules| joules.parse::<f64>().unwrap())
        .sum();
    assert!((counted / energy.joules - 1.0).abs() < 1e-9, "{counted}, not {energy:?}");
    let method = if energy.is_estimate { "estimated" } else { "measured" };
    let mut parts: Vec<String> = energy.parts.iter().map(|part| format!("{} {method}", part.part)).collect();
    parts.sort();
    assert_eq!(select("DISTINCT part || ' ' || method", "is_counted"), parts);
    let mut beside: Vec<(String, f64)> = report
        .energy_sources
        .iter()
        .filter(|source| source.part == "node")
        .map(|source| (format!("{} {} {}", source.node, source.name, source.is_best), source.joules))
        .collect();
    beside.sort_by(|one, other| one.0.cmp(&other.0));
    let flag = "CASE WHEN is_counted THEN 'true' ELSE 'false' END";
    let row = format!("node || ' ' || source || ' ' || {flag} || ' ' || CAST(joules AS text)");
    let found = select(&row, "error_joules IS NOT NULL AND part = 'node'");
    assert_eq!(found.len(), beside.len(), "{found:?}, not {beside:?}");
    for (row, (expected, joules)) in found.iter().zip(beside) {
        let (found, of_row) = row.rsplit_once(' ').unwrap();
        assert_eq!(found, expected);
        assert!((of_row.parse::<f64>().unwrap() / joules - 1.0).abs() < 1e-9, "{row}, not {joules}");
    }
}

fn a_user_reads_the_energy_of_own_jobs(environment: &mut TestEnvironment) {
    let collector = environment.collector();
    let begin_us = now_us() - 2 * 3600 * SECOND_US;
    let started_us = begin_us + BEGIN_S * SECOND_US;
    let alone = owned(1, "1", ALICE, started_us);
    let sharing = [owned(1, "2", ALICE, started_us), owned(2, "3", BOB, started_us)];
    record(&mut Agent::to(&environment.context, &collector, "n1", 1), begin_us, &[(&alone, 2)], true);
    let of_both = [(&sharing[0], 3), (&sharing[1], 1)];
    record(&mut Agent::to(&environment.context, &collector, "n2", 2), begin_us, &of_both, true);
    collector.stop().unwrap();
    let mut jobs = environment.jobs();
    jobs.sort_by(|one, other| one.job_id.cmp(&other.job_id));
    assert_eq!(jobs.len(), 3);
    summarise(environment);
    for job in &jobs {
        assert_view_agrees(environment, job);
    }
    let ran_s = 600.0;
    for access in [Access::owner(ALICE), Access::All] {
        let own = report(environment, access.clone(), &jobs[0]);
        assert_near(own.energy.as_ref(), 150.0 * ran_s, false);
        assert!((own.by_node[0].energy_joules.unwrap() / (150.0 * ran_s) - 1.0).abs() < 0.02);
        let [traffic] = &own.traffic[..] else { panic!("{:?}", own.traffic) };
        assert_eq!((traffic.name, traffic.nodes, traffic.sent_bytes), ("infiniband", 1, 0.0));
        assert!((traffic.received_bytes / (1e6 * ran_s) - 1.0).abs() < 0.02, "{traffic:?}");
        assert_eq!(report(environment, access.clone(), &jobs[1]).traffic, [], "the node was shared");
        // 3 of 4 busy cores.
        assert_near(report(environment, access, &jobs[1]).energy.as_ref(), 150.0 * ran_s * 0.75, true);
    }
    assert_near(
        report(environment, Access::owner(BOB), &jobs[2]).energy.as_ref(),
        150.0 * ran_s * 0.25,
        true,
    );
    // Traffic belongs to a job that has the node alone.
    let (first_us, last_us) = (started_us, begin_us + (END_S - 5) * SECOND_US);
    for (job, expected) in jobs.iter().zip([Some((Some(595_000_000.0), first_us, last_us)), None]) {
        let report = report(environment, Access::owner(ALICE), job);
        let series = report.series.iter().find(|series| series.metric == "node.infiniband.receive.bytes");
        assert_eq!(series.map(|series| (series.growth, series.first_us, series.last_us)), expected);
    }
    // The series of the nodes of another user's job, and those of the own nodes long before the job, are not
    // readable.
    assert!(report(environment, Access::owner(BOB), &jobs[0]).energy.is_none());
    let mut reader = GuardedReader::new(environment.reader(), Access::owner(BOB));
    let reader: &mut dyn Read = &mut reader;
    assert!(reader.node_series(jobs[0].job_key, &["node.energy.package"]).unwrap().is_empty());
    let own = reader.node_series(jobs[2].job_key, &["node.energy.package"]).unwrap();
    assert_eq!(own.iter().map(|row| row.node.as_str()).collect::<Vec<_>>(), ["n2", "n2"]);
    let query = Query::Samples {
        of: SeriesOwner::NodesOf(jobs[2].job_key),
        series: (0..1000).collect(),
        span_ns: 0..i64::MAX,
        set: SampleSet::Plan,
    };
    let mut times_us = Vec::new();
    reader
        .read(&query, &mut |block| {
            let RowBlock::Samples(rows) = block else { panic!("{block:?}") };
            assert!(rows.iter().all(|row| own.iter().any(|series| series.series_id == row.series_id)));
            times_us.extend(rows.iter().map(|row| row.time_ns / 1000));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    let ends = (times_us.iter().min().copied(), times_us.iter().max().copied());
    let margin_us = 60 * SECOND_US;
    assert_eq!(
        ends,
        (Some(started_us - margin_us), Some(begin_us + END_S * SECOND_US + margin_us - 5 * SECOND_US))
    );
}
