//! Tests of reading through the collector: users read their own jobs, and nothing that they do affects the
//! writers.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_api::{ApiConfig, Listen};
use polymeter_collector::limits::{self, ReadTimeouts};
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::batch::Job;
use polymeter_proto::control::{CollectorAnswer, ReadAccess, ReadRequest};
use polymeter_proto::ledger::{Event, Firing, Mark, MarkKind};
use polymeter_proto::read::{
    Frame, IdRanges, JobFilter, Query, Rollup, RowBlock, SampleSet, SeriesOwner, UsageGroup,
};
use polymeter_proto::series::{JobDescriptor, JobHandle};
use polymeter_store::reader::{JobRow, SeriesScope};
use polymeter_test_harness::skip;

use crate::support::agent::{Agent, job, shape, values};
use crate::support::reading::{ReadClient, connect_as};
use crate::support::{TestEnvironment, now_us, wait_until};

scenarios! {
    users_read_their_own_jobs,
    a_stopped_reader_affects_no_writer,
    a_client_that_disconnects_releases_its_connections,
    garbage_ends_only_its_session,
    a_store_that_is_away_is_reported,
}

/// Owners of the jobs `1` and `2`.
pub(crate) const USERS: [u32; 2] = [64_001, 64_002];

pub(crate) const ADMINISTRATOR: &str = "daemon";

/// Collector with a control socket, and an agent with a job of each user and one without an owner.
pub(crate) struct Fixture {
    pub(crate) collector: Collector,
    pub(crate) agent: Agent,
    pub(crate) jobs: [Arc<Job>; 3],
    pub(crate) socket: PathBuf,
    pub(crate) api: PathBuf,
    _directory: tempfile::TempDir,
}

fn owned(handle: u32, job_id: &str, uid: Option<u32>) -> Arc<Job> {
    let Job { descriptor, .. } = (*job(handle, job_id, now_us())).clone();
    let descriptor = JobDescriptor { owner_uid: uid, owner: None, ..descriptor };
    Arc::new(Job { handle: JobHandle(handle), descriptor })
}

impl Fixture {
    pub(crate) fn new(environment: &TestEnvironment) -> Self {
        Self::with(environment, |_| {})
    }

    pub(crate) fn with_timeouts(environment: &TestEnvironment, timeouts: ReadTimeouts) -> Self {
        Self::with(environment, |config| config.control.read_timeouts = timeouts)
    }

