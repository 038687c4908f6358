//! Tests of the facts of a job in each kind of store: its owner, its outcome and refused requests; and of
//! names from agents that accept characters which are refused today.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use crate::support::agent::{Agent, job, shape, values};
use crate::support::{TestEnvironment, now_us};
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::batch::Job;
use polymeter_proto::ledger::{Event, JobFacts, JobFactsUpdate, JobOwner, RequestRefused};
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::{JobDescriptor, JobHandle};
use polymeter_store::reader::{JobRow, SeriesScope};

scenarios! {
    stores_a_later_owner_and_keeps_a_known_one,
    stores_refused_requests_with_actor_and_reason,
    state_from_the_controller_is_final,
    invalid_names_from_the_wire_lose_nothing,
    agent_that_starts_again_continues_its_jobs_without_their_cluster,
}

fn find_job(environment: &TestEnvironment, job_id: &str) -> JobRow {
    let jobs = environment.jobs();
    jobs.into_iter().find(|job| job.job_id == job_id).unwrap_or_else(|| panic!("no job {job_id}"))
}

fn job_without_owner(handle: u32, job_id: &str) -> Arc<Job> {
    let Job { descriptor, .. } = (*job(handle, job_id, now_us())).clone();
    let descriptor = JobDescriptor { owner_uid: None, owner: None, ..descriptor };
    Arc::new(Job { handle: JobHandle(handle), descriptor })
}

fn owner(job: u32, uid: Option<u32>, name: Option<&str>) -> Event {
    let name = name.map(|name| name.try_into().unwrap());
    Event::JobOwner(JobOwner { job: JobHandle(job), uid, name })
}

