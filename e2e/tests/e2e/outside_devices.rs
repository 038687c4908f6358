//! Devices outside the nodes: a real agent of SNMP, a wattmeter that sends lines, a file, and a device that
//! does not answer.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector};
use polymeter_e2e::snmpd::Snmpd;
use polymeter_e2e::wattmeter::wattmeter;
use polymeter_e2e::{Need, TestEnvironment, program, require, stored, tests, wait_until};
use polymeter_store::reader::SeriesScope;
use rustix::process::Signal;
use serde_json::{Value, json};

tests![
    a_real_agent_of_snmp_is_polled_with_a_community_and_as_a_user,
    each_metric_of_each_device_has_a_period_and_a_dead_device_disturbs_none,
    a_job_has_the_power_of_the_outlet_of_its_node,
];

/// An outlet with 98.5 W, and sensors of 221.5 W and 31.5 degrees, as `snmpd` states them.
const OBJECTS: &str = "\
    override .1.3.6.1.4.1.318.1.7.1.0 integer 985\n\
    override .1.3.6.1.4.1.318.1.8.1.0 counter 4294967295\n\
    override .1.3.6.1.2.1.99.1.1.1.1.5 integer 6\n\
    override .1.3.6.1.2.1.99.1.1.1.2.5 integer 9\n\
    override .1.3.6.1.2.1.99.1.1.1.3.5 integer 1\n\
    override .1.3.6.1.2.1.99.1.1.1.4.5 integer 2215\n\
    override .1.3.6.1.2.1.99.1.1.1.1.6 integer 8\n\
    override .1.3.6.1.2.1.99.1.1.1.2.6 integer 8\n\
    override .1.3.6.1.2.1.99.1.1.1.3.6 integer 0\n\
    override .1.3.6.1.2.1.99.1.1.1.4.6 integer 31500\n\
    override .1.3.6.1.2.1.47.1.1.1.1.7.5 octet_str \"PSU 1 input\"\n";

/// Metrics of [`OF_DEVICE`].
const METRICS: [&str; 5] =
    ["total", "sensor.power", "sensor.temperature", "port.receive.bytes", "outlet.power"];

/// Table of a device, behind what differs.
const OF_DEVICE: &str = r#"timeout = "30s"
nodes = { "1.0" = "node17" }
[[device.metric]]
name = "total"
address = "1.3.6.1.4.1.318.1.8.1.0"
unit = "kWh"
period = "200ms"
[[device.metric]]
name = "sensor.power"
address = "sensors.power"
period = "200ms"
[[device.metric]]
name = "sensor.temperature"
address = "sensors.temperature"
period = "200ms"
[[device.metric]]
name = "port.receive.bytes"
address = "ports.receive"
period = "200ms"
[[device.metric]]
name = "outlet.power"
address = "1.3.6.1.4.1.318.1.7.*"
label = "outlet"
unit = "watts"
scale = 0.1
period = "200ms"
"#;

const SECRETS: [&str; 3] = ["hunter2hunter2", "hunter3hunter3", "hunter4hunter4"];

fn secret(env: &TestEnvironment, name: &str, text: &str) -> String {
    let path = env.path(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

fn agent(env: &TestEnvironment, tables: &str) -> (Agent, Daemon) {
    let (collector, endpoint) = collector(env, &env.endpoint());
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("agent.cpu.time", "1s")] };
    (Agent::start_with(env, &plan, "", tables), collector)
}

/// Newest values of the devices, by metric and labels.
fn newest(env: &TestEnvironment) -> BTreeMap<String, f64> {
    let samples = stored::samples(&mut env.reader(), SeriesScope::Node(&env.node));
    let of_devices = samples.into_iter().filter(|((metric, _), _)| metric.starts_with("device."));
    let newest = of_devices.filter_map(|((metric, labels), series)| {
        let (_, value) = series.points.last()?;
        Some((format!("{metric}{{{labels}}}"), *value))
    });
    newest.collect()
}

fn count(env: &TestEnvironment, metric: &str) -> usize {
    let samples = stored::samples(&mut env.reader(), SeriesScope::Node(&env.node));
    samples.iter().filter(|((name, _), _)| name == metric).map(|(_, series)| series.points.len()).sum()
}

fn received_bytes() -> f64 {
    fs::read_to_string("/sys/class/net/lo/statistics/rx_bytes").unwrap().trim().parse().unwrap()
}

