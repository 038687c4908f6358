//! Authentication of agents to a collector with keys: the real programs over real connections.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use polymeter_e2e::daemons::{Daemon, keygen};
use polymeter_e2e::tests;
use polymeter_e2e::{TestEnvironment, pause, program, stored, wait_until};
use polymeter_proto::key::{KeyPair, PublicKey};
use polymeter_store::reader::SeriesScope;
use rustix::process::Signal;
use serde_json::Value;

tests![
    keygen_creates_private_files_once,
    authorised_agent_delivers,
    unknown_key_is_refused_until_authorised,
    removed_key_is_revoked_for_connected_agents,
    agent_without_keys_is_refused,
    agent_with_keys_refuses_a_collector_without,
    agent_refuses_a_wrong_collector_key,
    key_is_bound_to_its_node,
    keys_readable_by_others_are_refused,
    collector_without_keys_listens_locally_only,
];

/// An environment with key pairs of a collector, `collector`, and of agents.
struct Fixture {
    env: TestEnvironment,
    endpoint: String,
}

#[derive(Clone, Copy)]
enum Keys<'a> {
    None,
    /// Name of the agent's own pair, and of the collector's public key.
    Pair(&'a str, &'a str),
}

impl Fixture {
    fn new() -> Self {
        let env = TestEnvironment::new();
        fs::create_dir(env.path("agents.d")).unwrap();
        for name in ["collector", "n1", "n2"] {
            assert!(keygen(&env, name).0, "{name}");
        }
        let endpoint = env.endpoint();
        Self { env, endpoint }
    }

    fn collector(&mut self, keys: bool, more: &str) -> Daemon {
        let path = |name: &str| self.env.path(name).display().to_string();
        let mut text = format!(
            "listen = \"tcp://127.0.0.1:*\"\nmetrics_listen = \"127.0.0.1:0\"\nstore = \"{}\"\ncommit_interval = \"20ms\"\n{more}\n",
            self.env.store()
        );
        if keys {
            text.push_str(&format!(
                "key = \"{}\"\nauthorised_agents = \"{}\"\n",
                path("collector.key"),
                path("agents.d")
            ));
        }
        let config = self.env.path("collector.toml");
        fs::write(&config, text).unwrap();
        let daemon = Daemon::start(&self.env, "polymeter-collector", &["--config", config.to_str().unwrap()]);
        wait_until("the collector listens", || daemon.log().contains("/metrics\n"));
        let log = daemon.log();
        let listening = log.split_once("listening at ").unwrap().1;
        self.endpoint = listening.split_once(',').unwrap().0.to_owned();
        daemon
    }

    fn agent(&self, node: &str, keys: Keys<'_>) -> Daemon {
        let path = |name: String| self.env.path(&name).display().to_string();
        let mut text = format!(
            "node = \"{node}\"\ncollector = \"{}\"\nflush_interval = \"50ms\"\ncontrol_socket = \"off\"\n",
            self.endpoint
        );
        if let Keys::Pair(own, collector) = keys {
            let (own, collector) = (path(format!("{own}.key")), path(format!("{collector}.pub")));
            text.push_str(&format!("key = \"{own}\"\ncollector_key = \"{collector}\"\n"));
        }
        text.push_str("[baseline]\n\"agent.*\" = \"20ms\"\n");
        let config = self.env.path(&format!("{node}.toml"));
        fs::write(&config, text).unwrap();
        Daemon::start(&self.env, "polymeter-agent", &["--config", config.to_str().unwrap()])
    }

    fn authorise(&self, name: &str) {
        fs::copy(self.env.path(&format!("{name}.pub")), self.authorised(name)).unwrap();
    }

    fn authorised(&self, name: &str) -> PathBuf {
        self.env.path(&format!("agents.d/{name}.pub"))
    }

    fn stored(&self, node: &str) -> usize {
        let samples = stored::samples(&mut self.env.reader(), SeriesScope::Node(node));
        samples.values().map(|series| series.points.len()).sum()
    }

