//! Frames with a dictionary, a ledger and events.

use std::sync::Arc;

use polymeter_proto::batch::{Batch, Column, Job, Shape};
use polymeter_proto::ledger::{
    Cause, Event, Firing, JobDetails, JobDetailsUpdate, JobFacts, JobFactsUpdate, JobOwner, KeptInterval,
    LedgerEntry, Mark, MarkKind, PlanChange, RequestRefused, Tally,
};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::run::Run;
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, Processors, Roofs,
    SeriesDescriptor, SeriesId, SessionDescriptor, ShapeDescriptor, ShapeId, Unit,
};
use polymeter_proto::stacks::{
    FunctionDescriptor, FunctionId, FunctionName, StackCount, StackDescriptor, StackId, StackInterval,
};
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Extras;

use super::common::{Wire, batch_of, shape};
use super::samples::tick;
use super::{Direction, Golden, T0};

fn session_descriptor() -> SessionDescriptor {
    SessionDescriptor {
        node: "node17".try_into().unwrap(),
        agent_version: "0.1.0".try_into().unwrap(),
        started_us: T0 - 1,
        processors: Processors {
            cpus: Some(128),
            cores: Some(64),
            roofs: Some(Roofs {
                memory_bytes_per_s: 380_000_000_000,
                double_flop_per_s: 2_400_000_000_000,
                single_flop_per_s: 4_800_000_000_000,
            }),
        },
    }
}

fn jobs() -> [Job; 2] {
    [
        JobDescriptor {
            job_id: "4711".try_into().unwrap(),
            cluster: Some("grisou".try_into().unwrap()),
            owner_uid: Some(100_000),
            owner: Some("zoë".try_into().unwrap()),
            started_us: T0,
        },
        JobDescriptor {
            job_id: "4712_[3]".try_into().unwrap(),
            cluster: None,
            owner_uid: None,
            owner: None,
            started_us: -1,
        },
    ]
    .map(|descriptor| Job { handle: JobHandle(if descriptor.started_us < 0 { 251 } else { 1 }), descriptor })
}

fn metric(id: u32, unit: Unit) -> Entry {
    let (kind, number) = match id % 3 {
        0 => (Kind::Counter, Number::Unsigned),
        1 => (Kind::Gauge, Number::Signed),
        _ => (Kind::Gauge, Number::Float),
    };
    let name = MetricName::new(format!("test.{}", unit.as_str())).unwrap();
    Entry::Metric(MetricId(id), MetricDescriptor { name, unit, kind, number })
}

fn series(id: u32, metric: u32, job: Option<u32>, labels: Vec<(String, String)>) -> Entry {
    let labels = Labels::new(labels).unwrap();
    let descriptor = SeriesDescriptor { metric: MetricId(metric), job: job.map(JobHandle), labels };
    Entry::Series(SeriesId(id), descriptor)
}

/// Entries of every kind, unit, kind of metric and number.
pub(super) fn dictionary() -> Vec<Entry> {
    let units = [
        Unit::Bytes,
        Unit::Nanoseconds,
        Unit::Percent,
        Unit::Pages,
        Unit::Sectors,
        Unit::Cycles,
        Unit::Count,
    ];
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut entries = vec![Entry::Session(session_descriptor())];
    entries.extend((0..).zip(units).map(|(id, unit)| metric(id, unit)));
    entries.extend(jobs().map(|job| Entry::Job(job.handle, job.descriptor)));
    entries.extend([
        series(0, 0, None, vec![]),
        series(250, 1, Some(1), vec![label("cpu", "3"), label("node", "1")]),
        series(251, 6, Some(251), vec![label("device", "dm-0 größe")]),
        series(65_536, 2, Some(251), vec![]),
        Entry::Shape(
            ShapeId(u32::MAX),
            ShapeDescriptor {
                source: "proc/stat".try_into().unwrap(),
                inner_period: None,
                series: [0, 250, 251, 65_536].map(SeriesId).into(),
            },
        ),
        Entry::Shape(
            ShapeId(0),
            ShapeDescriptor {
                source: "größe".try_into().unwrap(),
                inner_period: Some(Period::MILLISECOND),
                series: vec![],
            },
        ),
    ]);
    entries
}