fn a_real_agent_of_snmp_is_polled_with_a_community_and_as_a_user() {
    require(&[Need::Snmpd]);
    let env = TestEnvironment::new();
    let [community, password, privacy] = SECRETS;
    let access = format!(
        "rocommunity {community}\ncreateUser monitor SHA-256 \"{password}\" AES \"{privacy}\"\n\
         rouser monitor priv\n{OBJECTS}"
    );
    let snmpd = Snmpd::start(&env, "snmpd", &access);
    let address = &snmpd.address;
    let of_community = secret(&env, "pdu3", &format!("community = \"{community}\"\n"));
    let user = format!(
        "user = \"monitor\"\nauth = \"sha256\"\nauth_password = \"{password}\"\nprivacy = \"aes128\"\n\
         privacy_password = \"{privacy}\"\n"
    );
    let of_user = secret(&env, "sw-2", &user);
    let wrong = secret(&env, "sw-3", &user.replace(password, "hunter5hunter5"));
    let mut tables = String::new();
    for (name, credentials) in [("pdu3", &of_community), ("sw-2", &of_user), ("sw-3", &wrong)] {
        tables.push_str(&format!(
            "[[device]]\nname = \"{name}\"\nurl = \"snmp://{address}\"\ncredentials = \"{credentials}\"\n\
             {OF_DEVICE}"
        ));
    }
    let before = received_bytes();
    let (agent, _collector) = agent(&env, &tables);
    let mut values = BTreeMap::new();
    wait_until("both devices have all values", || {
        values = newest(&env);
        ["pdu3", "sw_2"].iter().all(|word| {
            // The host decides how many ports there are.
            METRICS.iter().all(|metric| {
                let of_metric = format!("device.{word}.{metric}{{");
                values.keys().any(|key| key.starts_with(&of_metric))
            })
        })
    });
    for (word, name) in [("pdu3", "pdu3"), ("sw_2", "sw-2")] {
        let value = |metric: &str, labels: &str| {
            let key = format!("device.{word}.{metric}{{device={name}{labels}}}");
            *values.get(&key).unwrap_or_else(|| panic!("no {key} in {values:#?}"))
        };
        assert!((value("outlet.power", ",node=node17,outlet=1.0") - 98.5).abs() < 1e-9);
        assert!((value("sensor.power", ",sensor=PSU 1 input") - 221.5).abs() < 1e-9);
        assert!((value("sensor.temperature", ",sensor=6") - 31.5).abs() < 1e-9);
        assert!((value("total", ",unit=kWh") - f64::from(u32::MAX)).abs() < 0.5);
        let received = value("port.receive.bytes", ",port=lo");
        // Net-SNMP keeps the counters for some seconds.
        assert!(received > 0.0 && received <= received_bytes(), "{before} {received}");
    }
    let (_, log) = agent.daemon.end(Signal::TERM);
    assert!(log.contains("cannot read device sw-3: it refuses the credentials"), "{log}");
    assert!(SECRETS.iter().all(|secret| !log.contains(secret)), "{log}");
    let url = format!("snmp://{address}");
    let attempt = |credentials: &str| {
        let arguments = ["device", "try", &url, "--credentials", credentials, "--timeout", "30s"];
        program("polymeter").args(arguments).output().unwrap()
    };
    let proposed = attempt(&of_user);
    let text = String::from_utf8(proposed.stdout).unwrap();
    for expected in [
        "address = \"ports.transmit\"",
        "address = \"sensors.power\"",
        "\"PSU 1 input\": 221.5 watts",
        "\"lo\": ",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let refused = attempt(&wrong);
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && message.contains("it refuses the credentials"), "{message}");
}

fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

