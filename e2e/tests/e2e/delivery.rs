//! Delivery from the agent to the database: each sample is stored once, even if programs are killed,
//! restarted or attacked.

use std::collections::HashSet;
use std::io::Write;
use std::net::TcpStream;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::fixture::DiscoveredJob;
use polymeter_e2e::random::Random;
use polymeter_e2e::stored;
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, pause, require, wait_until};
use polymeter_store::reader::SeriesScope;
use rustix::process::Signal;
use serde_json::json;

tests![
    forged_frames_are_refused,
    killed_collector_loses_and_repeats_nothing,
    killed_agent_starts_a_new_session,
    terminated_agent_delivers_everything,
    agent_delivers_after_the_collector_starts,
    shutdown_without_collector_reports_the_loss,
    deleted_store_is_not_acknowledged,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

/// No metric of the node: all samples belong to jobs.
const BASELINE: [(&str, &str); 3] = [("memory.*", "2ms"), ("cpu.*", "2ms"), ("pids.*", "2ms")];

fn start() -> DiscoveredJob {
    require(&NEEDS);
    DiscoveredJob::start(Some("tcp://127.0.0.1:*"), &BASELINE, "v1/memory.stat")
}

fn start_agent(env: &TestEnvironment, endpoint: &str, cgroups: &TestCgroups) -> Agent {
    Agent::start(env, &Plan { collector: endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE })
}

/// Checks that all samples of this agent are stored. Its jobs must have ended, and the store must know.
fn assert_complete(env: &TestEnvironment, agent: &Agent, rows_before: u64) {
    wait_until("no frame waits", || agent.count("outbox_bytes") == 0);
    let (taken, dropped) = (agent.count("taken"), agent.count("dropped"));
    assert_eq!((all_rows(env) - rows_before, dropped), (taken, 0));
    assert!(taken > 1000, "only {taken} samples");
}

fn all_rows(env: &TestEnvironment) -> u64 {
    let mut reader = env.reader();
    let jobs = stored::jobs(&mut reader);
    jobs.iter().map(|job| stored::rows(&mut reader, job.job_key)).sum()
}

fn wait_for_samples(agent: &Agent) {
    let before = agent.count("taken");
    wait_until("more samples are taken", || agent.count("taken") > before + 2000);
}

fn forged_frames_are_refused() {
    let mut fixture = start();
    let context = zmq::Context::new();
    let frames = real_frames(&fixture, &context);
    let address = fixture.endpoint.strip_prefix("tcp://").unwrap().to_owned();

    // Connections that send nothing, and connections that send random bytes.
    let mut random = Random::new(1);
    let mut held: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for stream in held.iter_mut().step_by(2) {
        // The collector may have closed the connection already.
        stream.write_all(&random.bytes(200)).ok();
    }
    // Peers that speak ZeroMQ but not the protocol.
    let [random_sender, oversized_sender, forging_sender] = std::array::from_fn(|_| {
        let socket = context.socket(zmq::DEALER).unwrap();
        socket.set_linger(0).unwrap();
        socket.set_sndtimeo(10_000).unwrap();
        socket.connect(&fixture.endpoint).unwrap();
        socket
    });
    for size in 0..300 {
        random_sender.send(random.bytes(size), 0).unwrap();
    }
    random_sender.send_multipart([&b"PLM\x01"[..], &b"PLM\x01"[..], &[]], 0).unwrap();
    for size in [1, 3, 4, 5, 16] {
        // Beyond 4 MiB the collector closes the connection and drops the rest.
        oversized_sender.send(vec![b'P'; size << 20], 0).ok();
        let mut invalid_count = b"PLC\x01\x00".to_vec();
        invalid_count.resize(size << 18, 0xfd);
        forging_sender.send(invalid_count, 0).unwrap();
    }
    for frame in &frames {
        let mut other = frame.clone();
        other[3] = other[3].wrapping_add(1);
        forging_sender.send(other, 0).unwrap();
        for _ in 0..500 {
            let mut flipped = frame.clone();
            let bit = random.below(flipped.len() as u64 * 8) as usize;
            flipped[bit / 8] ^= 1 << (bit % 8);
            forging_sender.send(flipped, 0).unwrap();
        }
        forging_sender.send(&frame[..frame.len() / 2], 0).unwrap();
    }
    assert!(forging_sender.poll(zmq::POLLIN, 30_000).unwrap() > 0, "the sender of forged frames is answered");

    wait_for_samples(&fixture.agent);
    fixture.job.remove();
    stored::wait_for_end(&fixture.env, "1");
    assert_complete(&fixture.env, &fixture.agent, 0);
    assert!(fixture.collector.runs());
    let nodes: HashSet<String> =
        stored::jobs(&mut fixture.env.reader()).into_iter().flat_map(|job| job.nodes).collect();
    assert_eq!(nodes, HashSet::from([fixture.env.node.clone()]));
    fixture.agent.daemon.terminate();
    let log = fixture.collector.terminate();
    assert!(log.contains("cannot accept a message"), "{log}");
    drop(held);
}

/// Frames of another agent, which has the same job and sends to this test only.
fn real_frames(fixture: &DiscoveredJob, context: &zmq::Context) -> Vec<Vec<u8>> {
    let router = context.socket(zmq::ROUTER).unwrap();
    router.set_linger(0).unwrap();
    let env = TestEnvironment::new();
    router.bind(&env.endpoint()).unwrap();
    let agent = start_agent(&env, &env.endpoint(), &fixture.cgroups);
    let frames = (0..3).map(|_| {
        assert!(router.poll(zmq::POLLIN, 30_000).unwrap() > 0, "no frame comes");
        router.recv_multipart(0).unwrap().pop().unwrap()
    });
    let frames = frames.collect();
    agent.daemon.kill();
    frames
}

fn killed_collector_loses_and_repeats_nothing() {
    let fixture = start();
    let DiscoveredJob { env, collector: mut collector_daemon, endpoint, agent, job, .. } = fixture;
    for _ in 0..3 {
        wait_for_samples(&agent);
        collector_daemon.kill();
        wait_for_samples(&agent);
        (collector_daemon, _) = collector(&env, &endpoint);
        let acknowledged = agent.count("frames_acknowledged");
        wait_until("frames are acknowledged again", || agent.count("frames_acknowledged") > acknowledged);
    }
    job.remove();
    stored::wait_for_end(&env, "1");
    assert_complete(&env, &agent, 0);
    assert!(env.reader().last_losses(u32::MAX).unwrap().is_empty());
    agent.daemon.terminate();
    collector_daemon.terminate();
}

fn killed_agent_starts_a_new_session() {
    let fixture = start();
    let DiscoveredJob { env, collector: first, endpoint, agent, cgroups, job, .. } = fixture;
    wait_for_samples(&agent);
    wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > 3);
    let acknowledged = agent.count("frames_acknowledged");
    let session = agent.status()["session"].as_str().unwrap().to_owned();
    agent.daemon.kill();
    first.terminate();
    let before = all_rows(&env);
    assert!(before > 0);

    // The stale socket and the earlier session do not hinder the next agent.
    let (second, _) = collector(&env, &endpoint);
    let agent = start_agent(&env, &endpoint, &cgroups);
    assert_ne!(agent.status()["session"], session);
    agent.wait_until_tracked("1", &["v1/memory.stat"]);
    wait_for_samples(&agent);
    job.remove();
    stored::wait_for_end(&env, "1");
    assert_complete(&env, &agent, before);
    let mut reader = env.reader();
    let job = stored::job(&mut reader, "1").unwrap();
    let sessions: HashSet<String> =
        reader.ledger(job.job_key).unwrap().into_iter().map(|row| row.session_id).collect();
    assert!(sessions.len() <= 2 && acknowledged > 0);
    agent.daemon.terminate();
    second.terminate();
}

