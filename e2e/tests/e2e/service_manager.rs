//! The notifications to the service manager: readiness, reloads, signs of life, and the collector's pages of
//! health.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector_within};
use polymeter_e2e::{TestEnvironment, tests, wait_until};
use rustix::process::Signal;

tests![
    a_daemon_notifies_of_readiness_reloads_and_its_end,
    a_frozen_agent_gives_no_sign_of_life,
    the_collector_is_ready_while_its_store_answers,
];

struct Manager {
    socket: UnixDatagram,
    path: std::path::PathBuf,
}

impl Manager {
    fn new(env: &TestEnvironment, name: &str) -> Self {
        let path = env.path(name);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { socket, path }
    }

    /// Adds the variables of the manager, whose watchdog waits 800 ms.
    fn manages(&self, mut command: Command) -> Command {
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", "800000");
        command
    }

    fn expect(&self, line: &str) {
        let mut received = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let length = self.socket.recv(&mut bytes).unwrap_or_else(|error| {
                panic!("no {line} among the messages: {error}: {received:?}");
            });
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.lines().any(|found| found == line) {
                return;
            }
            received.push(text);
        }
    }

    fn drain(&self) -> usize {
        self.socket.set_nonblocking(true).unwrap();
        let count = std::iter::from_fn(|| self.socket.recv(&mut [0; 4096]).ok()).count();
        self.socket.set_nonblocking(false).unwrap();
        count
    }
}

fn observe(manager: &Manager, daemon: Daemon) {
    manager.expect("READY=1");
    manager.expect("WATCHDOG=1");
    manager.expect("WATCHDOG=1");
    daemon.signal(Signal::HUP);
    manager.expect("RELOADING=1");
    manager.expect("READY=1");
    manager.expect("WATCHDOG=1");
    daemon.signal(Signal::TERM);
    manager.expect("STOPPING=1");
    drop(daemon);
}

fn a_daemon_notifies_of_readiness_reloads_and_its_end() {
    let env = TestEnvironment::new();
    let manager = Manager::new(&env, "of-collector");
    let (collector, endpoint) =
        collector_within(&env, &env.endpoint(), "", |program| manager.manages(program));
    let of_agent = Manager::new(&env, "of-agent");
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("node.load1", "100ms")] };
    let agent = Agent::start_within(&env, &plan, "", "", |program| of_agent.manages(program));
    observe(&of_agent, agent.daemon);
    observe(&manager, collector);
}

/// A process in state T cannot send; when it continues, its signs of life do, too.
fn a_frozen_agent_gives_no_sign_of_life() {
    let env = TestEnvironment::new();
    let manager = Manager::new(&env, "manager");
    let endpoint = env.endpoint();
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("node.load1", "100ms")] };
    let agent = Agent::start_within(&env, &plan, "", "", |program| manager.manages(program));
    manager.expect("WATCHDOG=1");
    agent.daemon.signal(Signal::STOP);
    wait_until("the agent is frozen", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", agent.daemon.pid())).unwrap();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    });
    manager.drain();
    // Several intervals of the watchdog.
    polymeter_e2e::pause(1000);
    let received = manager.drain();
    agent.daemon.signal(Signal::CONT);
    assert_eq!(received, 0);
    manager.expect("WATCHDOG=1");
}

fn the_collector_is_ready_while_its_store_answers() {
    let mut env = TestEnvironment::postgres();
    let more = "metrics_listen = \"127.0.0.1:0\"\n";
    let (collector, endpoint) = collector_within(&env, &env.endpoint(), more, |program| program);
    let mut found = None;
    wait_until("the collector serves its metrics", || {
        found = metrics_address(&collector.log());
        found.is_some()
    });
    let address = found.unwrap();
    let status = |path: &str| -> String {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!((status("/health"), status("/ready")), ("200".to_owned(), "200".to_owned()));
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("node.load1", "10ms")] };
    let agent = Agent::start(&env, &plan);
    env.server().stop();
    wait_until("the collector is not ready", || status("/ready") == "503");
    assert_eq!(status("/health"), "200");
    env.server().resume();
    wait_until("the collector is ready again", || status("/ready") == "200");
    agent.daemon.terminate();
    collector.terminate();
}

fn metrics_address(log: &str) -> Option<String> {
    Some(log.split_once("serving metrics at http://")?.1.split_once("/metrics")?.0.to_owned())
}