/// Returns the first frame of a session, as an agent sends it: session, dictionary and samples.
fn first_frame() -> Vec<u8> {
    let name = MetricName::new("memory.current").unwrap();
    let metric = MetricDescriptor { name, unit: Unit::Bytes, kind: Kind::Gauge, number: Number::Unsigned };
    let column = Column { series: SeriesId(1), metric: (MetricId(1), metric), labels: Labels::default() };
    let [job, _] = jobs();
    let period = Period::SECOND;
    let source = "memory.stat".try_into().unwrap();
    let shape = Arc::new(Shape {
        id: ShapeId(1),
        job: Some(Arc::new(job)),
        source,
        period,
        window: None,
        columns: vec![column],
    });
    let mut wire = Wire::default();
    let mut entries = vec![Entry::Session(session_descriptor())];
    wire.announced.announce(&shape, &mut entries);
    let rows = [(tick(0, 1_000_000, 14), vec![Some(8192)]), (tick(1, 1_000_000, 15), vec![Some(12288)])];
    wire.encode_with(&batch_of(&shape, &rows), Extras { dictionary: &entries, ..Extras::default() })
}

/// Tallies of two shapes of which the second has three times as many columns, and of a source without one.
fn shape_tallies() -> Vec<u8> {
    let mut wire = Wire::default();
    let shapes = [shape(7, 1_000, &[Number::Unsigned]), shape(8, 1_000, &[Number::Unsigned; 3])];
    let mut batch = Batch::default();
    let mut ledger = ledger();
    for (of, columns) in shapes.iter().zip([1, 3]) {
        batch.add_shape(of);
        let tally = Tally {
            due: 1000 * columns,
            taken: 990 * columns,
            late: 20 * columns,
            missed: 10 * columns,
            ..Tally::default()
        };
        let job = of.job.as_ref().map(|job| job.handle);
        ledger.insert(0, LedgerEntry { job, source: of.source.clone(), tally });
    }
    wire.encode_with(&batch, Extras { ledger: &ledger, ..Extras::default() })
}

fn ledger() -> Vec<LedgerEntry> {
    let entry = |job: Option<u32>, source: &str, tally| LedgerEntry {
        job: job.map(JobHandle),
        source: source.try_into().unwrap(),
        tally,
    };
    vec![
        entry(None, "meminfo", Tally::default()),
        entry(
            Some(1),
            "memory.stat",
            Tally {
                due: 250,
                taken: 251,
                late: 65_535,
                missed: 65_536,
                absent: 1 << 32,
                dropped: u64::MAX,
                not_kept: 9,
            },
        ),
    ]
}

fn events() -> Vec<Event> {
    let change = |cause, old: Option<u64>, new: Option<u64>| PlanChange {
        at_us: T0,
        job: None,
        level: None,
        metric: MetricName::new("cpu.usage").unwrap(),
        old: old.map(sampling),
        new: new.map(sampling),
        cause,
        by: None,
        until_us: None,
    };
    vec![
        Event::PlanChange(change(Cause::Baseline, None, Some(1_000_000))),
        Event::PlanChange(PlanChange {
            job: Some(JobHandle(1)),
            by: Some("zoë".try_into().unwrap()),
            until_us: Some(T0 + 60_000_000),
            ..change(Cause::Registration, Some(1_000_000), Some(100))
        }),
        Event::PlanChange(change(Cause::JobEnd, Some(86_400_000_000), None)),
        Event::PlanChange(change(Cause::Reload, Some(100), Some(86_400_000_000))),
        Event::PlanChange(change(Cause::Governor, Some(1_000), Some(2_000))),
        Event::JobEnded { job: JobHandle(1), at_us: -1 },
        Event::Mark(Mark {
            at_us: T0 + 1,
            job: Some(JobHandle(1)),
            name: "solver".try_into().unwrap(),
            kind: MarkKind::Begin,
            by: Some("uid 1000".try_into().unwrap()),
        }),
        Event::JobFacts(JobFactsUpdate {
            job: JobHandle(1),
            is_over: false,
            facts: JobFacts {
                account: Some("physics".try_into().unwrap()),
                queue: Some("long".try_into().unwrap()),
                nodes: Some("n[1-2]".try_into().unwrap()),
                cores: Some(256),
                ..JobFacts::default()
            },
        }),
        Event::JobFacts(JobFactsUpdate {
            job: JobHandle(1),
            is_over: true,
            facts: JobFacts {
                state: Some("FAILED".try_into().unwrap()),
                exit_code: Some(3),
                exit_signal: Some(0),
                unread: Some("--tres mem=4.69Z".into()),
                ..JobFacts::default()
            },
        }),
    ]
}

