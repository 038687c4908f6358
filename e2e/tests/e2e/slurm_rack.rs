//! A rack of 40 nodes under a real Slurm: a power distribution unit, a management controller for each node and
//! a switch, which an agent of its own polls. Two jobs share the rack; one of them asks for the power of its
//! outlets every 20 ms, at submission.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

use polymeter_e2e::bmc::Bmc;
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector_with};
use polymeter_e2e::slurm::{Cluster, OTHER_USER, USER, agent_config};
use polymeter_e2e::snmpd::Snmpd;
use polymeter_e2e::{Need, TestEnvironment, install, program, require, stored, tests, wait_within};
use polymeter_store::reader::SeriesScope;
use serde_json::{Value, json};

tests![exclusive two_jobs_share_a_rack_and_one_asks_for_its_power_every_20_ms];

const NODES: usize = 40;

/// Starting 40 daemons of Slurm and the agents takes a while on few cores.
const PATIENCE: Duration = Duration::from_secs(240);

const OUTLETS: &str = "device.pdu.outlet.power";

const PASSWORD: &str = "hunter2hunter2";

/// Answers for `pass_persist` of snmpd: received and sent bytes of the ports of a switch, which grow by 10,000
/// and 20,000 bytes a second times the number of the port.
const SWITCH: &str = r#"
import sys, time
BASE, BEGIN = '.1.3.6.1.4.1.9999.2.', time.monotonic()
OIDS = [(column, port) for column in (1, 2) for port in range(1, 41)]
def key(oid):
    return tuple(int(part) for part in (oid + '.')[len(BASE):].split('.') if part)
def say(found):
    if found is None:
        return print('NONE', flush=True)
    value = int((time.monotonic() - BEGIN) * 10000 * found[0] * found[1])
    print(f'{BASE}{found[0]}.{found[1]}\ncounter\n{value}', flush=True)
while line := sys.stdin.readline().strip():
    if line == 'PING':
        print('PONG', flush=True)
        continue
    wanted = key(sys.stdin.readline().strip())
    if line == 'getnext':
        say(next((oid for oid in OIDS if oid > wanted), None))
    else:
        say(wanted if wanted in OIDS else None)
"#;

/// Tables of the agent that polls the rack: the outlets are off until a job asks for them.
fn tables(
    env: &TestEnvironment,
    nodes: &[String],
    pdu: &Snmpd,
    switch: &Snmpd,
    controllers: &[Bmc],
) -> String {
    let ports = env.path("ports");
    let lines = (1..).zip(nodes).map(|(port, node)| format!("pdu {port}.0 {node}\nswitch {port} {node}\n"));
    fs::write(&ports, lines.collect::<String>()).unwrap();
    let secret = env.path("bmc.secret");
    fs::write(&secret, format!("user = \"monitor\"\npassword = \"{PASSWORD}\"\n")).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let (ports, secret) = (ports.display(), secret.display());
    let mut text = format!(
        "[[device]]\nname = \"pdu\"\nurl = \"snmp://{}\"\ntimeout = \"30s\"\nnodes_file = \"{ports}\"\n\
         metric = [{{ name = \"outlet.power\", address = \"1.3.6.1.4.1.318.1.7.*\", label = \"outlet\", \
         unit = \"watts\", scale = 0.1, period = \"off\" }}]\n\
         [[device]]\nname = \"switch\"\nurl = \"snmp://{}\"\ntimeout = \"30s\"\nnodes_file = \"{ports}\"\n\
         metric = [{{ name = \"port.receive.bytes\", address = \"1.3.6.1.4.1.9999.2.1.*\", label = \"port\", \
         unit = \"bytes\", period = \"1s\" }}, \
         {{ name = \"port.transmit.bytes\", address = \"1.3.6.1.4.1.9999.2.2.*\", label = \"port\", \
         unit = \"bytes\", period = \"1s\" }}]\n",
        pdu.address, switch.address
    );
    for (number, (node, controller)) in nodes.iter().zip(controllers).enumerate() {
        text.push_str(&format!(
            "[[device]]\nname = \"bmc{number}\"\nurl = \"ipmi://{}\"\ncredentials = \"{secret}\"\ntimeout = \"30s\"\n\
             node = \"{node}\"\nmetric = [{{ name = \"power\", address = \"power\", period = \"2s\" }}]\n",
            controller.address
        ));
    }
    text
}

