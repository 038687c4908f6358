//! Tests of an agent on a simulated machine of which one sensor does not answer: a FIFO without a writer.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use polymeter_agent::Agent;
use polymeter_agent::config::AgentConfig;
use polymeter_agent::request::{JobView, SourceView};
use polymeter_service::clock;
use rustix::fs::OFlags;

const HUNG: &str = "sys/class/hwmon/hwmon0";
const GOOD: &str = "sys/class/hwmon/hwmon1";

fn lay_out(root: &Path) {
    for directory in ["proc/self", "sys/devices/system/cpu", HUNG, GOOD] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (path, text) in [
        ("proc/self/mountinfo", ""),
        ("proc/loadavg", "0.25 0.50 0.75 1/100 1\n"),
        ("sys/devices/system/cpu/online", "0\n"),
        ("sys/class/hwmon/hwmon1/temp1_input", "30000\n"),
    ] {
        fs::write(root.join(path), text).unwrap();
    }
    let fifo = root.join(HUNG).join("temp1_input");
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
}

fn start(root: &Path) -> Agent {
    let text = format!(
        "collector = \"ipc://{0}/collector\"\ncontrol_socket = \"off\"\nroot = \"{0}\"\nnode = \"n1\"\nrescan_interval = \"100ms\"\n\
         jobs = []\n[baseline]\n\"node.hwmon.temperature\" = \"50ms\"\n\"node.load1\" = \"50ms\"\n",
        root.display()
    );
    let config = AgentConfig::parse(Path::new("agent.toml"), &text).unwrap();
    Agent::start(config, &zmq::Context::new()).unwrap()
}

fn wait_for(agent: &Agent, what: &str, is_so: impl Fn(&JobView) -> bool) -> JobView {
    let until_ns = clock::monotonic_ns() + 20_000_000_000;
    loop {
        let node = agent.view().subjects.remove(0);
        if is_so(&node) {
            return node;
        }
        assert!(clock::monotonic_ns() < until_ns, "no {what}: {node:#?}");
        clock::sleep(Duration::from_millis(20));
    }
}

fn source<'a>(node: &'a JobView, name: &str) -> &'a SourceView {
    node.sources.iter().find(|source| source.name == name).unwrap()
}

#[test]
fn a_sensor_that_does_not_answer_is_reported_and_affects_no_other() {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path());
    let agent = start(root.path());
    let reason = format!("a read of {HUNG} is blocked");
    let is_reported =
        |node: &JobView| node.unavailable.contains(&("node.hwmon.temperature".to_owned(), reason.clone()));
    wait_for(&agent, "report", is_reported);
    // A source without losses is reported up to a second later.
    let others = [GOOD, "proc/loadavg"];
    let node = wait_for(&agent, "missed deadlines", |node| {
        source(node, HUNG).tally.missed >= 30 && others.iter().all(|name| source(node, name).tally.taken > 20)
    });
    let hung = source(&node, HUNG).tally;
    assert_eq!((hung.taken, hung.due), (0, hung.missed));
    for name in others {
        let tally = source(&node, name).tally;
        assert!(tally.missed <= 1 && tally.absent == 0, "{name}: {tally:?}");
    }

    // The sensor answers; its next read is from a plain file.
    let (fifo, plain) = (root.path().join(HUNG).join("temp1_input"), root.path().join("plain"));
    fs::write(&plain, "40000\n").unwrap();
    // A writer ends the blocked `open`. The agent cannot read a FIFO at an offset, and opens the file anew.
    let writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    fs::rename(&plain, &fifo).unwrap();
    drop(writer);
    let node = wait_for(&agent, "recovery", |node| !is_reported(node) && source(node, HUNG).tally.taken > 5);
    let tally = source(&node, HUNG).tally;
    assert_eq!(tally.due, tally.taken + tally.missed + tally.absent);
    agent.stop(Duration::ZERO);
}

#[test]
fn an_agent_stops_while_a_sensor_does_not_answer() {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path());
    let agent = start(root.path());
    wait_for(&agent, "report", |node| !node.unavailable.is_empty());
    // A stop that waited for the read would never return.
    agent.stop(Duration::ZERO);
    // A FIFO can be opened for writing without waiting only while a reader waits.
    let fifo = root.path().join(HUNG).join("temp1_input");
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let writer = fs::OpenOptions::new().write(true).custom_flags(nonblocking).open(fifo);
    assert!(writer.is_ok(), "the read has ended before the agent: {writer:?}");
}