    pub(crate) fn with(environment: &TestEnvironment, change: impl FnOnce(&mut CollectorConfig)) -> Self {
        if !rustix::process::geteuid().is_root() {
            skip("root", "the tests do not run as root");
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let socket = directory.path().join("control.sock");
        let mut config: CollectorConfig = environment.config();
        config.control.socket = Some(socket.clone());
        let api = directory.path().join("api.sock");
        let mut api_config = ApiConfig::new(Listen::Unix(api.clone()));
        // Tests send more requests than a person.
        api_config.limits.user_requests_per_second = 10_000;
        config.api = Some(api_config);
        config.roles.administrators = vec![ADMINISTRATOR.to_owned()];
        change(&mut config);
        let collector = Collector::start(&config, &environment.context).unwrap();
        let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
        let jobs = [owned(1, "1", Some(USERS[0])), owned(2, "2", Some(USERS[1])), owned(3, "3", None)];
        let (shapes, at_us) = (jobs.each_ref().map(|job| shape(job.handle.0, Some(job))), now_us());
        let of_node = shape(4, None);
        let marks: Vec<Event> = jobs.iter().flat_map(|job| [mark(job.handle), firing(job.handle)]).collect();
        for second in 0..20_i64 {
            let (values, _) = values(second);
            let at_us = at_us + second * 1_000_000;
            let rows: Vec<_> =
                shapes.iter().chain([&of_node]).map(|shape| (shape, at_us, values.as_slice())).collect();
            agent.frame(&rows, &[], if second == 0 { &marks } else { &[] });
        }
        agent.send_from(0);
        agent.wait_until_acknowledged();
        Self { collector, agent, jobs, socket, api, _directory: directory }
    }

    pub(crate) fn client(&self, uid: u32) -> ReadClient {
        ReadClient::connect(uid, &self.socket).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// Tells whether a user can begin as many sessions as are permitted.
    pub(crate) fn has_free_sessions(&self, uid: u32) -> bool {
        let clients: Vec<_> =
            (0..limits::READ_SESSIONS_PER_USER).map(|_| ReadClient::connect(uid, &self.socket)).collect();
        clients.iter().all(Result::is_ok)
    }
}

fn mark(job: JobHandle) -> Event {
    Event::Mark(Mark {
        at_us: now_us(),
        job: Some(job),
        name: "solve".try_into().unwrap(),
        kind: MarkKind::Instant,
        by: None,
    })
}

fn firing(job: JobHandle) -> Event {
    Event::Fired(Firing {
        job,
        trigger: job.0.into(),
        rule: "stall".try_into().unwrap(),
        by: None,
        at_us: now_us(),
        keeps_us: None,
        notice: false,
        why: "cpu.usage was 0 per second".into(),
        actions: "marked".into(),
    })
}

/// Query of each kind, about a job where there is one.
pub(crate) fn queries(job_key: i64, job_id: &str, series: &IdRanges) -> Vec<Query> {
    let (of, of_nodes, span_ns) = (SeriesOwner::Job(job_key), SeriesOwner::NodesOf(job_key), 0..i64::MAX);
    let filter = JobFilter { job_key: Some(job_key), limit: 10, ..JobFilter::default() };
    let of_id = JobFilter { job_id: Some(job_id.to_owned()), limit: 10, ..JobFilter::default() };
    let of_node = SeriesOwner::Node("n1".to_owned());
    let queries = vec![
        Query::Jobs(Box::new(filter)),
        Query::Jobs(Box::new(of_id)),
        Query::Series { of: of.clone() },
        Query::Series { of: of_node.clone() },
        Query::Samples {
            of: of.clone(),
            series: series.clone(),
            span_ns: span_ns.clone(),
            set: SampleSet::Plan,
        },
        Query::Samples {
            of: of_node,
            series: series.clone(),
            span_ns: span_ns.clone(),
            set: SampleSet::Plan,
        },
        Query::Samples {
            of: of.clone(),
            series: series.clone(),
            span_ns: span_ns.clone(),
            set: SampleSet::Kept,
        },
        Query::KeptIntervals { job_key },
        Query::Firings { job_key },
        Query::Histograms { of: of.clone(), span_ns: None },
        Query::Histograms { of: of.clone(), span_ns: Some(span_ns.clone()) },
        Query::Histograms { of: SeriesOwner::Node("n1".to_owned()), span_ns: Some(span_ns.clone()) },
        Query::Buckets { rollup: Rollup::TenSeconds, of, series: series.clone(), span_ns },
        Query::Ledger { job_key },
        Query::PlanChanges { job_key },
        Query::RefusedRequests { job_key },
        Query::Marks { job_key },
        Query::Losses { job_key },
        Query::Stacks { job_key, node: None, span_ns: 0..i64::MAX, by_interval: false },
        Query::Stacks { job_key, node: None, span_ns: 0..i64::MAX, by_interval: true },
        Query::StackIntervals { job_key, node: None, span_ns: 0..i64::MAX },
        Query::StackNodes { job_key },
        Query::LastLosses { limit: 10 },
        Query::Agents { since_ns: 0 },
        Query::FinestRollup { job_key, started_ns: 0 },
        Query::CandidateIds { job_id: job_id.to_owned(), of: None },
        Query::Cpus { job_key },
        Query::JobNodes { job_key },
        Query::JobMetrics { job_key, node: None },
        Query::NodeSeries { job_key, metrics: vec!["node.load1".to_owned()] },
        Query::DeviceSeries { job_key },
        Query::JobSeries { job_key, metrics: vec!["cpu.usage".to_owned(), "unknown".to_owned()] },
        Query::Samples { of: of_nodes, series: series.clone(), span_ns: 0..i64::MAX, set: SampleSet::Plan },
        Query::Usage {
            by: UsageGroup::User,
            ended_ns: 0..i64::MAX,
            jobs: Box::new(JobFilter { job_key: Some(job_key), limit: 10, ..JobFilter::default() }),
        },
        Query::Notices { owner_uid: None, limit: 10 },
    ];
    assert!(
        Query::NAMES.iter().all(|name| queries.iter().any(|query| query.name() == *name)),
        "a query of each kind"
    );
    queries
}

/// Jobs `1`, `2` and `3`, each with the ids of its series.
pub(crate) fn stored(environment: &TestEnvironment) -> Vec<(JobRow, IdRanges)> {
    let (mut jobs, mut reader) = (environment.jobs(), environment.reader());
    jobs.sort_by(|one, other| one.job_id.cmp(&other.job_id));
    jobs.into_iter()
        .map(|job| {
            let series = reader.series(SeriesScope::Job(job.job_key)).unwrap();
            let ids = series.iter().map(|series| series.series_id).collect();
            (job, ids)
        })
        .collect()
}

fn count(blocks: &[RowBlock]) -> usize {
    blocks.iter().map(RowBlock::len).sum()
}

fn users_read_their_own_jobs(environment: &mut TestEnvironment) {
    let fixture = Fixture::new(environment);
    let jobs = stored(environment);
    assert_eq!(jobs.len(), 3);
    let administrator = polymeter_service::users::uid_of(ADMINISTRATOR).unwrap();
    for (uid, own) in [(USERS[0], Some(0)), (USERS[1], Some(1)), (64_003, None)] {
        let mut client = fixture.client(uid);
        assert_eq!(client.access, ReadAccess::Own);
        for (position, (job, series)) in jobs.iter().enumerate() {
            let of_job = queries(job.job_key, &job.job_id, series);
            // A job that does not exist, with the same ids of series.
            let of_none = queries(99, "9", series);
            for (query, missing) in of_job.iter().zip(&of_none) {
                let (blocks, bytes) = client.ask(query);
                if own == Some(position) {
                    let rows = match query {
                        Query::Jobs(_) | Query::Marks { .. } | Query::CandidateIds { .. } => Some(1),
                        Query::Series { of: SeriesOwner::Job(_) } => Some(3),
                        Query::Samples { set: SampleSet::Kept, .. } | Query::KeptIntervals { .. } => Some(0),
                        Query::Firings { .. } => Some(1),
                        Query::Samples { of: SeriesOwner::Job(_), .. } => Some(60),
                        Query::JobNodes { .. } | Query::JobSeries { .. } => Some(1),
                        Query::Series { .. }
                        | Query::Samples { .. }
                        | Query::LastLosses { .. }
                        | Query::Agents { .. } => Some(0),
                        _ => None,
                    };
                    assert!(rows.is_none_or(|rows| rows == count(&blocks)), "{uid}: {query:?}: {blocks:?}");
                } else {
                    assert_eq!(bytes, client.ask(missing).1, "{uid}: {query:?}");
                    let reveals = ["candidate_ids", "cpus"].contains(&query.name());
                    assert!(reveals || count(&blocks) == 0, "{uid}: {query:?}: {blocks:?}");
                }
            }
        }
        let (all, _) = client.ask(&Query::Jobs(Box::new(JobFilter { limit: 10, ..JobFilter::default() })));
        let ids: Vec<&str> = all.iter().flat_map(jobs_of).map(|job| job.job_id.as_str()).collect();
        assert_eq!(ids, own.map(|own| jobs[own].0.job_id.as_str()).into_iter().collect::<Vec<_>>());
        let candidates = Query::CandidateIds { job_id: "10".to_owned(), of: None };
        let (blocks, _) = client.ask(&candidates);
        assert_eq!(count(&blocks), ids.len(), "only own ids are candidates");
    }
    for uid in [0, administrator] {
        let mut client = fixture.client(uid);
        assert_eq!(client.access, ReadAccess::All);
        for (job, series) in &jobs {
            let samples = Query::Samples {
                of: SeriesOwner::Job(job.job_key),
                series: series.clone(),
                span_ns: 0..i64::MAX,
                set: SampleSet::Plan,
            };
            assert_eq!(count(&client.ask(&samples).0), 60, "{uid}");
        }
        assert_eq!(count(&client.ask(&Query::Series { of: SeriesOwner::Node("n1".to_owned()) }).0), 3);
    }
    fixture.collector.stop().unwrap();
}

fn jobs_of(block: &RowBlock) -> &[JobRow] {
    if let RowBlock::Jobs(rows) = block { rows } else { &[] }
}

/// The answer is far larger than the buffers of a socket.
pub(crate) fn endless(fixture: &Fixture, environment: &mut TestEnvironment) -> Query {
    let (job, series) = stored(environment).remove(0);
    let first = series.ids().next().unwrap();
    let (begin_us, rows) = (fixture.jobs[0].descriptor.started_us + 60_000_000, 400_000);
    let insert = match environment.kind {
        crate::support::Kind::Sqlite => format!(
            "WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < {rows})
             INSERT INTO samples (time, series_id, value) SELECT ({begin_us} + n * 1000) * 1000, {first}, n FROM n"
        ),
        crate::support::Kind::Postgres | crate::support::Kind::Timescale | crate::support::Kind::Citus => format!(
            "INSERT INTO samples (time, series_id, value)
             SELECT to_timestamp({begin_us} / 1000000) + n * interval '1 millisecond', {first}, n
             FROM generate_series(0, {rows} - 1) AS n"
        ),
    };
    environment.execute(&insert);
    Query::Samples { of: SeriesOwner::Job(job.job_key), series, span_ns: 0..i64::MAX, set: SampleSet::Plan }
}

fn a_stopped_reader_affects_no_writer(environment: &mut TestEnvironment) {
    let mut fixture = Fixture::new(environment);
    let query = endless(&fixture, environment);
    let mut clients = [fixture.client(USERS[0]), fixture.client(USERS[0])];
    for client in &mut clients {
        client.send(&query);
        // The first rows have arrived; the others are not read.
        let Some((Frame::Rows(_), _)) = client.frame() else { panic!("no rows") };
    }
    let refused = ReadClient::connect(USERS[0], &fixture.socket).err().unwrap();
    let CollectorAnswer::Refused(refusal) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.code, "busy");
    assert!(fixture.has_free_sessions(USERS[1]), "another user reads");
    let (shape, at_us) = (shape(2, Some(&fixture.jobs[1])), now_us() + 40_000_000);
    for second in 0..50 {
        fixture.agent.frame(&[(&shape, at_us + second * 1_000_000, &values(second).0)], &[], &[]);
        fixture.agent.send_from(0);
        fixture.agent.wait_until_acknowledged();
    }
    let second = stored(environment).remove(1).0;
    assert_eq!(environment.counts(SeriesScope::Job(second.job_key)), [70; 3]);
    // A client that continues to read gets everything.
    let [mut patient, stopped] = clients;
    let mut rows = 0;
    while let Some((Frame::Rows(block), _)) = patient.frame() {
        rows += block.len();
    }
    assert!(rows > 390_000, "{rows}");
    // The end of the collector does not wait for the other one.
    fixture.collector.stop().unwrap();
    let mut rest = Vec::new();
    stopped.stream.into_inner().read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 4_000_000, "the answer was cut: {} bytes", rest.len());
}

