//! Tests of the rights of readers.

use polymeter_proto::read::{
    AgentRow, BucketRow, JobRow, LossRow, NoticeRow, Rollup, SampleRow, SampleSet, SeriesRow, UsageGroup,
    UsageRow,
};
use polymeter_proto::series::Labels;

use super::*;

const USER: u32 = 1000;
const OWN: i64 = 1;
/// A job of another user, a job without a known owner, and an unknown job.
const OTHERS: [i64; 3] = [2, 3, 99];

/// Reader with a job of each kind, that answers every query about them with a row. It records the queries.
#[derive(Default)]
struct Everything(Vec<Query>);

fn job(job_key: i64, owner_uid: Option<i64>) -> JobRow {
    // Each job has an account of its own.
    let job = serde_json::json!({
        "account": format!("a{job_key}"), "job_key": job_key, "job_id": format!("j{job_key}"), "owner_uid": owner_uid, "started_ns": 5,
        "sampled_ns": {"start": 0, "end": 9}, "lost_nodes": [], "nodes": ["n1"],
    });
    serde_json::from_value(job).unwrap()
}

fn is_of(of: &JobsOf, job: &JobRow) -> bool {
    job.owner_uid == Some(of.uid.into())
        || job.account.as_ref().is_some_and(|account| of.accounts.contains(account))
}

const RAN_S: Range<i64> = 1000..2000;

fn job_node() -> JobNodeRow {
    let of = |time_s: i64| time_s * 1_000_000_000;
    let (started_ns, ended_ns) = (of(RAN_S.start), Some(of(RAN_S.end)));
    JobNodeRow { node: "n1".to_owned(), started_ns, ended_ns, is_shared: false, clock_offset_us: None }
}

fn agent() -> AgentRow {
    AgentRow {
        node: "n1".to_owned(),
        session_id: "0000000000000001".to_owned(),
        version: "0.1.0".to_owned(),
        started_ns: 0,
        last_seen_ns: 1,
        last_sample_ns: None,
        ended_ns: None,
        end_reason: None,
        due: 1,
        taken: 1,
        late: 0,
        missed: 0,
        lost: 0,
    }
}

fn loss(job_key: i64) -> LossRow {
    LossRow {
        time_ns: 1,
        node: "n1".to_owned(),
        session_id: String::new(),
        job_key: Some(job_key),
        source: None,
        samples: 1,
        reason: String::new(),
        first_time_ns: 1,
        last_time_ns: 1,
    }
}

impl Read for Everything {
    fn read(&mut self, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
        self.0.push(query.clone());
        let series = |id| SeriesRow {
            series_id: id,
            node: "n1".to_owned(),
            metric: "m".to_owned(),
            unit: "1".to_owned(),
            kind: "gauge".to_owned(),
            labels: Labels::default(),
        };
        let block = match query {
            Query::Jobs(filter) | Query::Usage { jobs: filter, .. } => {
                let all = [job(OWN, Some(USER.into())), job(2, Some(1001)), job(3, None)];
                let selected = all.into_iter().filter(|job| {
                    filter.job_key.is_none_or(|key| key == job.job_key)
                        && filter.owner_uid.is_none_or(|uid| Some(uid) == job.owner_uid)
                        && filter.visible.as_ref().is_none_or(|of| is_of(of, job))
                });
                if matches!(query, Query::Usage { .. }) {
                    RowBlock::Usage(selected.map(|_| UsageRow::default()).collect())
                } else {
                    RowBlock::Jobs(selected.collect())
                }
            }
            Query::Notices { owner_uid, .. } => {
                RowBlock::Notices(vec![NoticeRow { uid: *owner_uid, ..NoticeRow::default() }])
            }
            Query::CandidateIds { of, .. } => RowBlock::JobIds(vec![format!("{of:?}")]),
            Query::Series { of: SeriesOwner::Job(key) } | Query::JobSeries { job_key: key, .. } => {
                RowBlock::Series(vec![series(key * 10), series(key * 10 + 1)])
            }
            Query::Series { of: SeriesOwner::Node(_) | SeriesOwner::NodesOf(_) }
            | Query::NodeSeries { .. }
            | Query::DeviceSeries { .. } => RowBlock::Series(vec![series(7)]),
            Query::JobNodes { .. } => RowBlock::JobNodes(vec![job_node()]),
            Query::Samples { series, .. } | Query::Buckets { series, .. } => RowBlock::Samples(
                series
                    .ids()
                    .map(|series_id| SampleRow { series_id, time_ns: 1, value: 1.0, window: None })
                    .collect(),
            ),
            Query::Losses { job_key } => RowBlock::Losses(vec![loss(*job_key), loss(2)]),
            Query::LastLosses { .. } => RowBlock::Losses(vec![loss(2)]),
            Query::Agents { .. } => RowBlock::Agents(vec![agent()]),
            Query::Cpus { .. }
            | Query::JobMetrics { .. }
            | Query::Ledger { .. }
            | Query::PlanChanges { .. }
            | Query::RefusedRequests { .. }
            | Query::Marks { .. }
            | Query::KeptIntervals { .. }
            | Query::Firings { .. }
            | Query::Histograms { .. }
            | Query::Stacks { .. }
            | Query::StackIntervals { .. }
            | Query::StackNodes { .. }
            | Query::FinestRollup { .. } => RowBlock::JobIds(vec!["row".to_owned()]),
        };
        if !block.is_empty() {
            let _flow = each(block);
        }
        Ok(())
    }
}

