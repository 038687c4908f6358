//! Scenarios of agents and a collector, each with every kind of store.

use std::sync::Arc;
use std::time::Duration;

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::batch::Shape;
use polymeter_proto::ledger::{
    Cause, Event, JobDetails, JobDetailsUpdate, JobFacts, JobFactsUpdate, LedgerEntry, PlanChange, Tally,
};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::run::Run;
use polymeter_proto::series::{JobHandle, Processors, Roofs, SessionId};
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};
use polymeter_store::StoreError;
use polymeter_store::reader::{CpusRow, JobFilter, JobRow, LedgerRow, Reader, SeriesRow, SeriesScope};

use crate::support::agent::{Agent, job, shape, values};
use crate::support::{TestEnvironment, now_us, only_job, wait_until};

scenarios! {
    stores_samples_jobs_and_events,
    repeated_frames_are_stored_once,
    requests_gaps_and_unknown_ids,
    skipped_frames_are_recorded_as_loss,
    restarted_collector_continues,
    invalid_messages_do_not_affect_others,
    a_reused_job_id_is_another_job,
    stop_commits_messages_in_the_socket,
}

/// Adds a frame of one row, `seed` seconds after `begin_us`.
fn add_row(agent: &mut Agent, shape: &Arc<Shape>, begin_us: i64, seed: i64) -> u64 {
    agent.frame(&[(shape, begin_us + seed * 1_000_000 + 7, &values(seed).0)], &[], &[])
}

fn add_rows(agent: &mut Agent, shape: &Arc<Shape>, begin_us: i64, seeds: std::ops::Range<i64>) {
    for seed in seeds {
        add_row(agent, shape, begin_us, seed);
    }
}

/// Checks that each series of `of` has exactly the samples of [`add_row`] for `seeds`.
fn assert_rows(
    environment: &TestEnvironment,
    of: SeriesScope<'_>,
    begin_us: i64,
    seeds: impl Iterator<Item = i64> + Clone,
) {
    let mut reader = environment.reader();
    let series = reader.series(of).unwrap();
    assert_eq!(
        series.iter().map(|series| series.metric.as_str()).collect::<Vec<_>>(),
        ["cpu.usage", "memory.margin", "node.load1"]
    );
    for (column, series) in series.iter().enumerate() {
        let expected: Vec<_> = seeds
            .clone()
            .map(|seed| ((begin_us + seed * 1_000_000 + 7) * 1000, values(seed).1[column]))
            .collect();
        assert_eq!(
            reader.points(series.series_id, i64::MIN..i64::MAX).unwrap(),
            expected,
            "{}",
            series.metric
        );
    }
}

fn scheduler_facts() -> [Event; 4] {
    let update = |is_over, facts| Event::JobFacts(JobFactsUpdate { job: JobHandle(1), is_over, facts });
    let begun = JobFacts {
        account: Some("physics".try_into().unwrap()),
        cores: Some(256),
        state: Some("RUNNING".try_into().unwrap()),
        ..JobFacts::default()
    };
    let over = JobFacts {
        state: Some("FAILED".try_into().unwrap()),
        exit_code: Some(3),
        unread: Some("--tres mem=4.69Z".into()),
        ..JobFacts::default()
    };
    let detailed = |details| Event::JobDetails(JobDetailsUpdate { job: JobHandle(1), details });
    let named = JobDetails {
        name: Some("a solver".into()),
        display_id: Some("4700_11".try_into().unwrap()),
        time_limit_s: Some(60),
        memory_bytes: Some(1 << 40),
        run: Some(Box::new(run())),
        ..JobDetails::default()
    };
    let later = JobDetails { time_limit_s: Some(120), gpus: Some(8), restarts: Some(0), ..on_node() };
    [detailed(named), update(false, begun), detailed(later), update(true, over)]
}

fn run() -> Run {
    let command = [b"./a.out".as_slice(), b"", b"it's \n\xff"];
    let variables = [("A", b"x \"y\"".to_vec())];
    Run::of(command.into_iter(), Some(b"/srv"), Some(b"n1"), variables.into_iter())
}

const ROOFS: Roofs = Roofs {
    memory_bytes_per_s: 380_000_000_000,
    double_flop_per_s: 2_400_000_000_000,
    single_flop_per_s: 4_800_000_000_000,
};