fn a_client_that_disconnects_releases_its_connections(environment: &mut TestEnvironment) {
    let fixture = Fixture::new(environment);
    let query = endless(&fixture, environment);
    for _ in 0..2 * limits::READ_SESSIONS {
        wait_until("a session is free", || match ReadClient::connect(USERS[0], &fixture.socket) {
            Ok(mut client) => {
                client.send(&query);
                client.frame().is_some()
            }
            Err(_) => false,
        });
    }
    wait_until("all sessions have ended", || fixture.has_free_sessions(USERS[0]));
    if environment.server.is_some() {
        let connections = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
             AND application_name = 'polymeter' AND query LIKE 'COPY%samples%ORDER%'";
        wait_until("the connections to the database are closed", || environment.number(connections) == 0);
    }
    fixture.collector.stop().unwrap();
}

fn garbage_ends_only_its_session(environment: &mut TestEnvironment) {
    let fixture = Fixture::new(environment);
    let mut client = fixture.client(USERS[0]);
    // A refused query leaves the session open.
    for (line, code) in [
        (&b"\xff\xfe\n"[..], "malformed"),
        (b"\n", "malformed"),
        (b"{\"query\":\"tables\"}\n", "malformed"),
        (b"{\"query\":\"jobs\",\"limit\":4000000000}\n", "invalid"),
        (
            b"{\"query\":\"samples\",\"of\":{\"job\":1},\"series\":[[0,9223372036854775807]],\"span_ns\":{\"start\":0,\"end\":1}}\n",
            "invalid",
        ),
    ] {
        client.stream.get_mut().write_all(line).unwrap();
        let Some((Frame::Error(error), _)) = client.frame() else { panic!("no error") };
        assert_eq!(error.code.as_str(), code);
    }
    let all = Query::Jobs(Box::new(JobFilter { limit: 10, ..JobFilter::default() }));
    assert_eq!(count(&client.ask(&all).0), 1);
    // Times and ids at the ends of their ranges are valid, and have no rows.
    for (start, end) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (0, 0)] {
        let span_ns = start..end;
        let series = [i64::MIN, -1, 0, i64::MAX].into_iter().collect();
        let query = Query::Samples { of: SeriesOwner::Job(i64::MAX), series, span_ns, set: SampleSet::Plan };
        assert_eq!(count(&client.ask(&query).0), 0);
    }
    // A line that does not end is refused, and ends the session.
    let long = vec![b'x'; polymeter_proto::limits::QUERY_BYTES + 1];
    client.stream.get_mut().write_all(&long).unwrap();
    let Some((Frame::Error(error), _)) = client.frame() else { panic!("no error") };
    assert_eq!(error.code.as_str(), "too_long");
    assert!(client.frame().is_none());
    // A request in the same packet as the first line is not lost.
    let mut stream = connect_as(USERS[1], &fixture.socket);
    let lines = [ReadRequest::LINE.as_bytes(), b"\n", &all.to_line()].concat();
    stream.write_all(&lines).unwrap();
    let mut answer: Vec<u8> = Vec::new();
    while !answer.windows(2).any(|bytes| bytes == b"n1") {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).unwrap();
        assert!(read > 0, "{answer:?}");
        answer.extend(&chunk[..read]);
    }
    let refused = ReadClient::connect(USERS[1], &fixture.socket).is_ok();
    assert!(refused, "one session of two is used");
    fixture.collector.stop().unwrap();
}

fn a_store_that_is_away_is_reported(environment: &mut TestEnvironment) {
    let fixture = Fixture::new(environment);
    // To a reader, a store of another version is one that it cannot use.
    environment.execute("INSERT INTO store_version (version) VALUES (1000)");
    for (uid, names_cause) in [(USERS[0], false), (0, true)] {
        let answer = ReadClient::connect(uid, &fixture.socket).err().unwrap();
        let CollectorAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
        assert_eq!(refusal.code, "store");
        let message = refusal.message.as_str();
        assert_eq!(message.contains("1000"), names_cause, "{message}");
        assert!(message.contains(';'), "a remedy: {message}");
    }
    environment.execute("DELETE FROM store_version WHERE version = 1000");
    fixture.client(USERS[0]);
    fixture.collector.stop().unwrap();
}
