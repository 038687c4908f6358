//! Refresh intervals: shorter periods are granted at the interval at which the hardware updates its values,
//! on a machine with laid-out sensors.

use std::fs;
use std::path::Path;

use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector};
use polymeter_e2e::{TestEnvironment, program, tests, wait_until};
use rusqlite::Connection;
use serde_json::{Value, json};

tests![
    periods_are_granted_at_the_interval_of_the_hardware,
    the_command_states_why_a_period_is_longer_than_requested,
];

/// Sensors of a driver that updates them every 200 ms, others without an interval, and the controller of a
/// Cray node.
const FILES: [(&str, &str); 9] = [
    ("proc/self/mountinfo", ""),
    ("proc/loadavg", "0.25 0.50 0.75 1/100 1\n"),
    ("sys/devices/system/cpu/online", "0\n"),
    ("sys/class/hwmon/hwmon0/name", "lm90\n"),
    ("sys/class/hwmon/hwmon0/update_interval", "200\n"),
    ("sys/class/hwmon/hwmon0/temp1_input", "41000\n"),
    ("sys/class/hwmon/hwmon1/temp1_input", "30000\n"),
    ("sys/cray/pm_counters/raw_scan_hz", "10\n"),
    ("sys/cray/pm_counters/power", "245 W 1606861544213104 us\n"),
];

struct Machine {
    agent: Agent,
    collector: Daemon,
    env: TestEnvironment,
}

impl Machine {
    fn start(baseline: &[(&str, &str)]) -> Self {
        let env = TestEnvironment::new();
        let root = env.path("root");
        for (path, text) in FILES {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let plan = Plan { collector: &endpoint, jobs: &[], baseline };
        let keys = format!("root = \"{}\"\nrescan_interval = \"100ms\"\n", root.display());
        let agent = Agent::start_with(&env, &plan, &keys, "");
        Self { agent, collector, env }
    }

    fn line(&self, verb: &str, metric: &str) -> Value {
        let answer = self.agent.ask(&json!({"verb": verb}));
        let lines = answer[if verb == "plan" { "plan" } else { "metrics" }].as_array().unwrap();
        lines.iter().find(|line| line["metric"] == metric).cloned().unwrap_or_default()
    }

    fn due(&self, source: &str) -> u64 {
        let status = self.agent.status();
        let sources = status["subjects"][0]["sources"].as_array().unwrap();
        let found = sources.iter().find(|line| line["name"] == source);
        found.and_then(|line| line["tally"]["due"].as_u64()).unwrap_or_default()
    }

    /// Stored changes of a metric of the node: the new period in microseconds, the cause and the reason.
    fn changes(&self, metric: &str) -> Vec<(Option<i64>, String, Option<String>)> {
        let store = Connection::open(self.env.path("store.db")).unwrap();
        let sql = "SELECT new_period_us, cause, reason FROM plan_change WHERE metric = ? ORDER BY time";
        let mut statement = store.prepare(sql).unwrap();
        statement
            .query_map([metric], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    fn end(self) {
        self.agent.daemon.terminate();
        self.collector.terminate();
    }
}

fn periods_are_granted_at_the_interval_of_the_hardware() {
    let machine = Machine::start(&[("node.cray.power", "10ms"), ("node.hwmon.temperature", "1s")]);
    // A thread reads the intervals after the opening.
    wait_until("the interval of the controller", || {
        machine.line("metrics", "node.cray.power")["refresh_interval"] == "100ms"
    });
    let line = machine.line("plan", "node.cray.power");
    assert_eq!(
        (&line["period"], &line["cause"], &line["requested"]),
        (&json!("100ms"), &json!("baseline"), &json!("10ms"))
    );
    assert_eq!(line["reason"], "it changes every 100ms: granted 100ms instead of 10ms");
    assert_eq!(machine.line("plan", "node.hwmon.temperature")["reason"], Value::Null);

    let plan = json!({"node.cray.power": "20ms", "node.hwmon.temperature": "50ms", "node.load1": "50ms"});
    let granted = machine.agent.ask(&json!({"verb": "set", "plan": plan, "for": "1h"}));
    let periods = json!({"node.cray.power": "100ms", "node.hwmon.temperature": "50ms", "node.load1": "50ms"});
    assert_eq!(granted["metrics"], periods, "{granted}");
    let reasons = json!({
        "node.cray.power": "it changes every 100ms: granted 100ms instead of 10ms",
        "node.hwmon.temperature": "sys/class/hwmon/hwmon0 changes every 200ms: granted these intervals instead of 50ms",
    });
    assert_eq!(granted["reasons"], reasons, "{granted}");

    // Each source has its own interval: one of them has four times as many deadlines as the other.
    wait_until("deadlines of both sensors", || {
        let due = |source| machine.due(source);
        due("sys/class/hwmon/hwmon0") >= 10
            && due("sys/class/hwmon/hwmon1") >= 3 * due("sys/class/hwmon/hwmon0")
    });
    let granted = (
        Some(100_000),
        "refresh_interval".to_owned(),
        Some("the hardware does not update it more often".to_owned()),
    );
    wait_until("the store knows the granted period", || {
        machine.changes("node.cray.power").last() == Some(&granted)
    });
    wait_until("the store knows the lease", || {
        machine.changes("node.hwmon.temperature").last() == Some(&(Some(50_000), "lease".to_owned(), None))
    });
    machine.end();
}

fn the_command_states_why_a_period_is_longer_than_requested() {
    let machine = Machine::start(&[("node.load1", "1s")]);
    let reason = "it changes every 100ms: granted 100ms instead of 10ms";
    wait_until("an answer with the reason", || {
        run(&machine, "set", &["node.cray.power=10ms"])
            .lines()
            .any(|line| line.starts_with("node.cray.power") && line.contains(reason))
    });
    let plan = run(&machine, "plan", &[]);
    assert!(plan.contains(reason), "{plan}");
    let metrics = run(&machine, "metrics", &["node.cray.*"]);
    assert!(metrics.contains("sys/cray/pm_counters, changes every 100ms"), "{metrics}");
    wait_until("the store knows the granted period", || {
        machine.changes("node.cray.power").last().is_some_and(|change| change.0 == Some(100_000))
    });
    machine.end();
}

fn run(machine: &Machine, verb: &str, more: &[&str]) -> String {
    let mut command = program("polymeter");
    command.arg(verb).arg("--socket").arg(Path::new(&machine.agent.socket)).arg("--node").args(more);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