fn processors(are_known: bool) -> Processors {
    Processors { cpus: Some(96), cores: are_known.then_some(48), roofs: are_known.then_some(ROOFS) }
}

/// Details that a prolog sends about its node.
fn on_node() -> JobDetails {
    let scheduler = Some("slurm".try_into().unwrap());
    JobDetails { scheduler, node_cores: Some(24), node_gpus: Some(2), ..JobDetails::default() }
}

fn assert_scheduler_facts(found: &JobRow) {
    assert_eq!(found.scheduler.as_deref(), Some("slurm"));
    assert_eq!(
        (found.account.as_deref(), found.queue.as_deref(), found.cores),
        (Some("physics"), None, Some(256))
    );
    assert_eq!((found.state.as_deref(), found.exit_code, found.exit_signal), (Some("FAILED"), Some(3), None));
    assert_eq!((found.name.as_deref(), found.display_id.as_deref()), (Some("a solver"), Some("4700_11")));
    assert_eq!((found.time_limit_s, found.memory_bytes), (Some(120), Some(1 << 40)));
    assert_eq!((found.gpus, found.restarts), (Some(8), Some(0)));
    assert_eq!(found.run.as_deref(), Some(&run()));
    assert_eq!(found.unread.as_deref(), Some("--tres mem=4.69Z"));
}

fn keys_named(reader: &mut Reader, name: &str) -> Vec<i64> {
    let filter = JobFilter { named: Some(name.to_owned()), ..JobFilter::default() };
    reader.jobs(&filter).unwrap().iter().map(|job| job.job_key).collect()
}

/// Finds the job by every form of its ids, and no other.
fn assert_found_by_name(reader: &mut Reader, found: &JobRow) {
    for name in [found.job_id.as_str(), "4700_11", "4700"] {
        assert_eq!(keys_named(reader, name), [found.job_key], "{name}");
    }
    for name in ["470", "4700_1", "4700_", "47001", "4700+", "4701", ""] {
        assert_eq!(keys_named(reader, name), [0; 0], "{name}");
    }
}

/// Checks what the schedulers and the agents of the nodes said about the job, and that it is found.
fn assert_job(reader: &mut Reader, found: &JobRow) {
    assert_scheduler_facts(found);
    assert_found_by_name(reader, found);
    let of_nodes = reader.cpus(found.job_key).unwrap();
    let numbers = |row: &CpusRow| [row.cpus, row.cores, row.job_cores, row.job_gpus];
    assert_eq!(numbers(&of_nodes[0]), [Some(96), Some(48), Some(24), Some(2)]);
    assert_eq!(numbers(&of_nodes[1]), [Some(96), None, Some(24), Some(2)]);
    assert_eq!((of_nodes[0].roofs(), of_nodes[1].roofs()), (Some(ROOFS), None));
}

/// Checks the received tallies, and the counted rows of the source that sent no tally.
fn assert_ledger(ledger: &[LedgerRow], reported: Tally) {
    let counted = Tally { due: 60, taken: 60, ..Tally::default() };
    for (source, tally, stored) in [("memory.stat", reported, 0), ("stat", counted, 60)] {
        let rows = ledger.iter().filter(|row| row.source == source);
        let found: Vec<_> = rows.map(|row| (row.node.as_str(), row.tally, row.stored)).collect();
        assert_eq!(found, [("n1", tally, stored), ("n2", tally, stored)], "{source}");
    }
}

fn assert_complete(reader: &mut Reader, job: &JobRow, series: &[SeriesRow]) {
    let (mut ids, mut points) =
        (series.iter().map(|series| series.series_id).collect::<Vec<_>>(), Vec::new());
    let wanted = ids.iter().copied().collect();
    let read = reader.samples(SeriesScope::Job(job.job_key), &wanted, &job.sampled_ns, |sample| {
        points.push(sample);
        Ok::<_, StoreError>(())
    });
    read.unwrap();
    ids.sort_unstable();
    assert_eq!(points.len(), 6 * 20);
    assert!(points.is_sorted_by_key(|sample| (sample.series_id, sample.time_ns)));
    assert_eq!((points[0].series_id, points[119].series_id), (ids[0], ids[5]));
    let of_first = points.iter().filter(|point| point.series_id == series[0].series_id);
    let read: Vec<f64> = of_first.map(|point| point.value).collect();
    assert_eq!(read, (0..20).map(|seed| values(seed).1[0]).collect::<Vec<_>>());
}