/// Returns a query of each kind, about a job where there is one.
fn queries(job_key: i64) -> Vec<Query> {
    let of = SeriesOwner::Job(job_key);
    let series: IdRanges = [job_key * 10, job_key * 10 + 1].into_iter().collect();
    let queries = vec![
        Query::Jobs(Box::new(JobFilter { job_key: Some(job_key), ..JobFilter::default() })),
        Query::Series { of: of.clone() },
        Query::NodeSeries { job_key, metrics: vec!["m".to_owned()] },
        Query::DeviceSeries { job_key },
        Query::JobSeries { job_key, metrics: vec!["m".to_owned()] },
        Query::JobNodes { job_key },
        Query::Samples { of: of.clone(), series: series.clone(), span_ns: 0..9, set: SampleSet::Kept },
        Query::KeptIntervals { job_key },
        Query::Buckets { rollup: Rollup::Hour, of, series, span_ns: 0..9 },
        Query::Ledger { job_key },
        Query::PlanChanges { job_key },
        Query::RefusedRequests { job_key },
        Query::Marks { job_key },
        Query::Losses { job_key },
        Query::FinestRollup { job_key, started_ns: 5 },
        Query::CandidateIds { job_id: "7".to_owned(), of: Some(JobsOf::user(1001)) },
        Query::Cpus { job_key },
        Query::LastLosses { limit: 9 },
        Query::Agents { since_ns: 0 },
        Query::JobMetrics { job_key, node: None },
        Query::Usage {
            by: UsageGroup::User,
            ended_ns: 0..9,
            jobs: Box::new(JobFilter { job_key: Some(job_key), ..JobFilter::default() }),
        },
        Query::Notices { owner_uid: None, limit: 9 },
        Query::Stacks { job_key, node: None, span_ns: 0..9, by_interval: false },
        Query::StackIntervals { job_key, node: None, span_ns: 0..9 },
        Query::StackNodes { job_key },
        Query::Firings { job_key },
        Query::Histograms { of: SeriesOwner::Job(job_key), span_ns: None },
    ];
    let names: Vec<&str> = queries.iter().map(Query::name).collect();
    assert!(Query::NAMES.iter().all(|name| names.contains(name)), "a query of each kind");
    queries
}

/// Returns the blocks that a query has, and the queries that reach the store for it.
fn answer(access: Access, query: &Query) -> (Vec<RowBlock>, Vec<Query>) {
    let mut guard = GuardedReader::new(Everything::default(), access);
    let mut blocks = Vec::new();
    guard
        .read(query, &mut |block| {
            blocks.push(block);
            ControlFlow::Continue(())
        })
        .unwrap();
    (blocks, guard.reader.0)
}

#[test]
fn a_user_reads_own_jobs_and_administrators_all() {
    for query in queries(OWN) {
        let (of_owner, _) = answer(Access::owner(USER), &query);
        let is_of_nodes = matches!(query, Query::LastLosses { .. } | Query::Agents { .. });
        assert_eq!(of_owner.is_empty(), is_of_nodes, "{query:?}");
    }
    for key in [OWN, 2, 3] {
        for query in queries(key) {
            for access in [Access::All, Access::Support] {
                assert!(!answer(access, &query).0.is_empty(), "{query:?}");
            }
        }
    }
}

