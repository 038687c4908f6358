//! Tests of a driver whose calls hang, each in turn, and of one that is loaded again.

use std::collections::BTreeMap;
use std::fs;

use rustix::io::Errno;

use super::machine::{Machine, wait_until};
use super::{ALL_QUANTITIES, TWO_GPUS};
use crate::sources::Outcome;

/// Answers of a GPU beyond those with a value of their own.
const FURTHER: &[(&str, &str)] = &[
    ("0.gpm", "1"),
    ("0.gpm.2", "10"),
    ("0.events", "1"),
    ("0.xids", "13"),
    ("1.uuid", "GPU-b"),
    ("1.power", "61500"),
];

/// Answers that no later reading asks for.
const OF_BEGINS: [&str; 2] = ["0.uuid", "0.events"];

#[test]
fn a_hanging_call_of_any_kind_stops_one_source() {
    let mut machine = Machine::new(&[ALL_QUANTITIES, FURTHER, &[("gpus", "2")]].concat());
    let zone = machine.root.path().join("sys/class/thermal/thermal_zone0");
    fs::create_dir_all(&zone).unwrap();
    fs::write(zone.join("temp"), "45500\n").unwrap();
    let metrics = ["node.gpu.*", "node.thermal.temperature"];
    machine.open_when_listed(&metrics);
    wait_until("both GPUs", || machine.open(&metrics).names().contains(&"nvidia/1"));
    let (sources, others) = (machine.open(&metrics), machine.open(&metrics));
    let whole = sources.read("nvidia/0");
    assert_eq!(whole.0, Outcome::Read);
    let answers = ALL_QUANTITIES.iter().chain(FURTHER);
    let of_readings = answers.filter(|(key, _)| key.starts_with("0.") && !OF_BEGINS.contains(key));
    for (key, answer) in of_readings {
        machine.set(&[(key, "hang")]);
        sources.request("nvidia/0");
        wait_until(key, || machine.has_hanging_call());
        // Neither the other GPU nor another device waits, nor an opening, nor another reader of the same GPU.
        assert_eq!(others.read("nvidia/1").1["node.gpu.power{gpu=1,uuid=GPU-b}"], 61.5, "{key}");
        assert_eq!(others.read("sys/class/thermal/thermal_zone*").1.len(), 1, "{key}");
        assert!(machine.open(&metrics).names().contains(&"nvidia/0"), "{key}");
        assert_eq!(others.read("nvidia/0"), (Outcome::Retry(Errno::TIMEDOUT), BTreeMap::new()), "{key}");
        assert!(sources.threaded("nvidia/0").take_finished().is_none(), "{key}");
        machine.set(&[(key, answer)]);
        assert_eq!(sources.finish("nvidia/0").0, Outcome::Read, "{key}");
        assert_eq!(others.read("nvidia/0").0, Outcome::Read, "{key}");
        machine.forget_hanging_calls();
    }
}

#[test]
fn a_hanging_list_of_gpus_stops_no_reading() {
    let mut machine = Machine::new(TWO_GPUS).hurried();
    machine.open_when_listed(&["node.gpu.power"]);
    wait_until("both GPUs", || machine.open(&["node.gpu.power"]).names().contains(&"nvidia/1"));
    let sources = machine.open(&["node.gpu.power"]);
    for name in ["nvidia/0", "nvidia/1"] {
        assert_eq!(sources.read(name).1.len(), 1, "{name}");
    }
    machine.set(&[("gpus", "hang")]);
    wait_until("the list hangs", || machine.has_hanging_call());
    for name in ["nvidia/0", "nvidia/1"] {
        assert_eq!(sources.read(name).1.len(), 1, "{name}");
    }
    assert_eq!(machine.open(&["node.gpu.power"]).names().len(), 3, "two GPUs and the watch");
    machine.set(&[("gpus", "2")]);
    assert_eq!(sources.read("nvidia/0").1.len(), 1);
}

/// An error in place of each answer: a value is absent then, and never of another call.
#[test]
fn an_error_of_any_call_is_no_value() {
    let mut machine = Machine::new(ALL_QUANTITIES);
    let sources = machine.open_when_listed(&["node.gpu.*"]);
    let (_, whole) = sources.read("nvidia/0");
    for (key, answer) in ALL_QUANTITIES.iter().filter(|(key, _)| key.starts_with("0.") && *key != "0.uuid") {
        // Not permitted, in use, unknown.
        for error in ["error 4", "error 19", "error 999"] {
            machine.set(&[(key, error)]);
            let (outcome, values) = sources.read("nvidia/0");
            assert_eq!(outcome, Outcome::Read, "{key} {error}");
            assert!(values.len() < whole.len(), "{key} {error}: {values:?}");
            assert!(
                values.iter().all(|(series, value)| whole[series] == *value),
                "{key} {error}: {values:?}"
            );
        }
        machine.set(&[(key, answer)]);
    }
    assert_eq!(sources.read("nvidia/0"), (Outcome::Read, whole));
}

#[test]
fn a_driver_that_is_loaded_again_is_used_without_a_restart() {
    let mut machine = Machine::new(TWO_GPUS).hurried();
    machine.open_when_listed(&["node.gpu.power"]);
    wait_until("both GPUs", || machine.open(&["node.gpu.power"]).names().contains(&"nvidia/1"));
    let sources = machine.open(&["node.gpu.power"]);
    for driver in ["1", "2"] {
        assert_eq!(sources.read("nvidia/1").1.len(), 1);
        machine.set(&[("driver", driver), ("init", "error 9")]);
        assert_eq!(sources.read("nvidia/1"), (Outcome::Retry(Errno::NODEV), BTreeMap::new()), "{driver}");
        assert_eq!(machine.open(&["node.gpu.power"]).names().len(), 3, "they stay in the list");
        machine.set(&[("init", "")]);
        wait_until("return of the GPUs", || sources.read("nvidia/1").1.len() == 1);
        assert_eq!(sources.read("nvidia/0").0, Outcome::Read);
    }
}
