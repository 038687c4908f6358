//! Files of a job's controllers that appear after its directory, and that cannot be read for a while, on a
//! machine with a laid-out hierarchy.

use std::fs;
use std::path::PathBuf;

use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector};
use polymeter_e2e::{TestEnvironment, pause, program, tests, text, wait_until};
use serde_json::{Value, json};

tests![
    files_that_appear_later_are_sampled,
    a_quiet_node_wakes_its_agent_less_often,
    a_file_that_is_unreadable_for_a_while_is_sampled_again,
    lines_that_no_rule_takes_are_logged_once,
];

/// A hierarchy of version 2 with a job whose directory has one file.
const FILES: [(&str, &str); 4] = [
    ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"),
    ("sys/devices/system/cpu/online", "0\n"),
    ("sys/fs/cgroup/job_1/cgroup.procs", ""),
    ("sys/fs/cgroup/job_1/pids.current", "3\n"),
];

const BASELINE: [(&str, &str); 4] =
    [("pids.current", "50ms"), ("memory.*", "50ms"), ("hugetlb.*", "50ms"), ("io.read.bytes", "50ms")];

struct Machine {
    agent: Agent,
    collector: Daemon,
    job: PathBuf,
    _env: TestEnvironment,
}

impl Machine {
    fn start() -> Self {
        let env = TestEnvironment::new();
        let root = env.path("root");
        for (path, text) in FILES {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let plan = Plan { collector: &endpoint, jobs: &["job_{job}".to_owned()], baseline: &BASELINE };
        let keys = format!("root = \"{}\"\nrescan_interval = \"50ms\"\n", root.display());
        let agent = Agent::start_with(&env, &plan, &keys, "");
        agent.wait_until_tracked("1", &["v2/pids.current"]);
        Self { agent, collector, job: root.join("sys/fs/cgroup/job_1"), _env: env }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.job.join(name), text).unwrap();
    }

    fn set(&self, metric: &str) -> Value {
        self.agent.ask(&json!({"verb": "set", "job": "1", "plan": {metric: "20ms"}}))
    }

    fn reason(&self, metric: &str) -> Option<String> {
        let status = self.agent.status();
        let of_job = status["subjects"].as_array().unwrap().iter().find(|subject| subject["job"] == "1")?;
        let unavailable = of_job["unavailable"].as_array()?.clone();
        let found = unavailable.iter().find(|pair| pair[0] == metric)?;
        found[1].as_str().map(str::to_owned)
    }

    fn reads(&self, source: &str) -> u64 {
        let sources = self.agent.sources("1");
        sources.iter().find(|(name, _)| name == source).map_or(0, |(_, reads)| *reads)
    }

    fn end(self) -> String {
        let log = self.agent.daemon.terminate();
        self.collector.terminate();
        log
    }
}

fn files_that_appear_later_are_sampled() {
    let machine = Machine::start();
    let refused = machine.set("memory.current");
    assert_eq!(refused["code"], "unavailable", "{refused}");
    assert!(machine.reason("memory.current").unwrap().contains("No such file"));
    // A request right after the file is there is granted, whatever was known before.
    machine.write("memory.current", "4096\n");
    let granted = machine.set("memory.current");
    assert_eq!(granted["metrics"]["memory.current"], "20ms", "{granted}");
    // Others are found without a request: a file, and one of a wildcard.
    machine.write("memory.swap.current", "8192\n");
    machine.write("hugetlb.2MB.current", "2097152\n");
    for source in ["v2/memory.current", "v2/memory.swap.current", "v2/hugetlb.2MB.current"] {
        wait_until(&format!("{source} is read"), || machine.reads(source) > 2);
    }
    assert_eq!(machine.reason("memory.current"), None);
    // The processes stand in for a file until it is there.
    wait_until("the processes are read", || machine.reads("processes") > 2);
    machine.write("io.stat", "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n");
    wait_until("the file is read", || machine.reads("v2/io.stat") > 0);
    let before = (machine.reads("v2/io.stat"), machine.reads("processes"));
    wait_until("the reads go on", || machine.reads("v2/io.stat") > before.0 + 5);
    assert!(machine.reads("processes") <= before.1 + 1, "they are not read any more");
    machine.end();
}

fn a_quiet_node_wakes_its_agent_less_often() {
    let machine = Machine::start();
    let status = machine.agent.daemon.thread("supervisor").join("status");
    let waits = || {
        let text = fs::read_to_string(&status).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        count.trim().parse::<u64>().unwrap()
    };
    let waits_of_a_second = || {
        let before = waits();
        pause(1000);
        waits() - before
    };
    // There are 20 rescans in a second.
    wait_until("the node is quiet", || waits_of_a_second() <= 10);
    machine.write("memory.current", "4096\n");
    wait_until("the file is read", || machine.reads("v2/memory.current") > 0);
    wait_until("the node is quiet again", || waits_of_a_second() <= 10);
    machine.set("memory.current");
    wait_until("a lease needs each rescan", || waits_of_a_second() > 15);
    let reset = machine.agent.ask(&json!({"verb": "reset", "job": "1"}));
    assert_eq!(reset["answer"], "reset", "{reset}");
    wait_until("the node is quiet without it", || waits_of_a_second() <= 10);
    machine.end();
}

fn a_file_that_is_unreadable_for_a_while_is_sampled_again() {
    let machine = Machine::start();
    machine.write("memory.current", "4096\n");
    wait_until("the file is read", || machine.reads("v2/memory.current") > 2);
    machine.write("memory.current", "no number\nin two lines\n");
    wait_until("the reason is known", || machine.reason("memory.current").is_some());
    let reason = machine.reason("memory.current").unwrap();
    assert!(reason.contains("memory.current: line 1: cannot find a value"), "{reason}");
    machine.write("memory.current", "12288\n");
    wait_until("the file is read again", || machine.reason("memory.current").is_none());
    let before = machine.reads("v2/memory.current");
    wait_until("the reads go on", || machine.reads("v2/memory.current") > before + 2);
    let log = machine.end();
    let lines = log.lines().filter(|line| line.contains("cannot sample memory.current of job 1"));
    assert_eq!(lines.count(), 1, "{log}");
}

fn lines_that_no_rule_takes_are_logged_once() {
    const KNOWN: &str = "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n";
    let machine = Machine::start();
    machine.write("io.stat", KNOWN);
    wait_until("the file is read", || machine.reads("v2/io.stat") > 2);
    assert_eq!(machine.agent.count("unknown_lines"), 0);
    machine.write("io.stat", &format!("{KNOWN}rbytes=7 wbytes=8\n8:0 rbytes=9\n"));
    wait_until("the lines are counted", || machine.agent.count("unknown_lines") == 2);
    let mut status = program("polymeter");
    let shown = status.args(["status", "--socket"]).arg(&machine.agent.socket).output().unwrap();
    assert!(text(&shown.stdout).contains("2 lines of kernel files are not known"), "{shown:?}");
    // The file is opened anew with each change: its lines are those of the same source.
    machine.write("io.stat", &format!("{KNOWN}rbytes=7 wbytes=8\n"));
    wait_until("the lines are counted again", || machine.agent.count("unknown_lines") == 1);
    let log = machine.end();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("are not known")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("2 lines of v2/io.stat of job 1"), "{log}");
    assert!(lines[0].contains("as the line `rbytes=7 wbytes=8`"), "{log}");
}