fn stores_samples_jobs_and_events(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let collector = environment.collector();
    let tally = |due| Tally { due, taken: due - 1, late: 1, missed: 1, absent: 0, dropped: 0, not_kept: 0 };
    for (number, node) in ["n1", "n2"].into_iter().enumerate() {
        let mut agent = Agent::to(&environment.context, &collector, node, 100 + number as u64);
        agent.descriptor.processors = processors(number == 0);
        let job = job(1, "4711", begin_us + number as i64 * 1_000_000);
        let (own, of_job) = (shape(1, None), shape(2, Some(&job)));
        for seed in 0..20 {
            let (row, _) = values(seed);
            let time_us = begin_us + seed * 1_000_000 + 7;
            let entry = LedgerEntry {
                job: Some(JobHandle(1)),
                source: "memory.stat".try_into().unwrap(),
                tally: tally(seed as u64 + 1),
            };
            agent.frame(&[(&own, time_us, &row), (&of_job, time_us, &row)], &[entry], &[]);
        }
        let change = PlanChange {
            at_us: begin_us + 5,
            job: Some(JobHandle(1)),
            level: None,
            metric: MetricName::new("cpu.usage").unwrap(),
            old: Some(Sampling::raw(Period::SECOND)),
            new: None,
            cause: Cause::JobEnd,
            by: Some("ada".try_into().unwrap()),
            until_us: None,
        };
        let ended = Event::JobEnded { job: JobHandle(1), at_us: begin_us + 30_000_000 + number as i64 };
        let [named, begun, later, over] = scheduler_facts();
        let of_tasks = Event::PlanChange(PlanChange {
            level: Some(StepLevel::Task),
            cause: Cause::Lease,
            new: "1ms/1s".parse().ok(),
            ..change.clone()
        });
        agent.frame(&[], &[], &[named, begun, Event::PlanChange(change), of_tasks, later, ended, over]);
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
    let totals = collector.stop().unwrap();
    assert_eq!((totals.frames, totals.samples, totals.given_up), (42, 2 * 2 * 3 * 20, 0));

    let found = only_job(environment);
    assert_eq!(
        (found.job_id.as_str(), found.owner_uid, found.owner.as_deref()),
        ("4711", Some(1000), Some("ada"))
    );
    assert_eq!((found.started_ns, found.ended_ns), (begin_us * 1000, Some((begin_us + 30_000_001) * 1000)));
    assert_eq!(found.nodes, ["n1", "n2"]);
    let mut reader = environment.reader();
    assert_job(&mut reader, &found);
    let series = reader.series(SeriesScope::Job(found.job_key)).unwrap();
    assert_eq!(series.len(), 6);
    assert_eq!(series[2].labels.to_string(), "cpu=3,node=a=b");
    assert_eq!((series[0].unit.as_str(), series[0].kind.as_str()), ("nanoseconds", "counter"));
    assert_rows(environment, SeriesScope::Node("n2"), begin_us, 0..20);
    assert_complete(&mut reader, &found, &series);
    assert_ledger(&reader.ledger(found.job_key).unwrap(), tally(20));
    let (of_tasks, changes): (Vec<_>, Vec<_>) =
        reader.plan_changes(found.job_key).unwrap().into_iter().partition(|change| change.level.is_some());
    assert_eq!((of_tasks.len(), changes.len()), (2, 2));
    assert_eq!(of_tasks[1].level.as_deref(), Some("task"));
    assert!(of_tasks[1].new_sampling() == "1ms/1s".parse().ok() && of_tasks[1].cause == "lease");
    assert_eq!(
        (changes[0].old_period_us, changes[0].new_period_us, changes[0].cause.as_str()),
        (Some(1_000_000), None, "job_end")
    );
    assert_eq!(changes[0].actor.as_deref(), Some("ada"));
    assert!(reader.last_losses(u32::MAX).unwrap().is_empty());
}

fn repeated_frames_are_stored_once(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let own = shape(1, None);
    for seed in 0..30 {
        let sequence = add_row(&mut agent, &own, begin_us, seed);
        agent.send(sequence);
        agent.send(sequence);
        agent.send(1);
    }
    agent.send_from(0);
    let frames = agent.outbox.clone();
    agent.wait_until_acknowledged();
    // The frames are sent again long after they were acknowledged.
    frames.values().for_each(|bytes| agent.send_bytes(bytes));
    assert_eq!(agent.expect_answer(), ToAgent::Ack { session: SessionId(1), through: 30 });
    let totals = collector.stop().unwrap();
    assert_eq!((totals.frames, totals.samples), (30, 90));
    assert_rows(environment, SeriesScope::Node("n1"), begin_us, 0..30);
}

fn requests_gaps_and_unknown_ids(environment: &mut TestEnvironment) {
    let (begin_us, session) = (now_us(), SessionId(5));
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 5);
    let own = shape(1, None);
    add_rows(&mut agent, &own, begin_us, 0..4);
    agent.send(3);
    agent.send(4);
    assert_eq!(agent.expect_answer(), ToAgent::Resend { session, from: 1 });
    agent.send_from(1);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();

    // The new collector only knows the last sequence number of the session.
    let collector = environment.collector();
    let sequence = add_row(&mut agent, &own, begin_us, 4);
    wait_until("the collector requests the dictionary", || {
        agent.send(sequence);
        agent.receive(100) == Some(ToAgent::NeedDictionary { session })
    });
    agent.send_bytes(&agent.dictionary().encode());
    agent.send(sequence);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_rows(environment, SeriesScope::Node("n1"), begin_us, 0..5);
    assert!(environment.reader().last_losses(u32::MAX).unwrap().is_empty());
}

