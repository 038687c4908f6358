//! Tests through real calls of the wrapper into the stand-in library.

mod hangs;
mod jobs;
mod machine;

use std::collections::BTreeMap;
use std::fs;

use rustix::io::Errno;

use crate::sources::Outcome;
use machine::{Machine, wait_until};

const ONE_GPU: &[(&str, &str)] = &[("gpus", "1"), ("0.uuid", "GPU-a"), ("0.power", "250000")];

const TWO_GPUS: &[(&str, &str)] = &[
    ("gpus", "2"),
    ("0.uuid", "GPU-a"),
    ("1.uuid", "GPU-b"),
    ("0.power", "250000"),
    ("1.power", "61500"),
    ("0.utilization", "97"),
    ("0.memory_utilization", "41"),
    ("1.utilization", "0"),
    ("1.memory_utilization", "0"),
];

const ALL_QUANTITIES: &[(&str, &str)] = &[
    ("gpus", "1"),
    ("0.uuid", "GPU-a"),
    ("0.energy", "123456789"),
    ("0.power", "250500"),
    ("0.power_limit", "700000"),
    ("0.utilization", "97"),
    ("0.memory_utilization", "41"),
    ("0.memory_used", "2147483648"),
    ("0.memory_total", "85899345920"),
    ("0.clock.1", "1980"),
    ("0.clock.2", "2619"),
    ("0.temperature", "64"),
    ("0.throttle", "68"),
    ("0.violation.0", "1500000000"),
    ("0.violation.1", "0"),
    ("0.ecc.0.0", "3"),
    ("0.ecc.0.1", "30"),
    ("0.ecc.1.0", "0"),
    ("0.ecc.1.1", "2"),
    ("0.pcie.0", "1500"),
    ("0.pcie.1", "2500"),
    ("0.pcie_replays", "7"),
    ("0.field.197.0", "1000000"),
    ("0.field.198.0", "2000000"),
    ("0.field.138.4294967295", "10"),
    ("0.field.139.4294967295", "20"),
    ("0.processes", "100:1048576,101:2097152"),
];

#[test]
fn every_value_is_that_of_the_library_in_the_unit_of_its_metric() {
    let machine = Machine::new(ALL_QUANTITIES);
    let sources = machine.open_when_listed(&["node.gpu.*"]);
    let (outcome, values) = sources.read("nvidia/0");
    assert_eq!(outcome, Outcome::Read);
    let plain = [
        ("energy", 123_456.789),
        ("power", 250.5),
        ("power.limit", 700.0),
        ("utilization", 97.0),
        ("memory.utilization", 41.0),
        ("memory.used", 2_147_483_648.0),
        ("memory.total", 85_899_345_920.0),
        ("clock.sm", 1.98e9),
        ("clock.memory", 2.619e9),
        ("temperature", 64.0),
        ("ecc.corrected.volatile", 3.0),
        ("ecc.corrected.aggregate", 30.0),
        ("ecc.uncorrected.volatile", 0.0),
        ("ecc.uncorrected.aggregate", 2.0),
        ("pcie.transmit.rate", 1.5e6),
        ("pcie.receive.rate", 2.5e6),
        ("pcie.replays", 7.0),
        ("pcie.transmit.bytes", 1e6),
        ("pcie.receive.bytes", 2e6),
        ("nvlink.transmit.bytes", 10_240.0),
        ("nvlink.receive.bytes", 20_480.0),
        ("processes", 2.0),
    ];
    let mut expected: BTreeMap<String, f64> =
        plain.map(|(name, value)| (format!("node.gpu.{name}{{gpu=0,uuid=GPU-a}}"), value)).into();
    // 68 is 0x40 (HW thermal slowdown) and 0x4 (software power cap).
    let throttled = [
        ("applications_clocks", 0.0),
        ("power_cap", 1.0),
        ("hardware_slowdown", 0.0),
        ("sync_boost", 0.0),
        ("thermal", 0.0),
        ("hardware_thermal", 1.0),
        ("power_brake", 0.0),
    ];
    let labelled = |name: &str, reason: &str| format!("node.gpu.{name}{{gpu=0,reason={reason},uuid=GPU-a}}");
    expected.extend(throttled.map(|(reason, value)| (labelled("throttled", reason), value)));
    expected.extend(
        [("power", 1.5e9), ("thermal", 0.0)]
            .map(|(reason, value)| (labelled("throttled.time", reason), value)),
    );
    assert_eq!(values, expected);
}

