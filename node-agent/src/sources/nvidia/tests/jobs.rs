//! Tests of the GPUs of jobs.

use std::collections::BTreeMap;

use super::machine::{Machine, Sources, wait_until};
use crate::sources::nvidia::driver::Driver;
use crate::sources::{Outcome, Target};

/// Three GPUs, the last of which has two MIG devices.
const GPUS: &[(&str, &str)] = &[
    ("gpus", "3"),
    ("0.uuid", "GPU-a"),
    ("1.uuid", "GPU-b"),
    ("2.uuid", "GPU-c"),
    ("0.power", "100000"),
    ("1.power", "200000"),
    ("2.power", "300000"),
    ("2.mig_count", "2"),
    ("2.mig.0.uuid", "MIG-x"),
    ("2.mig.0.instance", "1"),
    ("2.mig.0.memory_used", "11"),
    ("2.mig.0.memory_total", "50"),
    ("2.mig.1.uuid", "MIG-y"),
    ("2.mig.1.instance", "2"),
    ("2.mig.1.memory_used", "22"),
    ("2.mig.1.memory_total", "50"),
];

fn machine(more: &[(&str, &str)]) -> Machine {
    let machine = Machine::new(&[GPUS, more].concat()).hurried();
    machine.open_when_listed(&["node.gpu.power"]);
    wait_until("all GPUs", || machine.open(&["node.gpu.power"]).names().contains(&"nvidia/2"));
    machine
}

fn series(sources: &Sources) -> Vec<String> {
    let slots = sources.opened.iter().flat_map(|opened| opened.source.slots());
    slots.map(|slot| format!("{}{{{}}}", slot.definition.name(), slot.labels)).collect()
}

/// Opens a job's sources anew until it has GPUs.
fn open_when_found(machine: &Machine, job: &Target, selectors: &[&str]) -> Sources {
    let mut sources = machine.open_target(job, None, selectors);
    while series(&sources).is_empty() {
        sources.wait_for_change();
        sources = machine.open_target(job, None, selectors);
    }
    sources
}

#[test]
fn the_gpus_that_the_scheduler_names_are_the_jobs_at_once() {
    let machine = machine(&[]);
    let job = machine.add_job("a", 100, &[]);
    let other = machine.add_job("b", 200, &[]);
    let sources = machine.open_target(&job, Some("1,7,2"), &["gpu.power"]);
    assert_eq!(
        series(&sources),
        ["gpu.power{gpu=1,uuid=GPU-b}"],
        "no GPU with MIG devices, and none that is missing"
    );
    let value = BTreeMap::from([("gpu.power{gpu=1,uuid=GPU-b}".to_owned(), 200.0)]);
    assert_eq!(sources.read("nvidia/1"), (Outcome::Read, value));
    let sources = machine.open_target(&job, Some("GPU-a,MIG-x"), &["gpu.power", "gpu.memory.used"]);
    let expected = [
        "gpu.power{gpu=0,uuid=GPU-a}",
        "gpu.memory.used{gpu=0,uuid=GPU-a}",
        "gpu.memory.used{gpu=2,mig=1,uuid=MIG-x}",
    ];
    assert_eq!(series(&sources), expected);
    let sources = machine.open_target(&other, None, &["gpu.power"]);
    assert_eq!(series(&sources), [""; 0]);
    assert_eq!(sources.reasons(), ["no NVIDIA GPU of this node is known to be the job's"].into());
}