fn snmpd(env: &TestEnvironment, name: &str, objects: &str) -> Snmpd {
    Snmpd::start(env, name, &format!("rocommunity public\n{objects}"))
}

/// Power of a node by its outlet and by its controller, in watts.
fn outlet_watts(number: usize) -> f64 {
    100.0 + f64::from(u32::try_from(number).unwrap())
}

fn controller_watts(number: usize) -> u16 {
    u16::try_from(200 + number).unwrap()
}

struct Rack {
    cluster: Cluster,
    devices: Agent,
    collector: Daemon,
    _parts: (Snmpd, Snmpd, Vec<Bmc>),
    of_devices: TestEnvironment,
    env: TestEnvironment,
}

impl Rack {
    /// Period of the outlets, as the agent of the devices states it.
    fn period(&self) -> Option<String> {
        let plan = self.devices.ask(&json!({"verb": "plan"}));
        let line = plan["plan"].as_array()?.iter().find(|line| line["metric"] == OUTLETS)?;
        Some(line["period"].as_str()?.to_owned())
    }

    fn ask(&self, (uid, gid, _): (u32, u32, &str), arguments: &[&str]) -> Output {
        Command::new("setpriv")
            .args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()])
            .arg(self.env.path("polymeter"))
            .args(arguments)
            .env("POLYMETER_COLLECTOR", self.env.path("control.sock"))
            .current_dir("/")
            .output()
            .unwrap()
    }

    /// Times of the samples of each node's outlet, in microseconds since the epoch.
    fn outlet_times(&self, node: &str) -> Vec<i64> {
        let samples = stored::samples(&mut self.env.reader(), SeriesScope::Node(node));
        let mut of_outlet = samples.into_iter().filter(|((metric, _), _)| metric == OUTLETS);
        of_outlet
            .next()
            .map(|(_, series)| series.points.iter().map(|(time_us, _)| *time_us).collect())
            .unwrap_or_default()
    }

    /// Checks the power and the traffic of a job of `user` in its report, by the numbers of its nodes.
    fn check_report(&self, user: (u32, u32, &str), job: &str, has_outlets: bool) {
        let output = self.ask(user, &["report", job, "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let wall_s = report["wall_s"].as_f64().unwrap();
        let nodes = stored::job(&mut self.env.reader(), job).unwrap().nodes;
        assert_eq!(nodes.len(), NODES / 2);
        let mut of: BTreeMap<(&str, &str, &str), &Value> = BTreeMap::new();
        for device in report["devices"].as_array().unwrap() {
            let text = |field: &str| device[field].as_str().unwrap();
            of.insert((text("node"), text("quantity"), text("name")), device);
        }
        for node in &nodes {
            let number = self.cluster.nodes.iter().position(|of| of == node).unwrap();
            let near = |key: (&str, &str), field: &str, expected: f64, tolerance: f64| {
                let found = of
                    .get(&(node.as_str(), key.0, key.1))
                    .unwrap_or_else(|| panic!("{node} {key:?} in {of:?}"));
                let value = found[field].as_f64().unwrap();
                assert!(
                    (value - expected).abs() <= tolerance * expected,
                    "{node} {key:?}: {found}, expected {expected}"
                );
            };
            near(("power", "power"), "watts_mean", f64::from(controller_watts(number)), 0.001);
            let bytes_per_s = 10_000.0 * f64::from(u32::try_from(number + 1).unwrap());
            near(("from_node", "port.receive.bytes"), "bytes", bytes_per_s * wall_s, 0.1);
            near(("to_node", "port.transmit.bytes"), "bytes", 2.0 * bytes_per_s * wall_s, 0.1);
            if has_outlets {
                near(("power", "outlet.power"), "watts_mean", outlet_watts(number), 0.001);
            }
        }
    }
}

fn start() -> Rack {
    let (env, of_devices) = (TestEnvironment::new(), TestEnvironment::new());
    fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    install(program("polymeter").get_program(), &env.path("polymeter"));
    let socket = env.path("control.sock");
    let control = format!("control_socket = \"{}\"\n", socket.display());
    let (collector, endpoint) = collector_with(&env, &env.endpoint(), &control);
    let baseline = "[baseline]\n\"cpu.usage\" = \"1s\"\n";
    let cluster = Cluster::of(NODES, &socket, |node, _| agent_config(node, &endpoint, baseline));
    let outlet = |number: usize| {
        format!("override .1.3.6.1.4.1.318.1.7.{}.0 integer {}\n", number + 1, outlet_watts(number) * 10.0)
    };
    let pdu = snmpd(&of_devices, "pdu", &(0..NODES).map(outlet).collect::<String>());
    let script = of_devices.path("switch.py");
    fs::write(&script, SWITCH).unwrap();
    let pass = format!("pass_persist .1.3.6.1.4.1.9999.2 /usr/bin/python3 {}\n", script.display());
    let switch = snmpd(&of_devices, "switch", &pass);
    let controllers: Vec<Bmc> = (0..NODES).map(|_| Bmc::start(PASSWORD)).collect();
    for (number, controller) in controllers.iter().enumerate() {
        controller.change(|state| state.watts = Some(controller_watts(number)));
    }
    let tables = tables(&of_devices, &cluster.nodes, &pdu, &switch, &controllers);
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("agent.cpu.time", "1s")] };
    let devices = Agent::start_with(&of_devices, &plan, "", &tables);
    Rack { cluster, devices, collector, _parts: (pdu, switch, controllers), of_devices, env }
}