fn terminated_agent_delivers_everything() {
    let fixture = start();
    let DiscoveredJob { env, collector: collector_daemon, agent, job, .. } = fixture;
    wait_for_samples(&agent);
    let log = agent.daemon.terminate();
    assert!(!log.contains("did not acknowledge"), "{log}");
    collector_daemon.terminate();
    // The job continues, and its ledger is as complete as its samples.
    let mut reader = env.reader();
    let stored = stored::job(&mut reader, "1").unwrap();
    assert_eq!(stored.ended_ns, None);
    let sum = stored::sum(&stored::ledger(&mut reader, stored.job_key));
    assert_eq!(sum.taken, stored::rows(&mut reader, stored.job_key), "{sum:?}");
    job.remove();
}

fn agent_delivers_after_the_collector_starts() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let job = cgroups.job("1");
    let agent = start_agent(&env, &env.endpoint(), &cgroups);
    agent.wait_until_tracked("1", &["v1/memory.stat"]);
    wait_for_samples(&agent);
    wait_for_samples(&agent);
    assert_eq!((agent.count("frames_sent"), agent.count("dropped")), (0, 0));
    assert!(agent.count("outbox_bytes") > 0);
    let without_us = polymeter_e2e::now_us();
    let (collector_daemon, _) = collector(&env, &env.endpoint());
    wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > 0);
    job.remove();
    let ended = stored::wait_for_end(&env, "1");
    assert_complete(&env, &agent, 0);
    let mut reader = env.reader();
    let samples = stored::samples(&mut reader, SeriesScope::Job(ended.job_key));
    let first_us = samples.values().filter_map(|series| series.points.first()).map(|point| point.0).min();
    assert!(first_us.unwrap() < without_us);
    assert!(reader.last_losses(u32::MAX).unwrap().is_empty());
    agent.daemon.terminate();
    collector_daemon.terminate();
}