fn skipped_frames_are_recorded_as_loss(environment: &mut TestEnvironment) {
    let (begin_us, session) = (now_us(), SessionId(6));
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 6);
    let own = shape(1, None);
    add_rows(&mut agent, &own, begin_us, 0..6);
    agent.send(1);
    agent.send(2);
    let span_us = (begin_us + 2_000_007, begin_us + 3_000_007);
    let skipped = |first, last, reason| {
        let lost = match reason {
            SkipReason::AlreadyAcknowledged | SkipReason::Damaged => Vec::new(),
            SkipReason::OutboxFull | SkipReason::Refused => {
                vec![Lost { job: None, source: "stat".try_into().unwrap(), samples: 6 }]
            }
        };
        ToCollector::Skipped { session, first, last, reason, span_us, lost }
    };
    wait_until("two frames are committed", || {
        agent.send(1);
        agent.receive(100) == Some(ToAgent::Ack { session, through: 2 })
    });
    agent.skip(&skipped(3, 4, SkipReason::OutboxFull));
    agent.send_from(5);
    agent.wait_until_acknowledged();
    // The repeated skip is no loss. The skip of acknowledged frames, which are in another store, is a loss of
    // an unknown number.
    agent.skip(&skipped(3, 4, SkipReason::OutboxFull));
    agent.skip(&skipped(7, 9, SkipReason::AlreadyAcknowledged));
    wait_until("the skips are acknowledged", || {
        agent.expect_answer() == ToAgent::Ack { session, through: 9 }
    });
    collector.stop().unwrap();
    assert_rows(environment, SeriesScope::Node("n1"), begin_us, [0, 1, 4, 5].into_iter());
    let losses = environment.reader().last_losses(u32::MAX).unwrap();
    let recorded: Vec<_> = losses.iter().map(|loss| (loss.samples, loss.reason.as_str())).collect();
    assert_eq!(recorded, [(6, "outbox_full"), (0, "store_replaced")], "{losses:?}");
    assert_eq!((losses[0].first_time_ns, losses[0].last_time_ns), (span_us.0 * 1000, span_us.1 * 1000));
}

