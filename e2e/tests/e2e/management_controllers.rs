//! Management controllers with IPMI: that of OpenIPMI, read by FreeIPMI, too, and a stand-in that lies.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_agent::sources::outside::{
    Connection, DeviceError, DeviceMetric, DeviceSettings, Found, Number, connect,
};
use polymeter_e2e::bmc::{Bmc, BmcSensor, Manner};
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::ipmi_sim::{IpmiSim, power_by_freeipmi, read_by_freeipmi};
use polymeter_e2e::{Need, TestEnvironment, program, require, stored, tests, wait_until};
use polymeter_proto::name::MetricName;
use polymeter_store::reader::SeriesScope;
use rustix::process::Signal;

tests![
    a_controller_of_openipmi_is_read_as_freeipmi_reads_it,
    freeipmi_reads_the_stand_in_as_the_agent_does,
    exclusive a_controller_that_lies_costs_an_error_and_no_value,
    sessions_are_few_and_end,
];

const PASSWORD: &str = "hunter2hunter2";

const fn sensor(number: u8, name: &'static str, units: u8, base_unit: u8, reading: u8) -> BmcSensor {
    let (factor, offset, exponent, offset_exponent) = (1, 0, 0, 0);
    let reading = Some(reading);
    BmcSensor { number, name, units, base_unit, factor, offset, exponent, offset_exponent, reading }
}

/// Sensors of each unit, format and formula that FreeIPMI shows, two of one name, and one without a value.
fn sensors() -> Vec<BmcSensor> {
    vec![
        sensor(1, "CPU1 Temp", 0x80, 1, 42),
        sensor(2, "Inlet", 0x80, 1, 0xf6),
        BmcSensor { factor: 100, ..sensor(3, "FAN1", 0, 18, 55) },
        BmcSensor { factor: 6, exponent: -2, ..sensor(4, "12V", 0, 4, 200) },
        BmcSensor { factor: 4, offset: -100, ..sensor(5, "PSU", 0, 6, 120) },
        BmcSensor {
            factor: -512,
            offset: 511,
            offset_exponent: 3,
            exponent: -3,
            ..sensor(6, "Low", 0x40, 4, 0x85)
        },
        BmcSensor { factor: 5, exponent: -1, ..sensor(7, "Fan duty", 1, 0, 80) },
        sensor(8, "Temp", 0x80, 1, 50),
        sensor(9, "Temp", 0x80, 1, 51),
        BmcSensor { reading: None, ..sensor(10, "Absent", 0x80, 1, 1) },
        sensor(11, "Light", 0, 20, 9),
    ]
}

/// Metrics by address, in the order of their names.
const ADDRESSES: [&str; 6] =
    ["power", "sensors.temperature", "sensors.fan", "sensors.voltage", "sensors.power", "sensors.percent"];

struct Asked {
    connection: Box<dyn Connection>,
    metrics: Vec<DeviceMetric>,
}

impl Asked {
    fn new(env: &TestEnvironment, address: &str, secret: &str, timeout: &str, addresses: &[&str]) -> Self {
        let path = env.path("bmc.secret");
        fs::write(&path, secret).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let metric = |(number, address): (usize, &&str)| {
            DeviceMetric::new(MetricName::new(format!("m{number}")).unwrap(), (*address).to_owned())
        };
        let metrics: Vec<_> = addresses.iter().enumerate().map(metric).collect();
        let settings = DeviceSettings {
            name: "bmc".try_into().unwrap(),
            word: "bmc".to_owned(),
            url: format!("ipmi://{address}").parse().unwrap(),
            credentials: Some(path),
            timeout: timeout.parse().unwrap(),
            node: None,
            nodes: BTreeMap::new(),
            job_label: None,
            metrics: metrics.clone(),
        };
        Self { connection: connect(&settings, Path::new("/")).unwrap(), metrics }
    }

    fn find(&mut self) -> Result<Vec<Found>, DeviceError> {
        self.connection.find(&self.metrics)
    }

    fn read(&mut self, found: &[Found]) -> Result<Vec<Option<f64>>, DeviceError> {
        let wanted: Vec<&str> = found.iter().map(|found| found.address.as_str()).collect();
        let mut numbers = vec![None; wanted.len()];
        self.connection.read(&wanted, &mut numbers)?;
        Ok(numbers.into_iter().map(|number| number.map(Number::to_f64)).collect())
    }

    /// Values of all metrics, by the names of sensors.
    fn values(&mut self) -> BTreeMap<String, Option<f64>> {
        let found = self.find().unwrap();
        let name = |found: &Found| found.labels.first().map_or_else(String::new, |(_, name)| name.clone());
        found.iter().map(name).zip(self.read(&found).unwrap()).collect()
    }
}