fn refused(request: &str, period: Option<u64>, reason: &str) -> Event {
    Event::RequestRefused(RequestRefused {
        at_us: T0 + 2,
        job: JobHandle(1),
        request: request.into(),
        period: period.map(sampling),
        by: Some("uid 1000".try_into().unwrap()),
        reason: reason.into(),
    })
}

fn events_of_jobs() -> Vec<Event> {
    vec![
        Event::JobOwner(JobOwner {
            job: JobHandle(1),
            uid: Some(100_000),
            name: Some("zoë".try_into().unwrap()),
        }),
        Event::JobOwner(JobOwner { job: JobHandle(251), uid: Some(0), name: None }),
        refused("cpu.*", Some(100), "the shortest period allowed is 10ms"),
        refused("faster", None, "it names no period"),
    ]
}

fn firings() -> Vec<Event> {
    let firing = |keeps_us, by: Option<&str>| {
        Event::Fired(Firing {
            job: JobHandle(1),
            trigger: u64::MAX >> 1,
            rule: "oom".try_into().unwrap(),
            by: by.map(|by| by.try_into().unwrap()),
            at_us: T0,
            keeps_us,
            notice: by.is_none(),
            why: "the kernel killed a process for lack of memory".into(),
            actions: "keeps 35 s".into(),
        })
    };
    vec![firing(Some((T0 - 30, T0 + 5)), None), firing(None, Some("uid 1000"))]
}

/// Returns a frame of samples that a ring has kept, with the ends of two intervals.
fn kept() -> Vec<u8> {
    let kept = |begin_us, samples, reason: &str| {
        Event::Kept(KeptInterval {
            job: JobHandle(1),
            begin_us,
            end_us: T0 + 5_000_000,
            trigger: u64::MAX >> 1,
            reason: reason.into(),
            samples,
        })
    };
    let events = [
        kept(T0 - 30_000_000, 4, "oom: the kernel killed a process for lack of memory"),
        kept(i64::MIN, u64::MAX, ""),
    ];
    let rows = [1, 2].map(|number| (tick(number, 1_000, 14), vec![Some(number), Some(7)]));
    let batch = batch_of(&shape(9, 1_000, &[Number::Unsigned; 2]), &rows);
    Wire::default().encode_with(&batch, Extras { events: &events, is_kept: true, ..Extras::default() })
}

fn job_details() -> Vec<Event> {
    let details = JobDetails {
        name: Some("solver (run 3)".into()),
        display_id: Some("4009_1".try_into().unwrap()),
        time_limit_s: Some(86_400),
        memory_bytes: Some(1 << 37),
        gpus: Some(8),
        restarts: Some(0),
        run: Some(Box::new(Run::of(
            [b"./solver".as_slice(), b"-x 1"].into_iter(),
            Some(b"/home/zoe"),
            Some(b"n1"),
            [("OMP_NUM_THREADS", b"4".to_vec())].into_iter(),
        ))),
        scheduler: Some("slurm".try_into().unwrap()),
        node_cores: Some(64),
        node_gpus: Some(4),
    };
    [(1, details), (251, JobDetails::default())]
        .map(|(job, details)| Event::JobDetails(JobDetailsUpdate { job: JobHandle(job), details }))
        .into()
}

/// Returns the sampling at a period, in windows if it is 2 ms.
fn sampling(period_us: u64) -> Sampling {
    let period = Period::from_micros(period_us).unwrap();
    Sampling { period, window: (period_us == 2_000).then_some(Period::SECOND), has_histogram: false }
}