fn restarted_collector_continues(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let own = shape(1, None);
    let mut agent = Agent::new(&environment.context, &environment.config().listen, "n1", 7);
    for run in 0..3 {
        let collector = environment.collector();
        for seed in run * 10..run * 10 + 10 {
            let sequence = add_row(&mut agent, &own, begin_us, seed);
            agent.send(sequence);
        }
        if run == 2 {
            agent.wait_until_acknowledged();
        }
        collector.stop().unwrap();
    }
    assert_rows(environment, SeriesScope::Node("n1"), begin_us, 0..30);
    assert!(environment.reader().last_losses(u32::MAX).unwrap().is_empty());
}

fn invalid_messages_do_not_affect_others(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let collector = environment.collector();
    let own = shape(1, None);
    let mut agent = Agent::to(&environment.context, &collector, "n1", 8);
    let mut hostile = Agent::to(&environment.context, &collector, "n2", 9);
    let good = {
        add_row(&mut hostile, &own, begin_us, 0);
        hostile.outbox.remove(&1).unwrap()
    };
    let mut other_version = good.clone();
    other_version[3] = 9;
    for seed in 0..20_usize {
        let sequence = add_row(&mut agent, &own, begin_us, seed as i64);
        agent.send(sequence);
        let mut flipped = good.clone();
        let at = seed * 5 % good.len();
        flipped[at] ^= 1 << (seed % 8);
        hostile.send_bytes(&flipped);
        hostile.send_bytes(&good[..seed * good.len() / 20]);
        hostile.send_bytes(&other_version);
        hostile.send_bytes(b"PLC\x01\xff\xff\xff");
        hostile.send_bytes(b"GET / HTTP/1.1");
    }
    agent.wait_until_acknowledged();
    let ToAgent::Refused { reason, .. } = hostile.expect_answer() else { panic!("{:?}", hostile.answers) };
    assert!(!reason.is_empty());
    assert_eq!(hostile.receive(50), None, "one answer in ten seconds");
    // The agent is killed.
    drop(hostile);
    let totals = collector.stop().unwrap();
    assert_eq!((totals.samples, totals.refused), (60, 100));
    assert_rows(environment, SeriesScope::Node("n1"), begin_us, 0..20);
}

fn a_reused_job_id_is_another_job(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 3600 * 1_000_000;
    let collector = environment.collector();
    for (session, node, started_s, ended_s) in
        [(1, "n1", 0, Some(10)), (2, "n2", 5, Some(20)), (3, "n1", 100, None), (4, "n1", 100, None)]
    {
        let mut agent = Agent::to(&environment.context, &collector, node, session);
        let job = job(1, "12", begin_us + started_s * 1_000_000);
        agent.frame(
            &[(&shape(1, Some(&job)), begin_us + (started_s + 1) * 1_000_000, &values(session as i64).0)],
            &[],
            &[],
        );
        if let Some(ended_s) = ended_s {
            agent.frame(
                &[],
                &[],
                &[Event::JobEnded { job: JobHandle(1), at_us: begin_us + ended_s * 1_000_000 }],
            );
        }
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
    collector.stop().unwrap();
    let jobs = environment.jobs();
    let times: Vec<_> = jobs
        .iter()
        .map(|job| (job.started_ns / 1000 - begin_us, job.ended_ns.map(|ended| ended / 1000 - begin_us)))
        .collect();
    assert_eq!(times, [(0, Some(20_000_000)), (100_000_000, None)]);
    assert_eq!((jobs[0].nodes.len(), jobs[1].nodes.len()), (2, 1));
    // A restarted agent continues the existing series.
    assert_eq!(environment.counts(SeriesScope::Job(jobs[1].job_key)), [2, 2, 2]);
}

fn stop_commits_messages_in_the_socket(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let config = CollectorConfig {
        listen: "inproc://collector".to_owned(),
        commit_interval: Duration::from_secs(3600),
        ..environment.config()
    };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 11);
    let own = shape(1, None);
    add_rows(&mut agent, &own, begin_us, 0..50);
    agent.send_from(0);
    let totals = collector.stop().unwrap();
    assert_eq!((totals.frames, totals.samples), (50, 150));
    agent.wait_until_acknowledged();
    assert_eq!(agent.answers.last(), Some(&ToAgent::Ack { session: SessionId(11), through: 50 }));
    assert_rows(environment, SeriesScope::Node("n1"), begin_us, 0..50);
}