#[test]
fn a_quantity_that_no_gpu_has_is_unavailable_and_never_0() {
    let machine = Machine::new(ONE_GPU);
    let mut sources = machine.open_when_listed(&["node.gpu.power", "node.gpu.energy"]);
    assert_eq!(sources.threaded("nvidia/0").slots().len(), 2, "support is found out by a read");
    let (outcome, values) = sources.read("nvidia/0");
    assert_eq!(
        (outcome, values),
        (Outcome::Read, [("node.gpu.power{gpu=0,uuid=GPU-a}".to_owned(), 250.0)].into())
    );
    sources.wait_for_change();
    let sources = machine.open(&["node.gpu.power", "node.gpu.energy"]);
    assert_eq!(sources.threaded("nvidia/0").slots().len(), 1);
    assert_eq!(sources.unavailable[0].to_string(), "node.gpu.energy: no NVIDIA GPU of this node has it");
}

#[test]
fn mig_devices_are_devices_of_their_own() {
    let mut text = ONE_GPU.to_vec();
    let devices: Vec<(String, String)> = (0..8)
        .flat_map(|number: u32| {
            let key = move |name: &str| format!("0.mig.{number}.{name}");
            [
                (key("uuid"), format!("MIG-{number}")),
                (key("instance"), (number + 7).to_string()),
                (key("memory_used"), (1024 * number).to_string()),
                (key("memory_total"), "1073741824".to_owned()),
                (key("processes"), String::from("1:1")),
            ]
        })
        .collect();
    text.extend(devices.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    text.extend([("0.mig_count", "8"), ("0.memory_used", "77"), ("0.memory_total", "100")]);
    let mut machine = Machine::new(&text).hurried();
    let metrics = ["node.gpu.memory.used", "node.gpu.power"];
    let mut sources = machine.open_when_listed(&metrics);
    let (_, values) = sources.read("nvidia/0");
    assert_eq!(values.len(), 10);
    assert_eq!(values["node.gpu.memory.used{gpu=0,uuid=GPU-a}"], 77.0);
    assert_eq!(values["node.gpu.memory.used{gpu=0,mig=10,uuid=MIG-3}"], 3072.0);
    assert_eq!(values["node.gpu.memory.used{gpu=0,mig=14,uuid=MIG-7}"], 7168.0);
    // A device that the administrator destroys disappears, and the others are opened anew.
    machine.set(&[("0.mig.3.uuid", "")]);
    sources.wait_for_change();
    let (outcome, values) = machine.open(&metrics).read("nvidia/0");
    assert_eq!((outcome, values.len()), (Outcome::Read, 9));
    assert!(!values.contains_key("node.gpu.memory.used{gpu=0,mig=10,uuid=MIG-3}"));
}

#[test]
fn a_lost_gpu_is_absent_until_it_returns_and_the_others_go_on() {
    let mut machine = Machine::new(TWO_GPUS);
    machine.open_when_listed(&["node.gpu.power"]);
    wait_until("both GPUs", || machine.open(&["node.gpu.power"]).names().contains(&"nvidia/1"));
    let sources = machine.open(&["node.gpu.power"]);
    let second = |watts: f64| BTreeMap::from([("node.gpu.power{gpu=1,uuid=GPU-b}".to_owned(), watts)]);
    assert_eq!(sources.read("nvidia/1"), (Outcome::Read, second(61.5)));
    machine.set(&[("1.lost", "1")]);
    for _ in 0..3 {
        let (outcome, values) = sources.read("nvidia/1");
        assert_eq!((outcome, values.len()), (Outcome::Retry(Errno::NODEV), 0));
        assert_eq!(sources.read("nvidia/0").0, Outcome::Read);
    }
    let names = machine.open(&["node.gpu.power"]).names().len();
    assert_eq!(names, 3, "it stays in the list: two GPUs and the watch");
    machine.set(&[("1.lost", ""), ("1.power", "70000")]);
    assert_eq!(sources.read("nvidia/1"), (Outcome::Read, second(70.0)));
}

#[test]
fn a_gpu_that_does_not_answer_delays_no_other_source() {
    let mut machine = Machine::new(TWO_GPUS);
    let metrics = ["node.gpu.utilization", "node.thermal.temperature"];
    let zone = machine.root.path().join("sys/class/thermal/thermal_zone0");
    fs::create_dir_all(&zone).unwrap();
    fs::write(zone.join("temp"), "45500\n").unwrap();
    machine.open_when_listed(&metrics);
    wait_until("both GPUs", || machine.open(&metrics).names().contains(&"nvidia/1"));
    let (sources, others) = (machine.open(&metrics), machine.open(&metrics));
    machine.set(&[("1.utilization", "hang")]);
    sources.request("nvidia/1");
    wait_until("the call hangs", || machine.has_hanging_call());
    for name in ["nvidia/0", "sys/class/thermal/thermal_zone*"] {
        let (outcome, values) = sources.read(name);
        assert_eq!((outcome, values.len()), (Outcome::Read, 1), "{name}");
    }
    // Another reader of the same GPU does not hang, too.
    assert_eq!(others.read("nvidia/1"), (Outcome::Retry(Errno::TIMEDOUT), BTreeMap::new()));
    assert!(sources.threaded("nvidia/1").take_finished().is_none());
    machine.set(&[("1.utilization", "55")]);
    let value = BTreeMap::from([("node.gpu.utilization{gpu=1,uuid=GPU-b}".to_owned(), 55.0)]);
    assert_eq!(sources.finish("nvidia/1"), (Outcome::Read, value.clone()));
    assert_eq!(others.read("nvidia/1"), (Outcome::Read, value));
}

#[test]
fn a_driver_that_hangs_while_it_is_loaded_stops_no_opening() {
    let mut machine =
        Machine::new(&[("init", "hang"), ("gpus", "1"), ("0.uuid", "GPU-a"), ("0.power", "1000")]);
    for _ in 0..10 {
        let sources = machine.open(&["node.gpu.power"]);
        assert_eq!(sources.reasons(), ["the NVIDIA driver has not answered yet"].into());
    }
    let mut sources = machine.open(&["node.gpu.power"]);
    machine.set(&[("init", "")]);
    sources.wait_for_change();
    assert_eq!(machine.open_when_listed(&["node.gpu.power"]).read("nvidia/0").1.len(), 1);
}

#[test]
fn a_library_that_is_installed_later_is_noticed() {
    let mut machine = Machine::without_library();
    let mut sources = machine.open_when_listed(&["node.gpu.power"]);
    assert_eq!(sources.reasons(), ["no NVIDIA driver: libnvidia-ml.so.1 is not installed"].into());
    assert_eq!(sources.names(), ["nvidia"], "the watch only");
    machine.set(ONE_GPU);
    machine.install();
    sources.wait_for_change();
    wait_until("GPU", || machine.open(&["node.gpu.power"]).names().contains(&"nvidia/0"));
}

#[test]
fn a_driver_that_refuses_is_the_reason() {
    let machine = Machine::new(&[("init", "error 9")]);
    let sources = machine.open_when_listed(&["node.gpu.power"]);
    let library = machine.root.path().join("usr/lib64/libnvidia-ml.so.1");
    let reason = format!("NVIDIA driver: {}: NVIDIA driver is not loaded", library.display());
    assert_eq!(sources.reasons(), [reason.as_str()].into());
    let machine = Machine::new(&[("gpus", "0")]);
    let sources = machine.open_when_listed(&["node.gpu.power"]);
    assert_eq!(sources.reasons(), ["the NVIDIA driver lists no GPU"].into());
}

#[test]
fn critical_errors_are_counted_by_events() {
    let mut machine =
        Machine::new(&[("gpus", "1"), ("0.uuid", "GPU-a"), ("0.events", "1"), ("0.xids", "13")]);
    let sources = machine.open_when_listed(&["node.gpu.xid.*"]);
    let errors = |count: f64| ("node.gpu.xid.errors{gpu=0,uuid=GPU-a}".to_owned(), count);
    let last = |xid: f64| ("node.gpu.xid.last{gpu=0,uuid=GPU-a}".to_owned(), xid);
    assert_eq!(
        sources.read("nvidia/0"),
        (Outcome::Read, [errors(0.0)].into()),
        "earlier errors are not known"
    );
    machine.set(&[("0.xids", "13,79,48")]);
    assert_eq!(sources.read("nvidia/0").1, [errors(2.0), last(48.0)].into());
    // The count survives the opening of sources anew.
    drop(sources);
    assert_eq!(machine.open(&["node.gpu.xid.*"]).read("nvidia/0").1, [errors(2.0), last(48.0)].into());
}

#[test]
fn the_error_by_which_a_gpu_is_lost_is_counted_while_it_is_lost() {
    let mut machine =
        Machine::new(&[("gpus", "1"), ("0.uuid", "GPU-a"), ("0.power", "1000"), ("0.events", "1")]);
    let sources = machine.open_when_listed(&["node.gpu.xid.*", "node.gpu.power"]);
    let value = |name: &str, value: f64| (format!("node.gpu.{name}{{gpu=0,uuid=GPU-a}}"), value);
    let whole = |errors: f64| [value("power", 1.0), value("xid.errors", errors)];
    assert_eq!(sources.read("nvidia/0"), (Outcome::Read, whole(0.0).into()));
    machine.set(&[("0.xids", "79"), ("0.lost", "1")]);
    let lost = [value("xid.errors", 1.0), value("xid.last", 79.0)];
    for _ in 0..2 {
        assert_eq!(sources.read("nvidia/0"), (Outcome::Read, lost.clone().into()));
    }
    machine.set(&[("0.lost", "")]);
    let returned = whole(1.0).into_iter().chain([value("xid.last", 79.0)]).collect();
    assert_eq!(sources.read("nvidia/0"), (Outcome::Read, returned));
}

#[test]
fn gpm_is_computed_between_two_readings() {
    let mut machine = Machine::new(&[
        ("gpus", "1"),
        ("0.uuid", "GPU-a"),
        ("0.gpm", "1"),
        ("0.gpm.2", "10"),
        ("0.gpm.10", "1.5"),
        ("0.mig_count", "1"),
        ("0.mig.0.uuid", "MIG-a"),
        ("0.mig.0.instance", "3"),
        ("0.mig.0.gpm.2", "5"),
    ]);
    let sources = machine.open_when_listed(&["node.gpu.gpm.*"]);
    assert_eq!(sources.read("nvidia/0"), (Outcome::Read, BTreeMap::new()), "there is no interval yet");
    machine.set(&[("0.gpm.2", "65.5"), ("0.gpm.10", "13.75"), ("0.mig.0.gpm.2", "25")]);
    let expected = [
        ("node.gpu.gpm.sm.active{gpu=0,uuid=GPU-a}".to_owned(), 55.5),
        ("node.gpu.gpm.memory.bandwidth{gpu=0,uuid=GPU-a}".to_owned(), 12.25),
        ("node.gpu.gpm.sm.active{gpu=0,mig=3,uuid=MIG-a}".to_owned(), 20.0),
    ];
    assert_eq!(sources.read("nvidia/0"), (Outcome::Read, expected.into()));
}

#[test]
fn any_uuid_is_a_label() {
    let machine = Machine::new(&[("gpus", "1"), ("0.uuid", "GPU<a>"), ("0.power", "1000")]);
    let sources = machine.open_when_listed(&["node.gpu.power"]);
    assert_eq!(sources.read("nvidia/0").1, [("node.gpu.power{gpu=0,uuid=GPU<a>}".to_owned(), 1.0)].into());
}

/// Drivers before 510 have older forms of some calls; others are looked up in other ways.
#[test]
fn the_calls_of_an_older_driver_give_the_same_values() {
    let more = [
        ("0.mig_count", "1"),
        ("0.mig.0.uuid", "MIG-a"),
        ("0.mig.0.instance", "3"),
        ("0.mig.0.memory_used", "1"),
        ("0.mig.0.memory_total", "2"),
    ];
    let text = [ALL_QUANTITIES, &more].concat();
    let read = |machine: Machine| {
        let (outcome, values) = machine.open_when_listed(&["node.gpu.*"]).read("nvidia/0");
        assert_eq!(outcome, Outcome::Read);
        values
    };
    let values = read(Machine::with_older_driver(&text));
    for name in [
        "memory.used{gpu=0,uuid=GPU-a}",
        "memory.used{gpu=0,mig=3,uuid=MIG-a}",
        "processes{gpu=0,uuid=GPU-a}",
        "throttled{gpu=0,reason=power_cap,uuid=GPU-a}",
    ] {
        assert!(values.contains_key(&format!("node.gpu.{name}")), "{name}: {values:?}");
    }
    assert_eq!(values, read(Machine::new(&text)));
}