    fn wait_for_refusals(&self, collector: &Daemon, of: &str, reason: &str, min: u64) {
        wait_until(&format!("{min} {of} were refused: {reason}"), || refusals(collector, of, reason) >= min);
    }

    fn wait_for_samples(&self, node: &str) {
        let before = self.stored(node);
        wait_until(&format!("more of {node} is stored"), || self.stored(node) > before);
    }

    fn assert_no_secret_key(&self, logs: &[&str]) {
        for name in ["collector", "n1", "n2"] {
            let text = fs::read_to_string(self.env.path(&format!("{name}.key"))).unwrap();
            let secret = text.lines().find_map(|line| line.strip_prefix("secret ")).unwrap();
            assert!(logs.iter().all(|log| !log.contains(secret)), "{name}: {logs:?}");
        }
    }
}

fn metrics(collector: &Daemon) -> String {
    let log = collector.log();
    let address = log.split_once("serving metrics at http://").unwrap().1.split_once('/').unwrap().0;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

fn mode(path: PathBuf) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn lines(text: &str, word: &str) -> usize {
    text.lines().filter(|line| line.contains(word)).count()
}

fn keygen_creates_private_files_once() {
    let env = TestEnvironment::new();
    let (succeeded, output) = keygen(&env, "node17");
    assert!(succeeded, "{output}");
    let printed: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((mode(env.path("node17.key")), mode(env.path("node17.pub"))), (0o600, 0o644));
    let text = fs::read_to_string(env.path("node17.key")).unwrap();
    let pair = KeyPair::from_text(&text).unwrap();
    let public = fs::read_to_string(env.path("node17.pub")).unwrap();
    assert_eq!(PublicKey::from_text(&public).unwrap(), pair.public);
    assert_eq!(printed["public"], pair.public.to_string());
    assert!(!output.contains(text.lines().find_map(|line| line.strip_prefix("secret ")).unwrap()));

    let (succeeded, output) = keygen(&env, "node17");
    assert!(!succeeded && output.contains("never overwritten"), "{output}");
    assert_eq!(fs::read_to_string(env.path("node17.key")).unwrap(), text);
    fs::remove_file(env.path("node17.key")).unwrap();
    let (succeeded, output) = keygen(&env, "node17");
    assert!(!succeeded && output.contains("node17.pub"), "{output}");
    assert!(!env.path("node17.key").exists(), "half a pair is of no use");
    for name in ["", "../up", "a/b", ".hidden", "quote'"] {
        let (succeeded, output) = keygen(&env, name);
        assert!(!succeeded && output.contains("--name"), "{name}: {output}");
    }
}

fn authorised_agent_delivers() {
    let mut fixture = Fixture::new();
    fixture.authorise("n1");
    let collector = fixture.collector(true, "");
    let agent = fixture.agent("n1", Keys::Pair("n1", "collector"));
    fixture.wait_for_samples("n1");
    let (agent_log, collector_log) = (agent.terminate(), collector.terminate());
    assert!(
        agent_log.contains(", encrypted,") && collector_log.contains(", encrypted,"),
        "{agent_log}{collector_log}"
    );
    assert_eq!(
        lines(&agent_log, "warning") + lines(&collector_log, "warning"),
        0,
        "{agent_log}{collector_log}"
    );
    fixture.assert_no_secret_key(&[&agent_log, &collector_log]);
}

fn unknown_key_is_refused_until_authorised() {
    let mut fixture = Fixture::new();
    let collector = fixture.collector(true, "");
    let agent = fixture.agent("n1", Keys::Pair("n1", "collector"));
    wait_until("both say so", || {
        collector.log().contains("is not authorised") && agent.log().contains("refuses this agent's key")
    });
    let key = fs::read_to_string(fixture.env.path("n1.pub")).unwrap();
    let key = key.lines().find_map(|line| line.strip_prefix("public ")).unwrap().to_owned();
    assert!(collector.log().contains(&key) && agent.log().contains(&key));
    // The agent tried at least twice; the log has one line.
    fixture.wait_for_refusals(&collector, "connections", "unknown_key", 2);
    assert_eq!(lines(&collector.log(), "is not authorised"), 1);
    assert_eq!(fixture.stored("n1"), 0);
    fixture.authorise("n1");
    fixture.wait_for_samples("n1");
    assert_eq!(lines(&agent.log(), "connected to the collector"), 1);
    let (agent_log, collector_log) = (agent.terminate(), collector.terminate());
    assert!(!agent_log.contains("did not acknowledge"), "{agent_log}");
    fixture.assert_no_secret_key(&[&agent_log, &collector_log]);
}

fn removed_key_is_revoked_for_connected_agents() {
    let mut fixture = Fixture::new();
    fixture.authorise("n1");
    let collector = fixture.collector(true, "");
    let agent = fixture.agent("n1", Keys::Pair("n1", "collector"));
    fixture.wait_for_samples("n1");
    fs::remove_file(fixture.authorised("n1")).unwrap();
    // Data that arrived before may still be on its way into the store.
    let (mut refused, mut stored) = (0, 0);
    wait_until("nothing more is stored", || {
        refused += 4;
        fixture.wait_for_refusals(&collector, "messages", "key", refused);
        std::mem::replace(&mut stored, fixture.stored("n1")) == stored
    });
    assert_eq!(lines(&collector.log(), "not authorised"), 1, "{}", collector.log());
    // A different key in the file belongs to a different agent.
    fs::copy(fixture.env.path("n2.pub"), fixture.authorised("n1")).unwrap();
    fixture.wait_for_refusals(&collector, "messages", "key", refused + 8);
    assert_eq!(fixture.stored("n1"), stored);
    fixture.authorise("n1");
    fixture.wait_for_samples("n1");
    let agent_log = agent.terminate();
    assert!(!agent_log.contains("did not acknowledge"), "{agent_log}");
    collector.terminate();
}

fn refusals(collector: &Daemon, of: &str, reason: &str) -> u64 {
    let sample = format!("polymeter_collector_refused_{of}_total{{reason=\"{reason}\"}} ");
    let page = metrics(collector);
    page.lines().find_map(|line| line.strip_prefix(&sample)).unwrap().parse().unwrap()
}

/// Runs an agent that must be refused, until the collector has refused it twice.
fn assert_refused(keys_of_collector: bool, keys_of_agent: Keys<'_>, reason: &str, logged: (&str, &str)) {
    let mut fixture = Fixture::new();
    fixture.authorise("n1");
    let collector = fixture.collector(keys_of_collector, "");
    let mut agent = fixture.agent("n1", keys_of_agent);
    // An agent that finds out first closes the connection, which the collector may not have read yet. It
    // tries again after ever longer times: a new agent begins with the shortest.
    let mut tries = 1;
    wait_until("2 connections were refused", || {
        pause(100);
        tries += 1;
        if tries % 50 == 0 {
            let previous = std::mem::replace(&mut agent, fixture.agent("n1", keys_of_agent));
            previous.end(Signal::KILL);
        }
        refusals(&collector, "connections", reason) >= 2
    });
    wait_until("the agent says why", || agent.log().contains(logged.1));
    assert_eq!(lines(&collector.log(), logged.0), 1, "{}", collector.log());
    assert_eq!(lines(&agent.log(), logged.1), 1, "{}", agent.log());
    assert_eq!(fixture.stored("n1"), 0);
    let (_, agent_log) = agent.end(Signal::KILL);
    fixture.assert_no_secret_key(&[&agent_log, &collector.terminate()]);
}

fn agent_without_keys_is_refused() {
    assert_refused(true, Keys::None, "mechanism", ("the peer has no key", "requires encryption"));
}

fn agent_with_keys_refuses_a_collector_without() {
    assert_refused(
        false,
        Keys::Pair("n1", "collector"),
        "mechanism",
        ("the peer has a key, but this collector has none", "does not use encryption"),
    );
}

fn agent_refuses_a_wrong_collector_key() {
    let logged = (
        "expects a different public key of this collector",
        "check that `collector_key` is the collector's public key",
    );
    assert_refused(true, Keys::Pair("n1", "n2"), "collector_key", logged);
}

fn key_is_bound_to_its_node() {
    let mut fixture = Fixture::new();
    fixture.authorise("n1");
    let collector = fixture.collector(true, "");
    let agent = fixture.agent("n9", Keys::Pair("n1", "collector"));
    fixture.wait_for_refusals(&collector, "messages", "node", 2);
    let log = collector.log();
    assert_eq!(lines(&log, "an agent with the key of n1 sends data of n9"), 1, "{log}");
    assert!(log.contains("bind_node_to_key = false"), "{log}");
    assert_eq!(fixture.stored("n9"), 0);
    agent.end(Signal::KILL);
    collector.terminate();

    let collector = fixture.collector(true, "bind_node_to_key = false");
    let agent = fixture.agent("n9", Keys::Pair("n1", "collector"));
    fixture.wait_for_samples("n9");
    agent.terminate();
    collector.terminate();
}

fn keys_readable_by_others_are_refused() {
    let mut fixture = Fixture::new();
    fixture.authorise("n1");
    let collector = fixture.collector(true, "");
    let agent = fixture.agent("n1", Keys::Pair("n1", "collector"));
    fixture.wait_for_samples("n1");
    agent.terminate();
    collector.terminate();
    let chmod = |name: &str, mode| {
        fs::set_permissions(fixture.env.path(name), Permissions::from_mode(mode)).unwrap();
    };
    let cases = [
        ("polymeter-collector", "collector.toml", "collector.key", 0o640, "type: chmod 600 "),
        ("polymeter-collector", "collector.toml", "agents.d", 0o777, "type: chmod go-w "),
        ("polymeter-agent", "n1.toml", "n1.key", 0o604, "type: chmod 600 "),
        ("polymeter-agent", "n1.toml", "collector.pub", 0o666, "type: chmod go-w "),
    ];
    for (program, config, file, bad, command) in cases {
        let good = mode(fixture.env.path(file));
        assert_eq!(run(&fixture, program, config, &["--check"]).0, Some(0), "{file}");
        chmod(file, bad);
        let command = format!("{command}{}", fixture.env.path(file).display());
        for more in [&["--check"][..], &[]] {
            let (status, message) = run(&fixture, program, config, more);
            assert_eq!((status, lines(&message, &command)), (Some(2), 1), "{message}");
            fixture.assert_no_secret_key(&[&message]);
        }
        chmod(file, good);
    }
    // A secret key in place of a public key, and the reverse.
    fs::copy(fixture.env.path("collector.key"), fixture.env.path("collector.pub")).unwrap();
    let (status, message) = run(&fixture, "polymeter-agent", "n1.toml", &["--check"]);
    assert!(status == Some(2) && message.contains("the file contains a secret key"), "{message}");
    fs::write(fixture.env.path("collector.key"), fs::read(fixture.env.path("n1.pub")).unwrap()).unwrap();
    let (status, message) = run(&fixture, "polymeter-collector", "collector.toml", &["--check"]);
    assert!(status == Some(2) && message.contains("no line `secret KEY`"), "{message}");
}

fn run(fixture: &Fixture, name: &str, config: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = program(name).args(["--config"]).arg(fixture.env.path(config)).args(more).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn collector_without_keys_listens_locally_only() {
    let env = TestEnvironment::new();
    let (status, message) = check_collector(&env, &["tcp://0.0.0.0:7717"]);
    assert_eq!(status, Some(2), "{message}");
    assert!(message.contains("polymeter keygen") && message.contains("insecure = true"), "{message}");
    assert_eq!(check_collector(&env, &["tcp://0.0.0.0:7717", "--insecure"]).0, Some(0));
    assert_eq!(check_collector(&env, &["tcp://127.0.0.1:7717"]).0, Some(0));
}

fn check_collector(env: &TestEnvironment, more: &[&str]) -> (Option<i32>, String) {
    let mut collector = program("polymeter-collector");
    let output =
        collector.args(["--check", "--store", &env.store(), "--listen"]).args(more).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}
