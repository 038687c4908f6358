//! Tests that the ledger agrees with the rows, and of the ends of sessions and jobs, with every kind of
//! store: including killed agents and reappearing jobs.

use std::sync::Arc;
use std::time::Duration;

use crate::support::agent::{Agent, job, shape, values};
use crate::support::{TestEnvironment, now_us, only_job, wait_until};
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::batch::{Job, Shape};
use polymeter_proto::ledger::{Event, LedgerEntry, Tally};
use polymeter_proto::series::{JobHandle, Processors, SessionDescriptor, SessionId};
use polymeter_store::accepted::{Accepted, SessionRecord};
use polymeter_store::{OpenOptions, Store};

scenarios! {
    a_returning_job_has_a_line_for_each_handle,
    a_killed_agent_leaves_a_loss,
    a_stopped_agent_leaves_no_loss,
    jobs_of_a_silent_agent_end_until_it_returns,
    one_job_id_of_two_owners_is_two_jobs,
    a_job_ends_with_its_last_node,
    handles_of_one_transaction_are_distinguished,
    a_handle_keeps_its_job_after_a_restart,
    silence_is_measured_by_the_clock_of_the_database,
    a_session_ends_though_its_successor_did_not_see_it,
}

const SECOND_US: i64 = 1_000_000;

fn add_row(agent: &mut Agent, shape: &Arc<Shape>, begin_us: i64, seconds: i64) {
    agent.frame(&[(shape, begin_us + seconds * SECOND_US, &values(seconds).0)], &[], &[]);
}

fn add_tally(agent: &mut Agent, job: Option<u32>, rows: u64, events: &[Event]) {
    let tally = Tally { due: rows * 3, taken: rows * 3, ..Tally::default() };
    let entry = LedgerEntry { job: job.map(JobHandle), source: "stat".try_into().unwrap(), tally };
    agent.frame(&[], &[entry], events);
}

fn ended(handle: u32, at_us: i64) -> Event {
    Event::JobEnded { job: JobHandle(handle), at_us }
}

fn deliver(agent: &mut Agent) {
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

/// Checks that the ledger counts the rows of each job and of the nodes, and that every line is balanced.
fn assert_balanced(environment: &TestEnvironment) {
    let wrong = "SELECT count(*) FROM ledger_balance
         WHERE due <> missed + absent + dropped + skipped + rejected + quarantined + stored + unknown OR unknown < 0";
    assert_eq!(environment.number(wrong), 0);
    let by_job = "SELECT count(*) FROM (
             SELECT coalesce(job_key, 0) AS job, sum(stored) AS stored FROM ledger_balance GROUP BY 1
         ) AS counted FULL JOIN (
             SELECT coalesce(job_key, 0) AS job, count(*) AS stored FROM samples JOIN series USING (series_id) GROUP BY 1
         ) AS stored_rows USING (job)
         WHERE coalesce(counted.stored, 0) <> coalesce(stored_rows.stored, 0)";
    assert_eq!(environment.number(by_job), 0);
}

fn config_with_timeout(environment: &TestEnvironment, session_timeout: Duration) -> CollectorConfig {
    CollectorConfig { session_timeout, ..environment.config() }
}

fn a_returning_job_has_a_line_for_each_handle(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    for handle in 1..=4 {
        // With the start time from a prolog, all handles of the job began at the same time.
        let of_job = shape(handle, Some(&job(handle, "7", begin_us)));
        let rows = i64::from(handle) * 2;
        (0..rows).for_each(|row| add_row(&mut agent, &of_job, begin_us, i64::from(handle) * 10 + row));
        let end = ended(handle, begin_us + i64::from(handle) * 10 * SECOND_US + 9 * SECOND_US);
        add_tally(&mut agent, Some(handle), rows as u64, &[end]);
        deliver(&mut agent);
        assert_balanced(environment);
    }
    collector.stop().unwrap();
    let job = only_job(environment);
    assert_eq!(job.ended_ns, Some((begin_us + 49 * SECOND_US) * 1000));
    let ledger = environment.reader().ledger(job.job_key).unwrap();
    assert_eq!(ledger.iter().map(|row| row.stored).collect::<Vec<_>>(), [6, 12, 18, 24]);
    assert!(ledger.iter().all(|row| row.unknown == 0));
}

