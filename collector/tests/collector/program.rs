//! Tests of the program as a user or systemd runs it: its messages and its exit status.

use rustix::process::Signal;

use crate::support::agent::{Agent, shape, values};
use crate::support::now_us;
use crate::support::program::{RunningCollector, run};

polymeter_test_harness::tests![
    stores_frames_until_sigterm,
    skewed_clocks_are_logged_once,
    sighup_reloads_the_configuration,
    exit_status_depends_on_the_error
];

fn stores_frames_until_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("p.db").display());
    let collector = RunningCollector::start(&store, &[]);
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &collector.endpoint, "n1", 1);
    agent.frame(&[(&shape(1, None), now_us(), &values(1).0)], &[], &[]);
    agent.send(1);
    agent.wait_until_acknowledged();
    let lines = collector.stop();
    let last = lines.last().unwrap();
    assert!(last.contains("1 frame with 3 samples stored"), "{last}");
}

fn skewed_clocks_are_logged_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("p.db").display());
    let config = directory.path().join("collector.toml");
    std::fs::write(&config, "[clock]\nmax_skew = '1h'\nout_of_range = 'quarantine'\n").unwrap();
    let collector = RunningCollector::start(&store, &["--config", config.to_str().unwrap()]);
    let context = zmq::Context::new();
    for (session, node) in [(1, "n1"), (2, "n2")] {
        let mut agent = Agent::new(&context, &collector.endpoint, node, session);
        for seed in 0..3 {
            let in_a_year = now_us() + 365 * 86_400 * 1_000_000 + seed;
            agent.frame(&[(&shape(1, None), in_a_year, &values(seed).0)], &[], &[]);
        }
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
    let lines = collector.stop();
    for node in ["[node=n1]", "[node=n2]"] {
        let messages: Vec<_> = lines.iter().filter(|line| line.contains(node)).collect();
        assert_eq!(messages.len(), 1, "{lines:?}");
        // A little less than a year, since some time passes until it arrives.
        assert!(
            messages[0].contains("36") && messages[0].contains(" d in the future (at most 60 min)"),
            "{messages:?}"
        );
        assert!(messages[0].contains("raise `max_skew` in [clock]"), "{messages:?}");
    }
    assert!(
        lines.last().unwrap().contains("0 samples stored")
            && lines.last().unwrap().contains("18 quarantined")
    );
}

fn send_in_two_hours(agent: &mut Agent, seed: i64) {
    let time_us = now_us() + 7200 * 1_000_000;
    agent.frame(&[(&shape(1, None), time_us, &values(seed).0)], &[], &[]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

fn sighup_reloads_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("p.db").display());
    let config = directory.path().join("collector.toml");
    let write = |text: &str| std::fs::write(&config, text).unwrap();
    write("[clock]\nmax_skew = '1h'\n");
    let collector = RunningCollector::start(&store, &["--config", config.to_str().unwrap()]);
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &collector.endpoint, "n1", 1);
    send_in_two_hours(&mut agent, 1);
    assert!(collector.next_line().contains("cannot trust the times of samples"));
    // An invalid file changes nothing, and its faults are reported.
    write("writers = 0\n[clock]\nmax_skew = '1y'\n");
    collector.signal(Signal::HUP);
    let messages = [(); 3].map(|()| collector.next_line());
    for line in ["collector.toml:1: ", "collector.toml:3: "] {
        assert!(messages[..2].iter().any(|fault| fault.contains(line)), "{messages:?}");
    }
    assert!(
        messages[2].starts_with("polymeter-collector: error: ")
            && messages[2].contains("the previous configuration remains in force"),
        "{messages:?}"
    );
    send_in_two_hours(&mut agent, 2);
    write(
        "commit_interval = '100ms'\nwriters = 3\nmetrics_listen = '127.0.0.1:9'\n[clock]\nmax_skew = '3h'\n",
    );
    collector.signal(Signal::HUP);
    assert_eq!(collector.next_line(), "polymeter-collector: info: reloaded the configuration");
    let messages = collector.next_line();
    assert!(
        messages.contains("writers, metrics_listen cannot change while the collector runs; restart"),
        "{messages}"
    );
    send_in_two_hours(&mut agent, 3);
    let lines = collector.stop();
    let last = lines.last().unwrap();
    assert!(last.contains("3 samples stored") && last.contains("6 samples rejected"), "{last}");
}

fn exit_status_depends_on_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("p.db").display());
    assert_eq!(run(&["--version"]).0, Some(0));
    assert_eq!(run(&["--store", &store, "--check"]).0, Some(0));
    assert_eq!(run(&["--no-such-option"]).0, Some(2));
    let (status, messages) = run(&["--store", "mysql:x", "--listen", "here"]);
    assert_eq!((status, messages.lines().count()), (Some(2), 2), "{messages}");
    let (status, messages) = run(&["--store", &store, "--listen", "ipc:///nowhere/at/all"]);
    assert!(status == Some(3) && messages.contains("cannot listen at ipc:///nowhere/at/all"), "{messages}");
    let (status, messages) = run(&["--store", "sqlite:/nowhere/at/all.db", "--listen", "tcp://127.0.0.1:*"]);
    assert!(status == Some(3) && messages.contains("/nowhere/at/all.db"), "{messages}");
    let (status, messages) = run(&["--store", "host=/nowhere user=u", "--listen", "tcp://127.0.0.1:*"]);
    assert!(status == Some(3) && messages.contains("connecting"), "{messages}");
    for arguments in [
        &["--store", "mysql:x"][..],
        &["--config", "/nowhere/collector.toml", "--check"],
        &["--store", &store, "--listen", "ipc:///nowhere/at/all"],
        &["--store", "sqlite:/nowhere/at/all.db", "--listen", "tcp://127.0.0.1:*"],
    ] {
        let messages = run(arguments).1;
        assert!(
            messages.lines().all(|line| line.starts_with("polymeter-collector: error: ")),
            "a fatal error is not a warning: {messages}"
        );
    }
}