fn each_metric_of_each_device_has_a_period_and_a_dead_device_disturbs_none() {
    let env = TestEnvironment::new();
    let meter = wattmeter(&["node17", "node18"]);
    // Takes requests, and never answers.
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = env.path("hall.txt");
    write(&file, "hall.temperature 21.5\n");
    let tables = format!(
        "[[device]]\nname = \"meter\"\nurl = \"tcp://{meter}\"\ntimeout = \"30s\"\n\
         metric = [{{ name = \"power\", address = \"node*\", label = \"node\", unit = \"watts\", \
         period = \"off\" }}]\n\
         [[device]]\nname = \"hall\"\nurl = \"file://{}\"\n\
         metric = [{{ name = \"temperature\", address = \"hall.temperature\", unit = \"celsius\", \
         period = \"100ms\" }}]\n\
         [[device]]\nname = \"dead\"\nurl = \"snmp://{}\"\n\
         metric = [{{ name = \"power\", address = \"1.3.6.1.4.1.7.0\", unit = \"watts\", \
         period = \"100ms\" }}]\n",
        file.display(),
        dead.local_addr().unwrap(),
    );
    let (agent, _collector) = agent(&env, &tables);
    wait_until("the file is read", || newest(&env).contains_key("device.hall.temperature{device=hall}"));
    write(&file, "hall.temperature 22.5\n");
    wait_until("the file is read again", || {
        newest(&env).get("device.hall.temperature{device=hall}") == Some(&22.5)
    });
    assert_eq!(count(&env, "device.hall.temperature"), 2, "each writing of the file is one value");
    assert_eq!(count(&env, "device.meter.power"), 0, "it is off until somebody asks");
    let mut answer = json!(null);
    wait_until("the wattmeter is known", || {
        answer = agent.ask(&json!({"verb": "set", "plan": {"device.meter.power": "20ms"}}));
        answer["answer"] == "granted"
    });
    wait_until("there are some values of each node", || count(&env, "device.meter.power") > 100);
    let values = newest(&env);
    assert_eq!(values["device.meter.power{device=meter,node=node18}"], 7.0, "{values:?}");
    assert!([100.0, 101.0].contains(&values["device.meter.power{device=meter,node=node17}"]));
    assert!(
        agent.ask(&json!({"verb": "set", "plan": {"device.nothing.power": "1s"}}))["answer"] != "granted"
    );
    let (_, log) = agent.daemon.end(Signal::TERM);
    assert!(log.contains("cannot read device dead: it did not answer in time"), "{log}");
}

/// A job on a node, and an agent of SNMP one of whose outlets serves the node.
fn a_job_has_the_power_of_the_outlet_of_its_node() {
    require(&[Need::Snmpd, Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let (env, node, cgroups) = (TestEnvironment::new(), TestEnvironment::new(), TestCgroups::new());
    let (_collector, endpoint) = collector(&env, "tcp://127.0.0.1:*");
    let snmpd = Snmpd::start(&env, "snmpd", &format!("rocommunity public\n{OBJECTS}"));
    let tables = format!(
        "[[device]]\nname = \"pdu3\"\nurl = \"snmp://{}\"\n{}",
        snmpd.address,
        OF_DEVICE.replace("node17", &node.node)
    );
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("agent.cpu.time", "1s")] };
    let devices = Agent::start_with(&env, &plan, "", &tables);
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &[("cpu.*", "100ms")] };
    let agent = Agent::start(&node, &plan);
    let count = || {
        let samples = stored::samples(&mut env.reader(), SeriesScope::Node(&node.node));
        let of_outlet = samples.iter().filter(|((name, _), _)| name == "device.pdu3.outlet.power");
        of_outlet.map(|(_, series)| series.points.len()).sum::<usize>()
    };
    wait_until("the outlet is polled", || count() > 2);
    let job = cgroups.job("1");
    agent.wait_until_tracked("1", &["v2/cpu.stat"]);
    let before = count();
    wait_until("there are values during the job", || count() > before + 15);
    job.remove();
    stored::wait_for_end(&env, "1");
    wait_until("there are values behind the job", || count() > before + 20);
    let run = |arguments: &[&str]| {
        let output = program("polymeter").args(arguments).args(["--store", &env.store()]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let report: Value = serde_json::from_str(&run(&["report", "1", "--json"])).unwrap();
    let devices_of = report["devices"].as_array().unwrap();
    // Those without this node, and temperatures, are not the job's.
    let [outlet] = devices_of.as_slice() else { panic!("{devices_of:?}") };
    assert_eq!(
        (&outlet["node"], &outlet["quantity"], &outlet["name"], &outlet["devices"], &outlet["is_shared"]),
        (&json!(node.node), &json!("power"), &json!("outlet.power"), &json!(["pdu3"]), &json!(false))
    );
    let (watts, joules) = (outlet["watts_mean"].as_f64().unwrap(), outlet["joules"].as_f64().unwrap());
    let wall_s = report["wall_s"].as_f64().unwrap();
    assert!((watts - 98.5).abs() < 0.1 && (joules / wall_s - 98.5).abs() < 1.0, "{outlet} in {wall_s} s");
    let text = run(&["report", "1", "--show", "usage"]);
    assert!(text.contains("outlet.power") && text.contains("98.5 W on average"), "{text}");
    let file =
        run(&["export", "1", "--with-devices", "--metric", "device.*", "--format", "jsonl", "-o", "-"]);
    let lines: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 10 && lines.iter().all(|line| line["node"] == json!(node.node)), "{file}");
    assert!(lines.iter().all(|line| line["value"] == json!(98.5)), "{file}");
    agent.daemon.terminate();
    devices.daemon.terminate();
}