/// Adds rows of two jobs and the node, of which only some are in a tally.
fn add_partly_tallied_rows(agent: &mut Agent, begin_us: i64) {
    let (own, first, second) =
        (shape(1, None), shape(2, Some(&job(1, "a", begin_us))), shape(3, Some(&job(2, "b", begin_us))));
    for seconds in 0..3 {
        for shape in [&own, &first, &second] {
            add_row(agent, shape, begin_us, seconds);
        }
    }
    add_tally(agent, Some(1), 3, &[]);
    add_tally(agent, Some(2), 3, &[ended(2, begin_us + 3 * SECOND_US)]);
    add_row(agent, &first, begin_us, 4);
    add_row(agent, &own, begin_us, 5);
}

fn a_killed_agent_leaves_a_loss(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 60 * SECOND_US;
    let collector = environment.collector();
    let mut killed = Agent::to(&environment.context, &collector, "n1", 1);
    add_partly_tallied_rows(&mut killed, begin_us);
    deliver(&mut killed);
    assert_balanced(environment);
    drop(killed);
    assert_eq!(environment.number("SELECT count(*) FROM loss"), 0);
    // The next session still tracks one of the jobs.
    let mut successor = Agent::to(&environment.context, &collector, "n1", 2);
    successor.descriptor.started_us += 1;
    add_row(&mut successor, &shape(1, Some(&job(1, "a", begin_us + 50 * SECOND_US))), begin_us, 55);
    deliver(&mut successor);
    assert_balanced(environment);
    let gap = "SELECT count(*) FROM loss JOIN session USING (session_id) LEFT JOIN job USING (job_key)
         WHERE reason = 'unknown' AND samples = 0 AND end_reason = 'superseded' AND last_time > first_time
             AND coalesce(job.job_id, '-') IN ('-', 'a')";
    assert_eq!((environment.number(gap), environment.number("SELECT count(*) FROM loss")), (2, 2));
    let jobs = environment.jobs();
    let running: Vec<_> = jobs.iter().filter(|job| job.ended_ns.is_none()).collect();
    assert_eq!(running.iter().map(|job| job.job_id.as_str()).collect::<Vec<_>>(), ["a"]);
    let losses = environment.reader().losses(running[0].job_key).unwrap();
    assert_eq!(losses[0].first_time_ns, (begin_us + 5 * SECOND_US) * 1000);
    collector.stop().unwrap();
}

fn a_stopped_agent_leaves_no_loss(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 60 * SECOND_US;
    let collector = environment.collector();
    let mut stopped = Agent::to(&environment.context, &collector, "n1", 1);
    add_partly_tallied_rows(&mut stopped, begin_us);
    stopped.frame(&[], &[], &[Event::SessionEnded { at_us: begin_us + 6 * SECOND_US }]);
    // Repeated events follow the end of the session.
    add_tally(&mut stopped, Some(1), 4, &[]);
    deliver(&mut stopped);
    let mut successor = Agent::to(&environment.context, &collector, "n1", 2);
    successor.descriptor.started_us += 1;
    add_row(&mut successor, &shape(1, None), begin_us, 55);
    deliver(&mut successor);
    collector.stop().unwrap();
    assert_balanced(environment);
    assert_eq!(environment.number("SELECT count(*) FROM loss"), 0);
    assert_eq!(environment.number("SELECT count(*) FROM session WHERE end_reason = 'stopped'"), 1);
    assert_eq!(environment.number("SELECT count(*) FROM session WHERE ended IS NULL"), 1);
}

