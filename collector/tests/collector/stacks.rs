//! Tests of call stacks: how they are stored, added up and removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_analysis::stacks::functions;
use polymeter_analysis::stacks::profile::{Choice, Profile};
use polymeter_collector::Collector;
use polymeter_proto::batch::Job;
use polymeter_proto::period::Period;
use polymeter_store::{Keep, Retention, prune, set_retention};

use crate::support::agent::{Agent, Stack, job};
use crate::support::{Kind, TestEnvironment, now_us, only_job};

scenarios![
    samples_are_added_up_and_stored_once,
    stacks_are_removed_with_samples,
    statements_use_the_index_of_jobs
];

const SECOND_US: i64 = 1_000_000;

/// Samples of a process in a stack, whose last function is the innermost. Different stacks have common
/// callers, one calls itself, and one has no symbol.
const STACKS: [Stack<'_>; 5] = [
    (41, &["main", "solve", "dot"], 50),
    (41, &["main", "solve"], 20),
    (41, &["main", "walk", "walk", "walk"], 7),
    (42, &["main", "solve", "dot"], 3),
    (42, &["main", ""], 11),
];

const SECONDS: [i64; 2] = [10, 4];

fn send(environment: &TestEnvironment, job: &Arc<Job>) {
    let collector = environment.collector();
    for (number, seconds) in (1..).zip(SECONDS) {
        let mut agent = Agent::to(&environment.context, &collector, &format!("n{number}"), number);
        for second in 0..seconds {
            let begin_us = job.descriptor.started_us + second * SECOND_US;
            agent.stacks(job, begin_us, Period::from_micros(10_000).unwrap(), &STACKS);
        }
        // Repeated frames change nothing.
        agent.send_from(0);
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
    collector.stop().unwrap();
}

/// Computes by brute force the samples of each function itself and in all.
fn expected(is_counted: impl Fn(&Stack<'_>) -> bool, times: u64) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (_, path, count) in STACKS.iter().filter(|stack| is_counted(stack)) {
        let of_all: std::collections::BTreeSet<&str> = path.iter().copied().collect();
        for function in of_all {
            let sum = sums.entry(function.to_owned()).or_default();
            sum.1 += count * times;
            sum.0 += if path.last() == Some(&function) { count * times } else { 0 };
        }
    }
    sums
}

fn found(profile: &Profile) -> BTreeMap<String, (u64, u64)> {
    let tree = profile.tree();
    functions(&tree)
        .into_iter()
        .map(|time| {
            assert_eq!(
                (time.own.time_us, time.total.time_us),
                (time.own.samples * 10_000, time.total.samples * 10_000)
            );
            (time.function.name.clone(), (time.own.samples, time.total.samples))
        })
        .collect()
}

fn samples_are_added_up_and_stored_once(environment: &mut TestEnvironment) {
    let job = job(1, "7", now_us() - 100 * SECOND_US);
    send(environment, &job);
    let (stored, mut reader) = (only_job(environment), environment.reader());
    let all = stored.sampled_ns.clone();
    let mut read = |node: Option<&str>, span_ns, process| {
        let spans = vec![(node.map(str::to_owned), span_ns)];
        let choice = Choice { process, spans, ..Choice::default() };
        Profile::read(&mut reader, stored.job_key, &choice).unwrap()
    };
    let profile = read(None, all.clone(), None);
    assert_eq!((found(&profile), profile.processes()), (expected(|_| true, 14), 4));
    let sums = &profile.intervals;
    assert_eq!((sums.samples, sums.lost, sums.throttled, sums.cut), (91 * 14, 2 * 14, 14, 3 * 14));
    assert_eq!((sums.unresolved, sums.period_us), (11 * 14, 10_000));
    assert_eq!(found(&read(Some("n2"), all.clone(), None)), expected(|_| true, 4));
    assert_eq!(found(&read(None, all.clone(), Some(42))), expected(|(process, ..)| *process == 42, 14));
    // The second and the third interval of both nodes, by their middles.
    let start_ns = stored.started_ns;
    let span_ns = start_ns + 1_400_000_000..start_ns + 3_400_000_000;
    assert_eq!(found(&read(None, span_ns, None)), expected(|_| true, 4));
    assert!(read(Some("n3"), all, None).is_empty());
    let count = |table: &str| environment.number(&format!("SELECT count(*) FROM {table}"));
    assert_eq!((count("stack_interval"), count("stack_sample")), (14, 14 * 5));
    assert_eq!((count("stack_function"), count("stack_node")), (5, 7), "nodes share them");
    for (function, samples) in [("dot", 53), ("walk", 7)] {
        let select = format!(
            "SELECT CAST(sum(time_us) AS bigint) FROM stacks WHERE job_id = '7' AND function = '{function}'"
        );
        assert_eq!(environment.number(&select), samples * 14 * 10_000, "{function}");
    }
    let path = "SELECT DISTINCT stack FROM stacks WHERE function = 'walk' UNION SELECT DISTINCT stack FROM stacks WHERE function IS NULL";
    let mut paths = environment.lines(path);
    paths.sort_unstable();
    assert_eq!(paths, ["main;[a.out]", "main;walk;walk;walk"]);
    let ledger =
        environment.number("SELECT CAST(sum(stored) AS bigint) FROM ledger_balance WHERE source = 'stacks'");
    assert_eq!(ledger, 91 * 14);
}

fn stacks_are_removed_with_samples(environment: &mut TestEnvironment) {
    let day_us = 86_400 * SECOND_US;
    let mut config = environment.config();
    config.clock.max_age = std::time::Duration::from_secs(500 * 86_400);
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let jobs = [(1, "old", 40), (2, "kept", 40), (3, "new", 2)];
    let jobs = jobs.map(|(handle, id, days)| job(handle, id, now_us() - days * day_us));
    for job in &jobs {
        agent.stacks(job, job.descriptor.started_us, Period::SECOND, &STACKS);
    }
    agent.send_from(0);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    environment.execute("UPDATE job SET ended = started; UPDATE job_node SET ended = started");
    let key = |id: &str| environment.jobs().into_iter().find(|job| job.job_id == id).unwrap().job_key;
    let mut administration = polymeter_store::Administration::open(&environment.url()).unwrap();
    administration.keep(key("kept"), None).unwrap();
    let keep = Keep::Days(30);
    let retention = Retention { samples: keep, ten_seconds: keep, minute: keep, hour: Keep::Forever };
    set_retention(&environment.url(), &retention).unwrap();
    for _ in 0..2 {
        prune(&environment.url(), None, |_, _| ()).unwrap();
        for (id, is_left) in [("old", false), ("kept", true), ("new", true)] {
            for table in ["stack_interval", "stack_sample", "stack_node", "stack_function"] {
                let rows =
                    environment.number(&format!("SELECT count(*) FROM {table} WHERE job_key = {}", key(id)));
                assert_eq!(rows > 0, is_left, "{table} of {id}");
            }
        }
    }
}

fn statements_use_the_index_of_jobs(environment: &mut TestEnvironment) {
    let job = job(1, "7", now_us() - 100 * SECOND_US);
    send(environment, &job);
    // Other jobs have far more samples.
    let many = match environment.kind {
        Kind::Sqlite => return,
        Kind::Postgres | Kind::Timescale | Kind::Citus => {
            "INSERT INTO stack_interval SELECT 1000 + n % 100, now() - make_interval(secs => n), n, 'n1', 'stacks.cpu', 1, 1, 1, 0, 0, 0, 0
                 FROM generate_series(1, 20000) AS n;
             INSERT INTO stack_sample SELECT 1000 + n % 100, now() - make_interval(secs => n), n, 1, 1, 1
                 FROM generate_series(1, 100000) AS n;
             ANALYZE stack_interval; ANALYZE stack_sample"
        }
    };
    environment.execute(many);
    let (stored, mut reader) = (only_job(environment), environment.reader());
    reader.record_plans();
    let choice = Choice { spans: vec![(None, stored.sampled_ns.clone())], ..Choice::default() };
    assert!(!Profile::read(&mut reader, stored.job_key, &choice).unwrap().is_empty());
    let plans = reader.take_plans();
    let of_samples: Vec<&String> = plans.iter().filter(|plan| plan.contains("stack_sample AS")).collect();
    assert_eq!(of_samples.len(), 1, "{plans:?}");
    for index in ["stack_interval_by_job", "stack_sample_by_job"] {
        assert!(of_samples[0].contains(index), "{of_samples:?}");
    }
    assert!(!of_samples[0].contains("Seq Scan"), "{of_samples:?}");
}