fn user(rest: &str) -> String {
    format!("user = \"monitor\"\npassword = \"{PASSWORD}\"\n{rest}")
}

/// Compares with what FreeIPMI has printed with two digits.
fn compare(values: &BTreeMap<String, Option<f64>>, by_freeipmi: &[(String, f64)]) {
    let known = ["CPU1 Temp", "Inlet", "FAN1", "12V", "PSU", "Low", "Fan duty"];
    for name in known {
        let expected = by_freeipmi.iter().find(|(of, _)| of == name).map(|(_, value)| *value);
        let (Some(expected), Some(Some(value))) = (expected, values.get(name)) else {
            panic!("{name}: {values:?} {by_freeipmi:?}");
        };
        assert!((expected - value).abs() <= 0.00501, "{name}: {expected} {value}");
    }
    let temperatures: Vec<f64> = by_freeipmi
        .iter()
        .filter(|(name, _)| name.ends_with("Temp") && name != "CPU1 Temp")
        .map(|of| of.1)
        .collect();
    assert_eq!(temperatures, [50.0, 51.0]);
    assert_eq!(
        (values["Temp #8"], values["Temp #9"], values["Absent"], values.get("Light")),
        (Some(50.0), Some(51.0), None, None)
    );
}

fn a_controller_of_openipmi_is_read_as_freeipmi_reads_it() {
    require(&[Need::Ipmi]);
    let env = TestEnvironment::new();
    let sim = IpmiSim::start(&env, PASSWORD, &sensors());
    let by_freeipmi = read_by_freeipmi(&env, &sim.address, PASSWORD, "3");
    // It has cipher suite 3 only, and no power of DCMI.
    for suite in ["", "cipher_suite = \"3\"\n"] {
        let values = Asked::new(&env, &sim.address, &user(suite), "30s", &ADDRESSES).values();
        compare(&values, &by_freeipmi);
        assert!(!values.contains_key(""), "{values:?}");
    }
    let wrong = user("").replace(PASSWORD, "hunter3hunter3");
    let mut refused = Asked::new(&env, &sim.address, &wrong, "30s", &ADDRESSES);
    assert!(matches!(refused.find(), Err(DeviceError::Refused(_))), "{:?}", refused.find());
    let mut stranger =
        Asked::new(&env, &sim.address, &user("").replace("monitor", "root"), "30s", &ADDRESSES);
    assert!(matches!(stranger.find(), Err(DeviceError::Refused(_))), "{:?}", stranger.find());
    // As an agent and a user see it.
    let secret = env.path("bmc.secret");
    fs::write(&secret, user("")).unwrap();
    let device = format!(
        "[[device]]\nname = \"bmc17\"\nurl = \"ipmi://{}\"\ncredentials = \"{}\"\ntimeout = \"30s\"\n\
         metric = [{{ name = \"temperature\", address = \"sensors.temperature:CPU*\", period = \"100ms\" }}, \
         {{ name = \"fan\", address = \"sensors.fan\", period = \"200ms\" }}]\n",
        sim.address,
        secret.display()
    );
    let (_collector, endpoint) = collector(&env, &env.endpoint());
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("agent.cpu.time", "1s")] };
    let agent = Agent::start_with(&env, &plan, "", &device);
    let count = |metric: &str, labels: &str| {
        let samples = stored::samples(&mut env.reader(), SeriesScope::Node(&env.node));
        samples.get(&(metric.to_owned(), labels.to_owned())).map_or(0, |series| series.points.len())
    };
    wait_until("the controller is sampled at two periods", || {
        count("device.bmc17.temperature", "device=bmc17,sensor=CPU1 Temp") > 20
            && count("device.bmc17.fan", "device=bmc17,sensor=FAN1") > 10
    });
    let (_, log) = agent.daemon.end(Signal::TERM);
    assert!(!log.contains(PASSWORD), "{log}");
    let url = format!("ipmi://{}", sim.address);
    let output = program("polymeter")
        .args(["device", "try", &url, "--timeout", "30s", "--credentials"])
        .arg(&secret)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("address = \"sensors.voltage\"") && text.contains("\"12V\": 12 volts"), "{text}");
}

fn freeipmi_reads_the_stand_in_as_the_agent_does() {
    require(&[Need::Ipmi]);
    let env = TestEnvironment::new();
    let bmc = Bmc::start(PASSWORD);
    bmc.change(|state| state.sensors = sensors());
    for suite in ["3", "17"] {
        let values = Asked::new(
            &env,
            &bmc.address,
            &user(&format!("cipher_suite = \"{suite}\"\n")),
            "30s",
            &ADDRESSES,
        )
        .values();
        assert_eq!(values[""], Some(220.0), "the power by DCMI");
        compare(&values, &read_by_freeipmi(&env, &bmc.address, PASSWORD, suite));
        let power = power_by_freeipmi(&bmc.address, PASSWORD, suite);
        assert!(
            power.lines().any(|line| line.starts_with("Current Power") && line.contains(" 220 ")),
            "{power}"
        );
    }
}