fn shutdown_without_collector_reports_the_loss() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let _job = cgroups.job("1");
    let agent = start_agent(&env, &env.endpoint(), &cgroups);
    agent.wait_until_tracked("1", &["v1/memory.stat"]);
    assert_eq!(agent.ask(&json!({"verb": "flush"}))["answer"], "done");
    wait_until("frames wait", || agent.count("outbox_bytes") > 0);
    pause(10);
    let (status, log) = agent.daemon.end(Signal::TERM);
    assert!(
        status.success() && log.contains("cannot deliver all samples: the collector did not acknowledge"),
        "{status}: {log}"
    );
}

fn deleted_store_is_not_acknowledged() {
    let fixture = start();
    let DiscoveredJob { env, collector: collector_daemon, agent, job, .. } = fixture;
    wait_for_samples(&agent);
    wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > 3);
    let store = env.path("store.db");
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", store.display())).unwrap();
    }
    wait_until("the collector has another store", || {
        collector_daemon.log().contains("a new one was created")
    });
    let acknowledged = agent.count("frames_acknowledged");
    wait_until("frames are acknowledged again", || agent.count("frames_acknowledged") > acknowledged + 3);
    job.remove();
    stored::wait_for_end(&env, "1");
    wait_until("no frame waits", || agent.count("outbox_bytes") == 0);
    let (taken, dropped) = (agent.count("taken"), agent.count("dropped"));
    let rows = all_rows(&env);
    assert!(dropped == 0 && 0 < rows && rows <= taken, "{rows} of {taken}");
    let losses = env.reader().last_losses(u32::MAX).unwrap();
    let reasons: Vec<_> = losses.iter().map(|loss| loss.reason.as_str()).collect();
    // The agent sends acknowledged frames again, as far as it keeps them.
    let expected: &[&str] = if rows < taken { &["store_replaced"] } else { &[] };
    assert_eq!(reasons, expected, "{rows} of {taken}");
    let log = collector_daemon.terminate();
    let why =
        format!("error: cannot acknowledge the samples written to {}: the file was deleted", store.display());
    assert!(log.contains(&why), "{log}");
    agent.daemon.terminate();
}