#[test]
fn numbers_of_schedulers_are_those_of_device_files() {
    // The driver lists the GPUs by their buses, in another order than that of their device files.
    let minors = [("0.minor", "3"), ("1.minor", "0"), ("2.minor", "1")];
    let more = [("gpus", "5"), ("3.uuid", "GPU-cd"), ("3.minor", "2"), ("4.uuid", "GPU-ce")];
    let machine = machine(&[&minors[..], &more].concat());
    wait_until("all GPUs", || machine.open(&["node.gpu.power"]).names().contains(&"nvidia/4"));
    let job = machine.add_job("plain", 100, &[]);
    for (list, uuid) in [("0", "GPU-b"), ("3", "GPU-a"), ("GPU-a", "GPU-a"), ("GPU-cd", "GPU-cd")] {
        let found = machine.open_target(&job, Some(list), &["gpu.power"]);
        assert!(series(&found).iter().all(|series| series.contains(&format!("uuid={uuid}"))), "{list}");
        assert_eq!(series(&found).len(), 1, "{list}");
    }
    let [a, b, cd] = ["gpu=0,uuid=GPU-a", "gpu=1,uuid=GPU-b", "gpu=3,uuid=GPU-cd"];
    for (list, expected) in [("0-3", vec![a, b, cd]), ("3,0-1", vec![a, b]), ("GPU-a,2-2,9-7", vec![a, cd])] {
        let found = series(&machine.open_target(&job, Some(list), &["gpu.power"]));
        assert_eq!(
            found,
            expected.iter().map(|gpu| format!("gpu.power{{{gpu}}}")).collect::<Vec<_>>(),
            "{list}"
        );
    }
    for (list, uuid) in [("MIG-GPU-c/2/0", Some("uuid=MIG-y")), ("GPU-", None), ("MIG-", None)] {
        let job = machine.add_job("named", 100, &[]);
        let found = series(&machine.open_target(&job, Some(list), &["gpu.memory.used", "gpu.power"]));
        assert_eq!(found.is_empty(), uuid.is_none(), "{list} is of one device, or of several");
        assert!(uuid.is_none_or(|uuid| found.join(" ").contains(uuid)), "the form of earlier drivers");
    }
    let by_slurm = machine.add_job("slurm", 200, &["SLURM_STEP_GPUS=3", "SLURM_JOB_GPUS=0,3"]);
    assert_eq!(
        series(&open_when_found(&machine, &by_slurm, &["gpu.power"])),
        ["gpu.power{gpu=0,uuid=GPU-a}"]
    );
    let by_cuda = machine.add_job("cuda", 300, &["CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(
        series(&open_when_found(&machine, &by_cuda, &["gpu.power"])),
        ["gpu.power{gpu=1,uuid=GPU-b}"],
        "in the order of the driver"
    );
}

#[test]
fn a_gpu_that_a_process_of_the_job_uses_is_the_jobs() {
    let machine = machine(&[
        ("0.processes", "100:1000,300:50"),
        ("0.process_utilization", "100:30:10,300:5:1"),
        ("1.processes", "200:1"),
        ("2.processes", "100:7"),
        ("2.mig.1.processes", "100:7"),
    ]);
    let job = machine.add_job("a", 100, &[]);
    let metrics = ["gpu.process.*", "gpu.power"];
    let sources = open_when_found(&machine, &job, &metrics);
    let (outcome, values) = sources.read("nvidia/0");
    let expected = [
        ("gpu.power{gpu=0,uuid=GPU-a}".to_owned(), 100.0),
        ("gpu.process.count{gpu=0,uuid=GPU-a}".to_owned(), 1.0),
        ("gpu.process.memory{gpu=0,uuid=GPU-a}".to_owned(), 1000.0),
        ("gpu.process.utilization{gpu=0,uuid=GPU-a}".to_owned(), 30.0),
    ];
    assert_eq!((outcome, values), (Outcome::Read, expected.into()));
    assert!(!sources.names().contains(&"nvidia/1"), "that is of another job");
    // Of a GPU with MIG devices, the job has the device only.
    let (_, values) = sources.read("nvidia/2");
    let keys: Vec<&str> = values.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["gpu.process.count{gpu=2,mig=2,uuid=MIG-y}", "gpu.process.memory{gpu=2,mig=2,uuid=MIG-y}"]
    );
    assert_eq!(values["gpu.process.memory{gpu=2,mig=2,uuid=MIG-y}"], 7.0);
}

#[test]
fn an_environment_gives_no_gpu_that_another_job_has() {
    let machine = machine(&[("0.processes", "100:1000")]);
    let owner = machine.add_job("owner", 100, &[]);
    let claimant = machine.add_job("claimant", 200, &["SLURM_JOB_GPUS=0,1", "HOME=/"]);
    // The owner's GPU is known before the other job comes.
    let owned = open_when_found(&machine, &owner, &["gpu.power"]);
    assert_eq!(series(&owned), ["gpu.power{gpu=0,uuid=GPU-a}"]);
    let claimed = open_when_found(&machine, &claimant, &["gpu.power"]);
    assert_eq!(series(&claimed), ["gpu.power{gpu=1,uuid=GPU-b}"]);
}

#[test]
fn jobs_without_sources_are_forgotten() {
    let machine = machine(&[]);
    let job = machine.add_job("a", 100, &["CUDA_VISIBLE_DEVICES=1"]);
    let sources = open_when_found(&machine, &job, &["gpu.power"]);
    assert_eq!(series(&sources), ["gpu.power{gpu=1,uuid=GPU-b}"]);
    assert_eq!(Driver::of(machine.root.path()).jobs(), 1);
    drop(sources);
    wait_until("end of the source's thread", || Driver::of(machine.root.path()).jobs() == 0);
}

/// The driver may list the processes of MIG devices for the whole GPU only.
#[test]
fn eight_mig_devices_of_a_gpu_belong_to_eight_jobs() {
    let mut text: Vec<(String, String)> = vec![];
    let mut set = |key: String, value: String| text.push((key, value));
    set("gpus".into(), "1".into());
    set("0.uuid".into(), "GPU-a".into());
    set("0.mig_count".into(), "8".into());
    for number in 0..8_u32 {
        set(format!("0.mig.{number}.uuid"), format!("MIG-{number}"));
        set(format!("0.mig.{number}.instance"), (number + 7).to_string());
        set(format!("0.mig.{number}.memory_used"), (1000 + number).to_string());
        set(format!("0.mig.{number}.memory_total"), "5000".to_owned());
    }
    let processes = (0..8).map(|number| format!("{}:{}:{}", 100 + number, 500 + number, number + 7));
    set("0.processes".into(), processes.collect::<Vec<_>>().join(","));
    let text: Vec<(&str, &str)> = text.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let machine = Machine::new(&text).hurried();
    machine.open_when_listed(&["node.gpu.memory.used"]);
    let metrics = ["gpu.memory.used", "gpu.process.memory", "gpu.process.count"];
    for number in 0..8_u32 {
        let job = machine.add_job(&format!("job_{number}"), 100 + number, &[]);
        let sources = open_when_found(&machine, &job, &metrics);
        let (outcome, values) = sources.read("nvidia/0");
        let labels = format!("{{gpu=0,mig={},uuid=MIG-{number}}}", number + 7);
        let expected = [
            (format!("gpu.memory.used{labels}"), f64::from(1000 + number)),
            (format!("gpu.process.memory{labels}"), f64::from(500 + number)),
            (format!("gpu.process.count{labels}"), 1.0),
        ];
        assert_eq!((outcome, values), (Outcome::Read, expected.into()), "{number}");
    }
}