fn a_controller_that_lies_costs_an_error_and_no_value() {
    let env = TestEnvironment::new();
    let bmc = Bmc::start(PASSWORD);
    let mut failures = vec![
        Manner::WrongIntegrity,
        Manner::Unsigned,
        Manner::Replay,
        Manner::EndlessRecords,
        Manner::NewRecords,
        Manner::LongParts,
        Manner::ChangingRecords,
        Manner::OtherPassword,
        Manner::Busy,
        Manner::OtherSuite,
        Manner::Silent,
    ];
    failures.extend((0..72).step_by(3).map(Manner::CutOff));
    failures.extend([0, 1, 7, 15, 17, 31, 33, 200, u16::MAX].map(Manner::Length));
    bmc.change(|state| state.sensors = sensors());
    for manner in failures {
        bmc.change(|state| state.manner = manner);
        let mut device = Asked::new(&env, &bmc.address, &user(""), "60ms", &ADDRESSES);
        let result = device.find();
        assert!(result.is_err(), "{manner:?}: {result:?}");
        let message = result.unwrap_err().to_string();
        assert!(!message.contains(PASSWORD), "{message}");
        let expected = match manner {
            Manner::EndlessRecords | Manner::NewRecords => "do not end",
            Manner::ChangingRecords => "change all the time",
            Manner::OtherPassword => "check `user` and `password`",
            Manner::Busy => "no session left",
            Manner::WrongIntegrity | Manner::Unsigned | Manner::Replay | Manner::Silent => "in time",
            Manner::CutOff(_) | Manner::Length(_) | Manner::LongParts | Manner::OtherSuite => "",
            Manner::Honest | Manner::Suite3Only | Manner::Flood => unreachable!(),
        };
        assert!(message.contains(expected), "{manner:?}: {message}");
        bmc.restart();
    }
    for manner in [Manner::Flood, Manner::Suite3Only, Manner::Honest] {
        bmc.change(|state| state.manner = manner);
        let values = Asked::new(&env, &bmc.address, &user(""), "30s", &ADDRESSES).values();
        assert_eq!((values["CPU1 Temp"], values[""]), (Some(42.0), Some(220.0)), "{manner:?}");
    }
    bmc.change(|state| state.manner = Manner::Suite3Only);
    let mut pinned = Asked::new(&env, &bmc.address, &user("cipher_suite = \"17\"\n"), "30s", &ADDRESSES);
    assert!(matches!(pinned.find(), Err(DeviceError::Refused(_))), "no weaker suite than the permitted one");
}

fn sessions_are_few_and_end() {
    let env = TestEnvironment::new();
    let bmc = Bmc::start(PASSWORD);
    bmc.change(|state| state.sensors = sensors());
    let mut device = Asked::new(&env, &bmc.address, &user(""), "30s", &ADDRESSES);
    let found = device.find().unwrap();
    for _ in 0..20 {
        device.read(&found).unwrap();
    }
    assert_eq!(bmc.sessions(), 1);
    let before = bmc.packets.load(Relaxed);
    device.read(&found[..1]).unwrap();
    assert_eq!(bmc.packets.load(Relaxed), before + 1, "only what is wanted, in the session that is open");
    let again = device.find().unwrap();
    assert_eq!((again.len(), bmc.packets.load(Relaxed)), (found.len(), before + 3), "the records are known");
    // Another sensor took the number of the first one.
    bmc.change(|state| state.sensors[0].name = "GPU1 Temp");
    bmc.restart();
    let mut short = Asked::new(&env, &bmc.address, &user(""), "30s", &ADDRESSES);
    assert_eq!(short.read(&found[1..4]).unwrap(), [None, None, Some(-10.0)]);
    drop((device, short));
    wait_until("all sessions have ended", || bmc.sessions() == 0);
    let (_collector, endpoint) = collector(&env, &env.endpoint());
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("agent.cpu.time", "1s")] };
    let device = format!(
        "[[device]]\nname = \"bmc\"\nurl = \"ipmi://{}\"\ncredentials = \"{}\"\ntimeout = \"30s\"\n\
         metric = [{{ name = \"power\", address = \"power\", period = \"100ms\" }}]\n",
        bmc.address,
        env.path("bmc.secret").display()
    );
    let agent = Agent::start_with(&env, &plan, "", &device);
    wait_until("the agent has a session", || bmc.sessions() == 1);
    agent.daemon.terminate();
    wait_until("its session has ended", || bmc.sessions() == 0);
}