fn manager(accounts: &[&str]) -> Access {
    let accounts = accounts.iter().map(|account| (*account).to_owned()).collect();
    Access::Jobs(JobsOf { uid: 77, accounts })
}

/// A manager reads jobs of the accounts, also those without an owner, as their owners do, and no others.
#[test]
fn managers_read_the_jobs_of_their_accounts_like_own_ones() {
    let unknown = OTHERS[2];
    for (accounts, seen) in [(&["a3"][..], &[3][..]), (&["a1", "a2"], &[1, 2]), (&["a", "A1", ""], &[])] {
        for key in [OWN, 2, 3, unknown] {
            for (query, own) in queries(key).iter().zip(queries(OWN)) {
                let (blocks, _) = answer(manager(accounts), query);
                // Not about a job.
                if ["candidate_ids", "notices"].contains(&query.name()) {
                    continue;
                }
                let (of_owner, _) = answer(Access::owner(USER), &own);
                // Like its command, the functions of a program are its owner's.
                let is_of_owner = query.name().starts_with("stack");
                let is_seen = seen.contains(&key) && !of_owner.is_empty() && !is_of_owner;
                assert_eq!(!blocks.is_empty(), is_seen, "{accounts:?} {key}: {query:?}");
            }
        }
    }
    // What the client says of the ids that it wants is replaced.
    let (candidates, _) = answer(manager(&["a3"]), &queries(OWN)[15]);
    let shown =
        RowBlock::JobIds(vec![format!("{:?}", Some(JobsOf { uid: 77, accounts: vec!["a3".to_owned()] }))]);
    assert_eq!(candidates, [shown]);
    let roles = [Access::All, Access::Support, manager(&["a"]), manager(&[])].map(|access| access.role());
    assert_eq!(roles, ["administrator", "support", "manager", "user"]);
}

#[test]
fn jobs_of_others_and_unknown_jobs_are_alike() {
    for (position, query) in queries(OTHERS[0]).iter().enumerate() {
        let name = query.name();
        let is_of_a_job = !["candidate_ids", "notices"].contains(&name);
        let answers = OTHERS.map(|key| {
            let (blocks, reached) = answer(Access::owner(USER), &queries(key)[position]);
            let reached = reached.iter().map(|query| {
                String::from_utf8(query.to_line()).unwrap().replace(&format!("\"job_key\":{key}"), "KEY")
            });
            (blocks, reached.collect::<Vec<_>>())
        });
        assert_eq!(answers[0], answers[1], "{name}");
        assert_eq!(answers[0], answers[2], "{name}");
        assert_eq!(answers[0].0.is_empty(), is_of_a_job, "{name}");
    }
}

fn ids(blocks: Vec<RowBlock>) -> Vec<i64> {
    let rows = blocks.into_iter().flat_map(|block| SampleRow::rows(block).unwrap());
    rows.map(|row| row.series_id).collect()
}

#[test]
fn series_of_other_jobs_and_of_nodes_are_left_out() {
    let wanted: IdRanges = [7, 10, 11, 20, 21].into_iter().collect();
    let samples = |of| Query::Samples { of, series: wanted.clone(), span_ns: 0..9, set: SampleSet::Plan };
    let owner = || Access::owner(USER);
    assert_eq!(ids(answer(owner(), &samples(SeriesOwner::Job(OWN))).0), [10, 11]);
    assert_eq!(ids(answer(owner(), &samples(SeriesOwner::Node("n1".to_owned()))).0), [0_i64; 0]);
    assert_eq!(ids(answer(Access::All, &samples(SeriesOwner::Job(OWN))).0), [7, 10, 11, 20, 21]);
    let of_node = Query::Series { of: SeriesOwner::Node("n1".to_owned()) };
    assert!(answer(owner(), &of_node).0.is_empty());
    let others = Query::Jobs(Box::new(JobFilter { owner_uid: Some(1001), ..JobFilter::default() }));
    assert!(answer(owner(), &others).0.is_empty());
    let notices =
        [None, Some(1001)].map(|owner_uid| answer(owner(), &Query::Notices { owner_uid, limit: 9 }).0);
    let own = NoticeRow { uid: Some(USER.into()), ..NoticeRow::default() };
    assert_eq!(notices, [vec![RowBlock::Notices(vec![own])], Vec::new()]);
    let (candidates, _) = answer(owner(), &queries(OWN)[15]);
    assert_eq!(candidates, [RowBlock::JobIds(vec![format!("{:?}", Some(JobsOf::user(USER)))])]);
}

