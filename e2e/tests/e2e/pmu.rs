//! Derived metrics and the release of the hardware's counters, on a machine whose PMUs are laid out: software
//! events stand behind their names, so that the kernel counts for a machine without a PMU.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use polymeter_e2e::cgroup::{self, Job, TestCgroups, V2};
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector};
use polymeter_e2e::fixture::{OTHER_USER, OWNER};
use polymeter_e2e::workload::Workload;
use polymeter_e2e::{Need, TestEnvironment, as_user, program, require, stored, tests, wait_until};
use polymeter_store::reader::SeriesScope;
use serde_json::{Value, json};

tests![
    derived_metrics_are_computed_from_what_they_open,
    events_are_stored_in_the_unit_that_the_kernel_states,
    released_counters_are_closed_at_once_and_opened_again,
    counters_that_are_released_at_submission_are_never_opened,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

const EVENT: &str = "perf.event.fp_ret_sse_avx_ops.all";
const READS: &str = "node.pmu.amd_umc.umc_cas_cmd.rd";
const WRITES: &str = "node.pmu.amd_umc.umc_cas_cmd.wr";

/// PMUs of an AMD machine, where `type` 1 is that of software events: 2 are page faults, 3 are context
/// switches.
const PMUS: [(&str, &str); 18] = [
    ("cpu/type", "1\n"),
    ("cpu/format/event", "config:0-7,32-35\n"),
    ("cpu/format/umask", "config:8-15\n"),
    ("cpu/events/fp_ret_sse_avx_ops.all", "event=0x2\n"),
    ("cpu/events/faults", "event=0x2\n"),
    ("cpu/events/energy", "event=0x2\n"),
    ("cpu/events/energy.scale", "2.3283064365386962890625e-10\n"),
    ("cpu/events/energy.unit", "Joules\n"),
    ("cpu/events/malformed", "event=0x2\n"),
    ("cpu/events/malformed.scale", "fast\n"),
    ("amd_umc_0/events/read-lines", "event=0x2\n"),
    ("amd_umc_0/events/read-lines.scale", "6.103515625e-5\n"),
    ("amd_umc_0/events/read-lines.unit", "MiB\n"),
    ("amd_umc_0/type", "1\n"),
    ("amd_umc_0/cpumask", "0\n"),
    ("amd_umc_0/format/event", "config:0-7\n"),
    ("amd_umc_0/events/umc_cas_cmd.rd", "event=0x2\n"),
    ("amd_umc_0/events/umc_cas_cmd.wr", "event=0x3\n"),
];

const ROOFS: [(&str, u32); 3] =
    [("memory_bytes_per_s", 100_000), ("double_flop_per_s", 50_000_000), ("single_flop_per_s", 70_000_000)];

struct Machine {
    agent: Agent,
    collector: Daemon,
    workload: Workload,
    _job: Job,
    cgroups: TestCgroups,
    env: TestEnvironment,
}

impl Machine {
    fn start() -> Self {
        Self::with(None)
    }

    /// Starts a machine with a job that its scheduler announces, or that is registered.
    fn with(announcement: Option<Value>) -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let root = env.path("root");
        write(&root, "proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write(&root, "proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\n");
        write(
            &root,
            "sys/devices/system/cpu/online",
            &fs::read_to_string("/sys/devices/system/cpu/online").unwrap(),
        );
        for (path, text) in PMUS {
            write(&root, &format!("sys/bus/event_source/devices/{path}"), text);
        }
        fs::create_dir_all(root.join("sys/fs")).unwrap();
        symlink(cgroup::root(V2).unwrap(), root.join("sys/fs/cgroup")).unwrap();
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let baseline = [("perf.page_faults", "50ms"), ("node.load1", "1s")];
        let pattern = format!("{}/job_{{job}}", cgroups.name);
        let patterns = [pattern];
        let jobs: &[String] = if announcement.is_some() { &patterns[..] } else { &[] };
        let plan = Plan { collector: &endpoint, jobs, baseline: &baseline };
        let roofs = env.path("roofs.json");
        fs::write(&roofs, json!({"roofs": BTreeMap::from(ROOFS)}).to_string()).unwrap();
        let keys = format!(
            "root = \"{}\"\nroofs = \"{}\"\nrescan_interval = \"100ms\"\n",
            root.display(),
            roofs.display()
        );
        let agent = Agent::start_with(&env, &plan, &keys, "");
        fs::set_permissions(env.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        if let Some(announcement) = &announcement {
            let answer = agent.ask(announcement);
            assert_eq!(answer["answer"], "started", "{answer}");
        }
        let (job, workload) = (cgroups.job_under("1", V2), Workload::start());
        job.enter(workload.pid());
        if announcement.is_some() {
            return Self { agent, collector, workload, _job: job, cgroups, env };
        }
        let directory = format!("/sys/fs/cgroup/{}/job_1", cgroups.name);
        let register =
            json!({"verb": "register", "job": "1", "uid": OWNER, "cgroups": [root.join(&directory[1..])]});
        let answer = agent.ask(&register);
        assert_eq!(answer["answer"], "registered", "{answer}");
        Self { agent, collector, workload, _job: job, cgroups, env }
    }

    fn set(&self, plan: &Value, job: Option<&str>) -> Value {
        self.agent.ask(&json!({"verb": "set", "job": job, "plan": plan}))
    }

    fn plan_line(&self, metric: &str) -> Value {
        let plan = self.agent.ask(&json!({"verb": "plan", "job": "1"}));
        let lines = plan["plan"].as_array().unwrap_or_else(|| panic!("{plan}"));
        lines.iter().find(|line| line["metric"] == metric).cloned().unwrap_or_default()
    }

    /// Times in microseconds and values of the job's only series of a metric.
    fn points(&self, metric: &str) -> Vec<(i64, f64)> {
        let mut reader = self.env.reader();
        let Some(row) = stored::job(&mut reader, "1") else { return Vec::new() };
        let samples = stored::samples(&mut reader, SeriesScope::Job(row.job_key));
        let found = samples.into_iter().find(|((name, _), _)| name == metric);
        found.map(|(_, series)| series.points).unwrap_or_default()
    }

    fn perf_descriptors(&self) -> usize {
        let directory = format!("/proc/{}/fd", self.agent.daemon.pid());
        let links = fs::read_dir(directory).unwrap().flatten();
        links
            .filter(|link| {
                fs::read_link(link.path()).is_ok_and(|to| to == Path::new("anon_inode:[perf_event]"))
            })
            .count()
    }

    fn report(self) -> Value {
        assert_eq!(self.agent.ask(&json!({"verb": "unregister", "job": "1"}))["answer"], "done");
        stored::wait_for_end(&self.env, "1");
        let mut report = program("polymeter");
        report.args(["report", "1", "--json", "--store", &self.env.store()]);
        let output = report.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.agent.daemon.terminate();
        self.collector.terminate();
        drop(self.cgroups);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn derived_metrics_are_computed_from_what_they_open() {
    require(&NEEDS);
    let mut machine = Machine::start();
    let metrics = machine.agent.ask(&json!({"verb": "metrics", "job": "1"}));
    let mut lines = metrics["metrics"].as_array().unwrap().iter();
    let flops = lines.find(|line| line["metric"] == "perf.flops").unwrap_or_else(|| panic!("{metrics}"));
    assert_eq!(flops["source"], format!("computed from {EVENT}"));
    let granted = machine.set(&json!({"perf.flops": "20ms"}), Some("1"));
    assert_eq!(granted["metrics"][EVENT], "20ms", "{granted}");
    assert_eq!(machine.plan_line(EVENT)["input_of"], json!(["perf.flops"]));
    assert_eq!(machine.plan_line("perf.page_faults")["input_of"], Value::Null);
    let of_node = machine.set(&json!({"node.dram.bandwidth": "20ms"}), None);
    assert_eq!(
        (&of_node["metrics"][READS], &of_node["metrics"][WRITES]),
        (&json!("20ms"), &json!("20ms")),
        "{of_node}"
    );
    wait_until("the events are counted", || {
        machine.workload.execute("touch 1");
        let points = machine.points(EVENT);
        points.len() > 20 && points.last().unwrap().1 > points[0].1
    });
    wait_until("the times of the group are stored", || machine.points("perf.time_running").len() > 20);
    let report = machine.report();
    let derived = report["derived"].as_array().unwrap();
    let of = |name: &str| {
        derived.iter().find(|one| one["metric"] == name).unwrap_or_else(|| panic!("{derived:?}"))
    };
    let series = report["series"].as_array().unwrap();
    let input = series.iter().find(|one| one["metric"] == EVENT).unwrap();
    let seconds = (input["last_us"].as_f64().unwrap() - input["first_us"].as_f64().unwrap()) / 1e6;
    let expected = input["growth"].as_f64().unwrap() / seconds;
    let found = of("perf.flops")["value"].as_f64().unwrap();
    assert!((found / expected - 1.0).abs() < 1e-6, "{found}, not {expected}");
    assert_eq!(series.iter().filter(|one| one["is_derived"] == true).count(), derived.len());
    assert!(of("node.dram.bandwidth")["value"].as_f64().unwrap() > 0.0);
    for (name, roof) in ROOFS {
        assert_eq!(report["by_node"][0]["roofs"][name], roof, "{report}");
        assert_eq!(report["roofline"][name].as_f64(), Some(f64::from(roof)));
    }
    let whole = &report["roofline"]["parts"][0];
    let of_part = |name: &str| whole[name].as_f64().unwrap_or_else(|| panic!("{name} in {whole}"));
    let intensity = of_part("flop_per_s") / of_part("bytes_per_s");
    assert!((of_part("flop_per_byte") / intensity - 1.0).abs() < 1e-9, "{whole}");
    let attainable = (intensity * 100_000.0).min(50_000_000.0);
    let percent = 100.0 * of_part("flop_per_s") / attainable;
    assert!((of_part("roof_percent") / percent - 1.0).abs() < 1e-9, "{percent}, not {whole}");
    assert_eq!(report["roofline"]["left_out"], json!([]));
}

/// Values by the time, and unit of the only series of a metric.
fn values_of(env: &TestEnvironment, of: SeriesScope<'_>, metric: &str) -> (BTreeMap<i64, f64>, String) {
    let rows = env.reader().series(of).unwrap();
    let unit = rows.into_iter().find(|row| row.metric == metric).map(|row| row.unit).unwrap_or_default();
    let samples = stored::samples(&mut env.reader(), of);
    let found = samples.into_iter().find(|((name, _), _)| name == metric);
    (found.map(|(_, series)| series.points.into_iter().collect()).unwrap_or_default(), unit)
}

fn events_are_stored_in_the_unit_that_the_kernel_states() {
    require(&NEEDS);
    let mut machine = Machine::start();
    let [faults, energy, lines] = ["perf.event.faults", "perf.event.energy", "node.pmu.amd_umc.read_lines"];
    let granted = machine.set(&json!({faults: "20ms", energy: "20ms"}), Some("1"));
    assert_eq!(granted["metrics"][energy], "20ms", "{granted}");
    let of_node = machine.set(&json!({READS: "20ms", lines: "20ms"}), None);
    assert_eq!(of_node["metrics"][lines], "20ms", "{of_node}");
    let refused = machine.set(&json!({"perf.event.malformed": "20ms"}), Some("1")).to_string();
    assert!(refused.contains("malformed.scale: `fast` is not a decimal number"), "{refused}");
    wait_until("the events are counted", || {
        machine.workload.execute("touch 1");
        machine.points(energy).len() > 20
    });
    let job = stored::job(&mut machine.env.reader(), "1").unwrap();
    let node = job.nodes[0].clone();
    let of_node = SeriesScope::Node(&node);
    wait_until("those of the node are stored", || values_of(&machine.env, of_node, lines).0.len() > 20);
    let (of_job, env) = (SeriesScope::Job(job.job_key), &machine.env);
    for (of, counts, scaled, unit, per_count) in
        [(of_job, faults, energy, "joules", 1.0 / 4_294_967_296.0), (of_node, READS, lines, "bytes", 64.0)]
    {
        let (counts, of_counts) = values_of(env, of, counts);
        let (values, of_values) = values_of(env, of, scaled);
        assert_eq!((of_counts.as_str(), of_values.as_str()), ("count", unit), "{scaled}");
        // Both are of one group, whose events are read together.
        let pairs: Vec<(f64, f64)> =
            values.iter().filter_map(|(time, value)| Some((*counts.get(time)?, *value))).collect();
        assert!(pairs.len() > 10, "{scaled}: {counts:?} {values:?}");
        let last = pairs.last().unwrap();
        assert!(last.0 > pairs[0].0, "{scaled}: {pairs:?}");
        // The events of a group are enabled one after the other, so that some counts are missed at first.
        for (count, value) in &pairs {
            let expected = (count - pairs[0].0) * per_count;
            let found = value - pairs[0].1;
            assert!((found - expected).abs() <= 1e-9 * expected, "{scaled}: {found}, not {expected}");
        }
    }
    for (of, metric, unit) in [
        (json!({"verb": "metrics", "job": "1"}), energy, "joules"),
        (json!({"verb": "metrics", "job": "1"}), faults, "count"),
        (json!({"verb": "metrics"}), lines, "bytes"),
    ] {
        let metrics = machine.agent.ask(&of);
        let listed = metrics["metrics"].as_array().unwrap();
        let line = listed.iter().find(|line| line["metric"] == metric).unwrap_or_else(|| panic!("{metrics}"));
        assert_eq!(line["unit"], unit, "{line}");
    }
    machine.agent.daemon.terminate();
    machine.collector.terminate();
}

fn released_counters_are_closed_at_once_and_opened_again() {
    require(&NEEDS);
    let mut machine = Machine::start();
    let software = machine.perf_descriptors();
    machine.set(&json!({"perf.flops": "20ms"}), Some("1"));
    let with_hardware = machine.perf_descriptors();
    assert!(with_hardware > software, "{with_hardware}");
    wait_until("the event is counted", || machine.points(EVENT).len() > 5);
    let release = json!({"verb": "pmu_release", "job": "1"});
    let refused = as_user((OTHER_USER, OTHER_USER), || machine.agent.ask(&release));
    assert_eq!(refused["code"], "unknown_job", "{refused}");
    let of_node = json!({"verb": "pmu_release"});
    assert_eq!(as_user((OWNER, OWNER), || machine.agent.ask(&of_node))["code"], "forbidden");
    let released = as_user((OWNER, OWNER), || machine.agent.ask(&release));
    assert_eq!(released["answer"], "pmu_released", "{released}");
    assert!(released["metrics"].as_array().unwrap().contains(&json!(EVENT)), "{released}");
    assert_eq!(machine.perf_descriptors(), software, "closed when the answer is there");
    let reason = machine.plan_line(EVENT)["reason"].clone();
    assert!(reason.as_str().unwrap().contains(&format!("uid {OWNER} has released the counters")), "{reason}");
    // A request for another event opens nothing.
    let more = machine.set(&json!({"perf.instructions": "20ms"}), Some("1"));
    assert_eq!(machine.perf_descriptors(), software, "{more}");
    // What was sampled before is stored by then.
    assert_software_events_go_on(&machine);
    let counted = machine.points(EVENT).len();
    assert_software_events_go_on(&machine);
    assert_eq!(machine.points(EVENT).len(), counted);
    let resumed = as_user((OWNER, OWNER), || machine.agent.ask(&json!({"verb": "pmu_resume", "job": "1"})));
    assert_eq!(resumed["ended"], 1, "{resumed}");
    assert!(machine.perf_descriptors() >= with_hardware);
    wait_until("the event is counted again", || {
        machine.workload.execute("touch 1");
        machine.points(EVENT).len() > counted + 5
    });
    let points = machine.points(EVENT);
    assert!(points.windows(2).all(|pair| pair[0].1 <= pair[1].1), "the counter goes on: {points:?}");
    // A release of the node closes the events of its jobs, and ends by itself.
    let of_node = machine.agent.ask(&json!({"verb": "pmu_release", "for": "500ms"}));
    assert_eq!(of_node["answer"], "pmu_released", "{of_node}");
    assert_eq!(machine.perf_descriptors(), software);
    wait_until("the release ends", || machine.perf_descriptors() >= with_hardware);
    assert_eq!(machine.agent.ask(&json!({"verb": "unregister", "job": "1"}))["answer"], "done");
    let row = stored::wait_for_end(&machine.env, "1");
    let ledger = stored::ledger(&mut machine.env.reader(), row.job_key);
    stored::sum(&ledger);
    let released: Vec<_> = ledger.iter().filter(|(source, _)| source.starts_with("perf/released/")).collect();
    assert!(!released.is_empty(), "{ledger:?}");
    assert!(released.iter().all(|(_, tally)| tally.taken == 0), "{released:?}");
    assert!(released.iter().any(|(_, tally)| tally.absent > 0), "{released:?}");
    machine.agent.daemon.terminate();
    machine.collector.terminate();
}

fn assert_software_events_go_on(machine: &Machine) {
    let faults = machine.points("perf.page_faults").len();
    wait_until("software events are counted on", || machine.points("perf.page_faults").len() > faults + 5);
}

fn counters_that_are_released_at_submission_are_never_opened() {
    require(&NEEDS);
    let start =
        json!({"verb": "start", "job": "1", "uid": OWNER, "plan": {EVENT: "20ms"}, "pmu_release": true});
    let machine = Machine::with(Some(start));
    wait_until("the job is tracked", || machine.points("perf.page_faults").len() > 5);
    wait_until("the request has effect", || !machine.plan_line(EVENT).is_null());
    let reason = machine.plan_line(EVENT)["reason"].clone();
    assert!(reason.as_str().unwrap().contains(&format!("uid {OWNER} has released the counters")), "{reason}");
    let faults = machine.points("perf.page_faults").len();
    wait_until("software events are counted on", || machine.points("perf.page_faults").len() > faults + 5);
    assert_eq!(machine.points(EVENT), []);
    let resume = json!({"verb": "pmu_resume", "job": "1"});
    let resumed = as_user((OWNER, OWNER), || machine.agent.ask(&resume));
    assert_eq!(resumed["ended"], 1, "{resumed}");
    wait_until("the event is counted", || machine.points(EVENT).len() > 5);
    let row = stored::job(&mut machine.env.reader(), "1").unwrap();
    wait_until("the ledger has what was due", || {
        let ledger = stored::ledger(&mut machine.env.reader(), row.job_key);
        let mut released = ledger.iter().filter(|(source, _)| source.starts_with("perf/released/"));
        released.any(|(_, tally)| tally.absent > 0 && tally.taken == 0)
    });
    machine.agent.daemon.terminate();
    machine.collector.terminate();
}