fn two_jobs_share_a_rack_and_one_asks_for_its_power_every_20_ms() {
    require(&[Need::Root, Need::Slurm, Need::Snmpd]);
    let rack = start();
    wait_within(PATIENCE, "the outlets are known", || {
        let metrics = rack.devices.ask(&json!({"verb": "metrics"}));
        let all = metrics["metrics"].as_array().cloned().unwrap_or_default();
        all.iter().any(|line| line["metric"] == OUTLETS && line["available"] == true)
    });
    assert_eq!(rack.period(), None, "it is off until a job asks");
    let submit = |user: (u32, u32, &str), options: &[&str]| {
        let options = [&["-N", "20", "-n", "20", "--exclusive", "--mem=40"], options].concat();
        rack.cluster.submit_as(Some((user.0, user.1)), &options, "sleep 60")
    };
    let plain = submit(OTHER_USER, &[]);
    let asking = submit(USER, &["--comment=polymeter: device.pdu.*=20ms for 10min"]);
    wait_within(PATIENCE, "the outlets are sampled for the job", || rack.period().as_deref() == Some("20ms"));
    let refused = rack.ask(OTHER_USER, &["set", "--job", &asking, "device.*=1s"]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("or not yours"), "{refused:?}");
    let plan = rack.ask(USER, &["plan", "--job", &asking, "--json"]);
    let text = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(text.contains(OUTLETS) && text.contains(&rack.of_devices.node), "{text}");
    for job in [&plain, &asking] {
        wait_within(PATIENCE, "the job has ended", || rack.cluster.of_job(job, "JobState") == "COMPLETED");
    }
    wait_within(PATIENCE, "the outlets are off again", || rack.period().is_none());
    for job in [&plain, &asking] {
        stored::wait_for_end(&rack.env, job);
    }
    rack.devices.ask(&json!({"verb": "flush"}));
    rack.check_report(USER, &asking, true);
    rack.check_report(OTHER_USER, &plain, false);
    for node in stored::job(&mut rack.env.reader(), &asking).unwrap().nodes {
        let times = rack.outlet_times(&node);
        let span_us = times.last().unwrap() - times[0];
        assert!(span_us > 45_000_000, "{node}: {span_us} us");
        let due = usize::try_from(span_us / 20_000).unwrap();
        // What a busy machine misses is counted in the ledger.
        assert!(times.len() > due * 8 / 10 && times.len() <= due + 1, "{node}: {} of {due}", times.len());
    }
    rack.end();
}

impl Rack {
    /// Ends the agent of the devices. Each sample that it has taken of them is a row.
    fn end(self) {
        drop(self.cluster);
        self.devices.daemon.terminate();
        let store = rusqlite::Connection::open(self.env.path("store.db")).unwrap();
        let number = |sql: &str| store.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
        let taken = number("SELECT sum(taken) FROM ledger WHERE source LIKE 'device/%'");
        let rows =
            number("SELECT count(*) FROM samples JOIN series USING (series_id) WHERE metric LIKE 'device.%'");
        assert!(rows > 100_000, "{rows}");
        assert_eq!(rows, taken);
        self.collector.terminate();
    }
}