fn step_plan_changes() -> Vec<Event> {
    let change = |level, old: Option<u64>, new: Option<u64>, cause| {
        Event::PlanChange(PlanChange {
            at_us: T0 + 3,
            job: Some(JobHandle(1)),
            level: Some(level),
            metric: MetricName::new("cpu.usage").unwrap(),
            old: old.map(sampling),
            new: new.map(sampling),
            cause,
            by: Some("uid 1000".try_into().unwrap()),
            until_us: Some(T0 + 60_000_000),
        })
    };
    vec![
        change(StepLevel::Step, None, Some(10_000), Cause::Lease),
        change(StepLevel::Task, Some(5_000_000), None, Cause::LeaseEnd),
    ]
}

fn frame_of_extras(dictionary: &[Entry], ledger: &[LedgerEntry], events: &[Event]) -> Vec<u8> {
    Wire::default()
        .encode_with(&Batch::default(), Extras { dictionary, ledger, events, stacks: &[], is_kept: false })
}

fn function(id: u32, name: &[u8], module: Option<&str>) -> Entry {
    let (name, module) = (FunctionName::escaped(name), module.map(|module| module.try_into().unwrap()));
    Entry::Function(FunctionId(id), FunctionDescriptor { job: JobHandle(1), name, module })
}

fn stack(id: u32, parent: Option<u32>, function: u32) -> Entry {
    let (parent, function) = (parent.map(StackId), FunctionId(function));
    Entry::Stack(StackId(id), StackDescriptor { parent, function })
}

/// Returns a frame with a metric, a job, their stacks and two intervals.
fn stacks() -> Vec<u8> {
    let metric = MetricDescriptor {
        name: MetricName::new("stacks.cpu").unwrap(),
        unit: Unit::Count,
        kind: Kind::Counter,
        number: Number::Unsigned,
    };
    let [job, _] = jobs();
    let dictionary = [
        Entry::Metric(MetricId(7), metric),
        Entry::Job(job.handle, job.descriptor),
        function(1, b"main", Some("solve")),
        function(2, "größe<int>::f(char const*)".as_bytes(), Some("libsolve.so.1")),
        function(3, b"", Some("solve")),
        function(251, b"", None),
        stack(1, None, 1),
        stack(2, Some(1), 2),
        stack(3, Some(2), 3),
        stack(65_536, None, 251),
    ];
    let count = |process, stack, count| StackCount { process, stack: StackId(stack), count };
    let empty = StackInterval {
        metric: MetricId(7),
        job: JobHandle(1),
        begin_us: -1,
        end_us: 0,
        period: Period::TEN_MILLISECONDS,
        counts: vec![],
        lost: 0,
        throttled: 0,
        cut: 0,
        unresolved: 0,
    };
    let full = StackInterval {
        begin_us: T0,
        end_us: T0 + 1_000_000,
        counts: vec![count(4711, 2, 75), count(4711, 1, 20), count(u32::MAX, 65_536, u64::MAX)],
        lost: 3,
        throttled: 1,
        cut: 251,
        unresolved: 65_536,
        ..empty.clone()
    };
    let stacks = [full, empty];
    let extras = Extras { dictionary: &dictionary, stacks: &stacks, ..Extras::default() };
    Wire::default().encode_with(&Batch::default(), extras)
}

pub(super) fn all() -> Vec<Golden> {
    let frame = |name, bytes| (name, Direction::Frame, bytes);
    vec![
        frame("empty", frame_of_extras(&[], &[], &[])),
        frame("first_frame", first_frame()),
        frame("dictionary", frame_of_extras(&dictionary(), &[], &[])),
        frame("ledger", frame_of_extras(&[], &ledger(), &[])),
        frame("shape_tallies", shape_tallies()),
        frame("events", frame_of_extras(&[], &[], &events())),
        frame("firings", frame_of_extras(&[], &[], &firings())),
        frame("kept", kept()),
        frame("session_ended", frame_of_extras(&[], &[], &[Event::SessionEnded { at_us: T0 + 2 }])),
        frame("job_details", frame_of_extras(&[], &[], &job_details())),
        frame("step_plan_changes", frame_of_extras(&[], &[], &step_plan_changes())),
        frame("stacks", stacks()),
        frame("events_of_jobs", frame_of_extras(&[], &[], &events_of_jobs())),
    ]
}