fn jobs_of_a_silent_agent_end_until_it_returns(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 60 * SECOND_US;
    let collector =
        Collector::start(&config_with_timeout(environment, Duration::from_secs(1)), &environment.context)
            .unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    add_partly_tallied_rows(&mut agent, begin_us);
    deliver(&mut agent);
    wait_until("the jobs of the silent agent have ended", || {
        environment.jobs().iter().all(|job| job.ended_ns.is_some())
    });
    let jobs = environment.jobs();
    let lost: Vec<_> = jobs.iter().filter(|job| !job.lost_nodes.is_empty()).collect();
    assert_eq!(lost.iter().map(|job| job.job_id.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(lost[0].ended_ns, Some((begin_us + 5 * SECOND_US) * 1000));
    assert_eq!(environment.number("SELECT count(*) FROM loss WHERE reason = 'unknown'"), 2);
    collector.stop().unwrap();

    // The network was interrupted, and nothing is unknown afterwards.
    let collector = environment.collector();
    add_row(&mut agent, &shape(2, Some(&job(1, "a", begin_us))), begin_us, 6);
    deliver(&mut agent);
    assert_eq!(environment.number("SELECT count(*) FROM loss"), 0);
    assert_eq!(environment.number("SELECT count(*) FROM session WHERE ended IS NULL"), 1);
    let jobs = environment.jobs();
    assert_eq!(jobs.iter().filter(|job| job.ended_ns.is_none()).count(), 1, "{jobs:?}");
    assert!(jobs.iter().all(|job| job.lost_nodes.is_empty()));
    collector.stop().unwrap();
    assert_balanced(environment);
}

fn owned(handle: u32, uid: Option<u32>, started_us: i64) -> Arc<Job> {
    let mut of = Arc::unwrap_or_clone(job(handle, "7", started_us));
    of.descriptor.owner_uid = uid;
    of.descriptor.owner = None;
    Arc::new(of)
}

fn one_job_id_of_two_owners_is_two_jobs(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let collector = environment.collector();
    for (session, uid, row) in [(1, Some(1000), 1), (2, Some(2000), 2), (3, None, 3), (4, Some(1000), 4)] {
        let mut agent = Agent::to(&environment.context, &collector, &format!("n{session}"), session);
        add_row(&mut agent, &shape(1, Some(&owned(1, uid, begin_us + row))), begin_us, row);
        deliver(&mut agent);
    }
    collector.stop().unwrap();
    let jobs = environment.jobs();
    let of = |uid| jobs.iter().filter(|job| job.owner_uid == Some(uid)).collect::<Vec<_>>();
    assert_eq!((jobs.len(), of(1000).len(), of(2000).len()), (2, 1, 1), "{jobs:?}");
    assert!(of(1000)[0].nodes.contains(&"n4".to_owned()) && !of(1000)[0].nodes.contains(&"n2".to_owned()));
    assert_balanced(environment);
}

fn a_job_ends_with_its_last_node(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let collector = environment.collector();
    let mut agents: Vec<_> = ["n1", "n2"]
        .into_iter()
        .zip(1..)
        .map(|(node, session)| Agent::to(&environment.context, &collector, node, session))
        .collect();
    for agent in &mut agents {
        add_row(agent, &shape(1, Some(&job(1, "7", begin_us))), begin_us, 1);
        deliver(agent);
    }
    agents[0].frame(&[], &[], &[ended(1, begin_us + 9 * SECOND_US)]);
    deliver(&mut agents[0]);
    assert_eq!(only_job(environment).ended_ns, None);
    agents[1].frame(&[], &[], &[ended(1, begin_us + 8 * SECOND_US)]);
    deliver(&mut agents[1]);
    assert_eq!(only_job(environment).ended_ns, Some((begin_us + 9 * SECOND_US) * 1000));
    collector.stop().unwrap();
}

fn handles_of_one_transaction_are_distinguished(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 3600 * SECOND_US;
    let listen = "inproc://collector".to_owned();
    let config =
        CollectorConfig { listen, commit_interval: Duration::from_secs(3600), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    for handle in 1..=3 {
        let started_us = begin_us + i64::from(handle) * 100 * SECOND_US;
        let of_job = shape(handle, Some(&job(handle, "7", started_us)));
        add_row(&mut agent, &of_job, started_us, 1);
        add_tally(&mut agent, Some(handle), 1, &[ended(handle, started_us + 2 * SECOND_US)]);
    }
    agent.send_from(0);
    // The shutdown commits all messages in the socket together.
    collector.stop().unwrap();
    agent.wait_until_acknowledged();
    let jobs = environment.jobs();
    let lasted: Vec<_> = jobs.iter().map(|job| job.ended_ns.map(|ended| ended - job.started_ns)).collect();
    assert_eq!(lasted, [Some(2_000_000_000); 3]);
    assert_balanced(environment);
}

fn a_handle_keeps_its_job_after_a_restart(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 3600 * SECOND_US;
    let at = |seconds: i64| begin_us + seconds * SECOND_US;
    let collector = environment.collector();
    let mut other = Agent::to(&environment.context, &collector, "n2", 2);
    add_row(&mut other, &shape(1, Some(&job(1, "7", at(1)))), begin_us, 2);
    deliver(&mut other);
    // Its cgroups disappear and reappear on one node, while it runs on the other.
    let mut agent = Agent::new(&environment.context, &environment.config().listen, "n1", 1);
    add_row(&mut agent, &shape(1, Some(&job(1, "7", at(0)))), begin_us, 1);
    add_tally(&mut agent, Some(1), 1, &[ended(1, at(5))]);
    add_row(&mut agent, &shape(2, Some(&job(2, "7", at(10)))), begin_us, 11);
    deliver(&mut agent);
    other.frame(&[], &[], &[ended(1, at(30))]);
    agent.frame(&[], &[], &[ended(2, at(20))]);
    deliver(&mut agent);
    deliver(&mut other);
    // It reappears as another job before the last tally of the previous handle has arrived.
    add_row(&mut other, &shape(2, Some(&job(2, "7", at(100)))), begin_us, 101);
    deliver(&mut other);
    collector.stop().unwrap();
    let collector = environment.collector();
    add_tally(&mut agent, Some(2), 1, &[]);
    deliver(&mut agent);
    collector.stop().unwrap();
    assert_balanced(environment);
    assert_eq!(environment.jobs().len(), 2);
    assert_eq!(environment.number("SELECT sum(unknown) FROM ledger_balance"), 0);
    // Each handle has one job.
    let of_handle = "SELECT count(*) FROM (SELECT session_id, handle FROM ledger GROUP BY 1, 2 HAVING count(DISTINCT job_key) > 1) AS wrong";
    assert_eq!(environment.number(of_handle), 0);
}

/// Two of three collectors have a clock that is wrong by two hours.
fn silence_is_measured_by_the_clock_of_the_database(environment: &mut TestEnvironment) {
    environment.collector().stop().unwrap();
    let mut store = Store::open(&environment.url(), &OpenOptions::default()).unwrap();
    for (session, behind_s) in [(1, 7200), (2, -7200), (3, 0)] {
        let descriptor = SessionDescriptor {
            node: format!("n{session}").as_str().try_into().unwrap(),
            agent_version: "0.1.0".try_into().unwrap(),
            started_us: now_us() - 60 * SECOND_US,
            processors: Processors::default(),
        };
        let session = Arc::new(SessionRecord { id: SessionId(session), descriptor });
        store.commit(&[Accepted::empty(session, 1, now_us() - behind_s * SECOND_US)]).unwrap();
    }
    let running = "SELECT count(*) FROM session WHERE ended IS NULL";
    let now_us = store.now_us().unwrap();
    store.end_silent(now_us - 300 * SECOND_US, now_us).unwrap();
    assert_eq!(environment.number(running), 3);
    store.end_silent(now_us + 300 * SECOND_US, now_us + 300 * SECOND_US).unwrap();
    assert_eq!(environment.number(running), 0);
}

/// Its row was locked when its successor began.
fn a_session_ends_though_its_successor_did_not_see_it(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 60 * SECOND_US;
    let collector = environment.collector();
    for session in [1, 2] {
        let started_us = begin_us + 20 * SECOND_US * session as i64;
        let mut agent = Agent::to(&environment.context, &collector, "n1", session);
        agent.descriptor.started_us = started_us;
        add_row(&mut agent, &shape(1, None), started_us, 1);
        add_tally(&mut agent, None, 1, &[]);
        deliver(&mut agent);
    }
    collector.stop().unwrap();
    let ends = "SELECT count(*) FROM session JOIN loss USING (session_id)
        WHERE end_reason = 'superseded' AND first_time = last_sample AND reason = 'unknown'
            AND last_time = (SELECT started FROM session AS next WHERE next.started > session.started)";
    assert_eq!(environment.number(ends), 1);
    environment.execute("UPDATE session SET ended = NULL, end_reason = NULL");
    environment.execute("DELETE FROM loss");
    let mut store = Store::open(&environment.url(), &OpenOptions::default()).unwrap();
    let now_us = store.now_us().unwrap();
    store.end_superseded(now_us - 60 * SECOND_US, now_us).unwrap();
    assert_eq!(environment.number("SELECT count(*) FROM session WHERE ended IS NULL"), 2);
    store.end_superseded(now_us + 60 * SECOND_US, now_us).unwrap();
    assert_eq!(environment.number(ends), 1);
    assert_eq!(environment.number("SELECT count(*) FROM session WHERE ended IS NULL"), 1);
}