fn stores_a_later_owner_and_keeps_a_known_one(environment: &mut TestEnvironment) {
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let (mine, known) = (job_without_owner(1, "1"), job(2, "2", now_us()));
    let (first, second) = (shape(1, Some(&mine)), shape(2, Some(&known)));
    let at_us = now_us();
    agent.frame(&[(&first, at_us, &values(1).0), (&second, at_us, &values(1).0)], &[], &[]);
    agent.frame(&[], &[], &[owner(1, Some(1234), None), owner(2, Some(1234), Some("eve"))]);
    agent.frame(&[], &[], &[owner(1, Some(4321), Some("zoe"))]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let row = find_job(environment, "1");
    assert_eq!(
        (row.owner_uid, row.owner.as_deref()),
        (Some(1234), Some("zoe")),
        "the first uid and the first name are kept"
    );
    let row = find_job(environment, "2");
    assert_eq!((row.owner_uid, row.owner.as_deref()), (Some(1000), Some("ada")));
}

fn refused(request: &str, period: Option<Sampling>, by: Option<&str>) -> Event {
    Event::RequestRefused(RequestRefused {
        at_us: now_us(),
        job: JobHandle(1),
        request: request.into(),
        period,
        by: by.map(|by| by.try_into().unwrap()),
        reason: "it would cost 13 %: more than `job_cpu_percent` allows".into(),
    })
}

fn stores_refused_requests_with_actor_and_reason(environment: &mut TestEnvironment) {
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let job = job(1, "7", now_us());
    agent.frame(&[(&shape(1, Some(&job)), now_us(), &values(1).0)], &[], &[]);
    let events = [
        refused("cpu.*", Some(Sampling::raw(Period::SECOND)), Some("uid 1000")),
        refused("faster", None, None),
    ];
    agent.frame(&[], &[], &events);
    agent.send_from(0);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let (key, mut reader) = (find_job(environment, "7").job_key, environment.reader());
    let rows = reader.refused_requests(key).unwrap();
    let recorded: Vec<_> =
        rows.iter().map(|row| (row.request.as_str(), row.period_us, row.actor.as_deref())).collect();
    assert_eq!(recorded, [("cpu.*", Some(1_000_000), Some("uid 1000")), ("faster", None, None)]);
    assert!(rows.iter().all(|row| row.reason == "it would cost 13 %: more than `job_cpu_percent` allows"));
    assert_eq!(reader.plan_changes(key).unwrap(), [], "nothing was changed");
}

fn facts(exit_code: u32, exit_signal: u32) -> Event {
    let facts =
        JobFacts { exit_code: Some(exit_code), exit_signal: Some(exit_signal), ..JobFacts::default() };
    Event::JobFacts(JobFactsUpdate { job: JobHandle(1), is_over: false, facts })
}

fn state_from_the_controller_is_final(environment: &mut TestEnvironment) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let mut config: CollectorConfig = environment.config();
    config.control.socket = Some(socket.clone());
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let job = job(1, "7", now_us());
    agent.frame(&[(&shape(1, Some(&job)), now_us(), &values(1).0)], &[], &[facts(1, 0)]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
    let state = |job: &str, cluster: &str| {
        let fields = r#""state":"TIMEOUT","exit_code":0,"exit_signal":15"#;
        send_line(&socket, &format!(r#"{{"verb":"state","job":"{job}","cluster":"{cluster}",{fields}}}"#))
    };
    assert!(state("8", "lab").contains("\"unknown_job\""));
    assert!(state("7", "elsewhere").contains("\"unknown_job\""));
    assert_eq!((find_job(environment, "7").state, find_job(environment, "7").exit_code), (None, Some(1)));
    assert_eq!(state("7", "lab"), "{\"answer\":\"done\"}");
    agent.frame(&[], &[], &[facts(0, 0)]);
    let details = r#""cores":24,"details":{"name":"a 'name'","gpus":2}"#;
    assert_eq!(
        send_line(&socket, &format!(r#"{{"verb":"state","job":"7",{details}}}"#)),
        "{\"answer\":\"done\"}"
    );
    assert_eq!(find_job(environment, "7").cores, Some(24));
    let got = JobFacts { cores: Some(16), ..JobFacts::default() };
    let got = Event::JobFacts(JobFactsUpdate { job: JobHandle(1), is_over: false, facts: got });
    agent.frame(&[], &[], &[got, Event::JobEnded { job: JobHandle(1), at_us: now_us() }]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
    let asked = r#"{"verb":"state","job":"7","state":"TIMEOUT","cores":99}"#;
    assert_eq!(send_line(&socket, asked), "{\"answer\":\"done\"}");
    assert_eq!(find_job(environment, "7").cores, Some(16), "what the prolog of a node said");
    let details = r#""details":{"name":"of another run"}"#;
    assert!(
        send_line(&socket, &format!(r#"{{"verb":"state","job":"7",{details}}}"#)).contains("unknown_job"),
        "the job has ended"
    );
    assert_clusters_are_told_apart(environment, &collector, &socket);
    let row = find_job(environment, "7");
    assert_eq!((row.name.as_deref(), row.gpus, row.memory_bytes), (Some("a 'name'"), Some(2), None));
    assert_eq!((row.state.as_deref(), row.exit_code, row.exit_signal), (Some("TIMEOUT"), Some(0), Some(15)));
    collector.stop().unwrap();
}

/// Jobs of one id on two clusters: a state without a cluster is refused with both names.
fn assert_clusters_are_told_apart(environment: &TestEnvironment, collector: &Collector, socket: &Path) {
    for (session, cluster) in [(2, "blue"), (3, "amber")] {
        let mut agent = Agent::to(&environment.context, collector, cluster, session);
        let mut of = Arc::unwrap_or_clone(job(1, "9", now_us() - i64::try_from(session).unwrap()));
        of.descriptor.cluster = Some(cluster.try_into().unwrap());
        agent.frame(&[(&shape(1, Some(&Arc::new(of))), now_us(), &values(1).0)], &[], &[]);
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
    let state = |fields: &str| send_line(socket, &format!(r#"{{"verb":"state","job":"9",{fields}}}"#));
    for fields in [r#""state":"FAILED""#, r#""details":{"name":"a name"}"#] {
        let answer = state(fields);
        assert!(
            answer.contains(r#""code":"ambiguous","field":"cluster""#)
                && answer.contains("amber, blue; name one with --cluster"),
            "{answer}"
        );
    }
    for (cluster, word) in [("blue", "FAILED"), ("amber", "COMPLETED")] {
        let answer = state(&format!(r#""cluster":"{cluster}","state":"{word}""#));
        assert_eq!(answer, "{\"answer\":\"done\"}");
    }
    let rows = "SELECT cluster || ' ' || state FROM job WHERE job_id = '9' ORDER BY 1";
    assert_eq!(environment.lines(rows), ["amber COMPLETED", "blue FAILED"]);
}

fn send_line(socket: &Path, line: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

/// Part of names in a frame, which [`with_invalid_names`] replaces by [`INVALID`], of the same length.
const VALID: &str = "a-z";

/// Right-to-left override, which names may not contain.
const INVALID: &str = "\u{202e}";

/// CRC-32 as in zlib, without a table.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = !0;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// Makes the names of `frame` invalid: no agent accepts them, and a hostile sender may send them.
fn with_invalid_names(frame: &[u8]) -> Vec<u8> {
    let mut bytes = frame[..frame.len() - 4].to_vec();
    while let Some(at) = bytes.windows(VALID.len()).position(|window| window == VALID.as_bytes()) {
        bytes[at..at + VALID.len()].copy_from_slice(INVALID.as_bytes());
    }
    let checksum = checksum(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

fn invalid_names_from_the_wire_lose_nothing(environment: &mut TestEnvironment) {
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, &format!("node{VALID}"), 1);
    let job = job(1, &format!("a{VALID}b"), now_us());
    let shape = shape(1, Some(&job));
    let begin_us = now_us();
    for seed in 0..20 {
        agent.frame(&[(&shape, begin_us + seed * 1_000_000, &values(seed).0)], &[], &[]);
    }
    for frame in agent.outbox.values_mut() {
        *frame = with_invalid_names(frame);
    }
    agent.send_from(0);
    agent.wait_until_acknowledged();
    let totals = collector.stop().unwrap();
    assert_eq!((totals.samples, totals.refused, totals.losses.in_collector()), (20 * 3, 0, 0));
    let row = find_job(environment, "a?b");
    assert_eq!(row.nodes, ["node?"]);
    assert_eq!(environment.counts(SeriesScope::Job(row.job_key)), [20; 3]);
}

fn job_without_cluster(at_us: i64) -> Arc<Job> {
    let Job { descriptor, .. } = (*job(1, "7", at_us)).clone();
    let descriptor = JobDescriptor { cluster: None, owner: None, ..descriptor };
    Arc::new(Job { handle: JobHandle(1), descriptor })
}

fn sample(agent: &mut Agent, job: &Arc<Job>) {
    agent.frame(&[(&shape(1, Some(job)), now_us(), &values(1).0)], &[], &[]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

/// A prolog announces the cluster to the first agent. The next one finds the job's cgroup.
fn agent_that_starts_again_continues_its_jobs_without_their_cluster(environment: &mut TestEnvironment) {
    let collector = environment.collector();
    let mut first = Agent::to(&environment.context, &collector, "n1", 1);
    sample(&mut first, &job(1, "7", now_us()));
    let mut again = Agent::to(&environment.context, &collector, "n1", 2);
    sample(&mut again, &job_without_cluster(now_us()));
    // The job of another node may be one of another cluster.
    let mut elsewhere = Agent::to(&environment.context, &collector, "n2", 3);
    sample(&mut elsewhere, &job_without_cluster(now_us()));
    collector.stop().unwrap();
    let mut jobs: Vec<_> = environment.jobs().into_iter().map(|job| (job.cluster, job.nodes)).collect();
    jobs.sort();
    assert_eq!(jobs, [(None, vec!["n2".to_owned()]), (Some("lab".to_owned()), vec!["n1".to_owned()])]);
}
