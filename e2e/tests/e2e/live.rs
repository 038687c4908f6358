//! Live values over HTTP, from the kernel to the client.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector_with};
use polymeter_e2e::fixture::{NEEDS, OWNER};
use polymeter_e2e::workload::Workload;
use polymeter_e2e::{TestEnvironment, require, skip, tests, wait_until};
use serde_json::{Value, json};

tests![a_burned_cpu_is_a_live_value];

/// Command of the documentation, which prints the events of a stream.
struct Curl {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Curl {
    fn command(socket: &Path, target: &str) -> Command {
        let mut command = Command::new("curl");
        // A stream without the expected event ends.
        command.args(["--silent", "--no-buffer", "--max-time", "120", "--unix-socket"]).arg(socket);
        command.arg(format!("http://localhost{target}")).stdout(Stdio::piped());
        command
    }

    fn start(socket: &Path, target: &str) -> Self {
        let mut child = Self::command(socket, target).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.lines.read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
    }

    /// Data of the next event of a name. Others are skipped.
    fn next_of(&mut self, name: &str) -> Value {
        loop {
            let line = self.line().unwrap_or_else(|| panic!("the stream ended without `{name}`"));
            if line == format!("event: {name}") {
                let data = self.line().unwrap();
                return serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            }
        }
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn get(socket: &Path, target: &str) -> Value {
    let output = Curl::command(socket, target).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Last rate of a series in the next event with one.
fn rate(curl: &mut Curl, series_id: &Value) -> f64 {
    loop {
        let values = curl.next_of("values");
        let ids = values["id"].as_array().unwrap().iter().zip(values["value"].as_array().unwrap());
        let of_series = ids.filter(|(id, _)| *id == series_id).filter_map(|(_, value)| value.as_f64());
        if let Some(rate) = of_series.reduce(|_, last| last) {
            return rate;
        }
    }
}

fn a_burned_cpu_is_a_live_value() {
    require(&NEEDS);
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        skip("curl", "curl is not installed");
    }
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let api = env.path("api.sock");
    let section = format!("[api]\nlisten = \"{}\"\n", api.display());
    let (_collector, endpoint) = collector_with(&env, &env.endpoint(), &section);
    let baseline = [("cpu.usage", "100ms"), ("pids.current", "100ms")];
    let agent = Agent::start(&env, &Plan { collector: &endpoint, jobs: &[], baseline: &baseline });
    let (job, mut workload) = (cgroups.job("x"), Workload::start());
    job.enter(workload.pid());
    let register = json!({"verb": "register", "job": "x", "uid": OWNER, "cgroups": job.directories});
    assert_eq!(agent.ask(&register)["answer"], "registered");
    let mut key = None;
    wait_until("the job is in the store", || {
        key = get(&api, "/api/v1/jobs?id=x")["jobs"][0]["key"].as_i64();
        key.is_some()
    });
    let path = format!("/api/v1/jobs/{}", key.unwrap());
    wait_until("its series are in the store", || {
        get(&api, &format!("{path}/series?metric=cpu.usage"))["series"]
            .as_array()
            .is_some_and(|rows| rows.len() == 1)
    });
    let mut curl = Curl::start(&api, &format!("{path}/live?per_second=10"));
    assert_eq!(curl.next_of("job")["id"], "x");
    let series = curl.next_of("series");
    let rows = series["series"].as_array().unwrap();
    let row = rows.iter().find(|row| row["metric"] == "cpu.usage").unwrap();
    assert_eq!((&row["rate_unit"], &row["period_us"]), (&json!("cores"), &json!(100_000)), "{row}");
    let idle = rate(&mut curl, &row["id"]);
    // The machine may be busy, so that the workload gets less than a CPU.
    let mut busiest: f64 = 0.0;
    wait_until("a CPU is used", || {
        workload.execute("burn 300");
        busiest = (0..3).map(|_| rate(&mut curl, &row["id"])).fold(busiest, f64::max);
        busiest > idle + 0.1
    });
    assert!(busiest <= 1.5, "one thread cannot use {busiest} cores");
    let change = agent.ask(&json!({"verb": "set", "job": "x", "plan": {"cpu.usage": "20ms"}, "for": "1min"}));
    assert_ne!(change["answer"], "refused", "{change}");
    let plan = curl.next_of("plan");
    assert_eq!(
        (&plan["metric"], &plan["new_period_us"], &plan["cause"]),
        (&json!("cpu.usage"), &json!(20_000), &json!("lease"))
    );
    drop(workload);
    job.remove();
    assert_eq!(curl.next_of("node")["state"], "ended");
    assert_eq!(curl.next_of("end"), json!({"reason": "ended"}));
    while curl.line().is_some() {}
    assert!(curl.child.wait().unwrap().success(), "the answer is complete");
}