#[test]
fn series_of_nodes_are_read_in_the_time_of_the_job() {
    /// Store with a sample of each of two series, and an interval of ten seconds, every 10 s.
    struct Node;
    fn times(span_ns: &Range<i64>) -> impl Iterator<Item = i64> {
        (0..400).map(|number| number * 10_000_000_000_i64).filter(move |time_ns| span_ns.contains(time_ns))
    }
    impl Read for Node {
        fn read(&mut self, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
            if let Query::Samples { series, span_ns, .. } = query {
                let of = |series_id, time_ns| SampleRow { series_id, time_ns, value: 1.0, window: None };
                let rows = series.ids().flat_map(|id| times(span_ns).map(move |time_ns| of(id, time_ns)));
                let _flow = each(RowBlock::Samples(rows.collect()));
                return Ok(());
            }
            if let Query::Buckets { rollup, series, span_ns, .. } = query {
                let rows = series.ids().flat_map(|series_id| {
                    let begins = times(span_ns).filter(move |time_ns| time_ns % rollup.length_ns() == 0);
                    begins.map(move |time_ns| BucketRow {
                        series_id,
                        time_ns,
                        count: 1,
                        min: 1.0,
                        max: 1.0,
                        mean: 1.0,
                        first: 1.0,
                        last: 1.0,
                        increase: 0.0,
                        rate_min: f64::NAN,
                        rate_max: f64::NAN,
                    })
                });
                let _flow = each(RowBlock::Buckets(rows.collect()));
                return Ok(());
            }
            Everything::default().read(query, each)
        }
    }
    let of = || SeriesOwner::NodesOf(OWN);
    let series: IdRanges = [6, 7].into_iter().collect();
    let samples =
        Query::Samples { of: of(), series: series.clone(), span_ns: 0..i64::MAX, set: SampleSet::All };
    let minutes = Query::Buckets { rollup: Rollup::Minute, of: of(), series, span_ns: 0..i64::MAX };
    fn times_of(guard: &mut GuardedReader<Node>, query: &Query) -> Option<((i64, i64), (i64, i64))> {
        let mut times = Vec::new();
        let collect = &mut |block: RowBlock| {
            if let RowBlock::Samples(rows) = &block {
                times.extend(rows.iter().map(|row| (row.series_id, row.time_ns / 1_000_000_000)));
            } else if let RowBlock::Buckets(rows) = &block {
                times.extend(rows.iter().map(|row| (row.series_id, row.time_ns / 1_000_000_000)));
            }
            ControlFlow::Continue(())
        };
        guard.read(query, collect).unwrap();
        times.first().copied().zip(times.last().copied())
    }
    let of_another = Query::Samples {
        of: SeriesOwner::NodesOf(2),
        series: [7].into_iter().collect(),
        span_ns: 0..i64::MAX,
        set: SampleSet::Plan,
    };
    let of_metrics = Query::NodeSeries { job_key: OWN, metrics: vec!["m".to_owned()] };
    for series in [of_metrics, Query::DeviceSeries { job_key: OWN }] {
        let mut guard = GuardedReader::new(Node, Access::owner(USER));
        assert_eq!(times_of(&mut guard, &samples), None, "they are not known to be of a node of the job");
        assert_eq!(times_of(&mut guard, &series), None);
        assert_eq!(times_of(&mut guard, &samples), Some(((7, 940), (7, 2050))));
        assert_eq!(times_of(&mut guard, &minutes), Some(((7, 960), (7, 1980))));
        assert_eq!(times_of(&mut guard, &of_another), None);
    }
}

#[test]
fn keys_of_other_jobs_are_removed_from_losses() {
    let (blocks, _) = answer(Access::owner(USER), &Query::Losses { job_key: OWN });
    let [RowBlock::Losses(rows)] = blocks.as_slice() else { panic!("{blocks:?}") };
    assert_eq!(rows.iter().map(|row| row.job_key).collect::<Vec<_>>(), [Some(OWN), None]);
}
