//! Tests of the sources of a simulated machine: files with several wildcards, and file systems.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use polymeter_agent::cgroups::Mounts;
use polymeter_agent::counters::Counters;
use polymeter_agent::sources::{Opened, Source, SourceFactory, Target, Unavailable};
use polymeter_proto::catalogue;

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Creates a machine with the devices of the fixtures, and the mounts of `mountinfo`.
fn machine(mountinfo: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    copy_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs"), root.path());
    fs::create_dir_all(root.path().join("proc/self")).unwrap();
    fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
    root
}

fn open(root: &Path, selector: &str) -> (Vec<Opened>, Vec<Unavailable>) {
    let mounts = Mounts::read(root).unwrap();
    let factory =
        SourceFactory { mounts: &mounts, cpus: &[], perf_descriptors: 0, first_perf_group: 0, step: None };
    let definitions = catalogue::select(&selector.parse().unwrap());
    factory.open(&Target::Node(Arc::new(Counters::default())), &definitions)
}

/// Returns the names of the sources that a thread reads, each with its series.
fn threaded(opened: &[Opened]) -> BTreeMap<&str, BTreeSet<String>> {
    let threaded = opened.iter().filter(|opened| matches!(opened.source, Source::Threaded(_)));
    let series = |opened: &Opened| {
        let slots = opened.source.slots().iter();
        slots.map(|slot| format!("{}{{{}}}", slot.definition.name(), slot.labels)).collect()
    };
    threaded.map(|opened| (opened.name.as_str(), series(opened))).collect()
}

#[test]
fn ports_of_infiniband_are_sources_of_the_slow_lane() {
    let root = machine("");
    let (opened, unavailable) = open(root.path(), "node.infiniband.*");
    assert_eq!(unavailable, []);
    let ports = threaded(&opened);
    assert_eq!(
        ports.keys().copied().collect::<Vec<_>>(),
        [
            "sys/class/infiniband/hfi1_0/ports/1/counters",
            "sys/class/infiniband/mlx5_0/ports/1/counters",
            "sys/class/infiniband/mlx5_1/ports/1/counters"
        ]
    );
    let series = &ports["sys/class/infiniband/mlx5_0/ports/1/counters"];
    assert_eq!(series.len(), 9);
    assert!(series.contains("node.infiniband.receive.bytes{device=mlx5_0,port=1}"), "{series:?}");
    assert_eq!(ports["sys/class/infiniband/hfi1_0/ports/1/counters"].len(), 2, "what the device has");
}

#[test]
fn sensors_have_a_label_for_each_wildcard() {
    let root = machine("");
    let (opened, unavailable) = open(root.path(), "node.hwmon.*");
    assert_eq!(unavailable, []);
    let all: BTreeSet<String> = threaded(&opened).into_values().flatten().collect();
    let expected = ["hwmon=0,sensor=1", "hwmon=0,sensor=2", "hwmon=3,sensor=1", "hwmon=3,sensor=12"];
    assert_eq!(all, expected.map(|labels| format!("node.hwmon.temperature{{{labels}}}")).into());
}

#[test]
fn a_device_that_is_added_later_is_noticed() {
    let root = machine("");
    fs::remove_dir_all(root.path().join("sys/class/infiniband")).unwrap();
    let (opened, unavailable) = open(root.path(), "node.infiniband.receive.bytes");
    assert_eq!(unavailable[0].to_string(), "node.infiniband.receive.bytes: this node has no such device");
    let [mut watch] = <[Opened; 1]>::try_from(opened).unwrap();
    assert!(watch.source.slots().is_empty());
    let mut read = || {
        let (mut buffer, mut reading) = Default::default();
        watch.source.read(&mut buffer, &mut reading)
    };
    assert_eq!(read(), polymeter_agent::sources::Outcome::Read);
    copy_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs"), root.path());
    assert_eq!(read(), polymeter_agent::sources::Outcome::Changed);
}

#[test]
fn each_file_system_is_a_source() {
    let root = machine(
        "28 1 8:2 / / rw - ext4 /dev/sda2 rw\n\
         30 28 0:5 / /proc rw - proc proc rw\n\
         41 28 0:50 / /mnt/a\\040b rw - nfs4 server:/a rw\n",
    );
    let (opened, unavailable) = open(root.path(), "node.filesystem.*");
    assert_eq!(unavailable, []);
    let mounts = threaded(&opened);
    assert_eq!(mounts.keys().copied().collect::<Vec<_>>(), ["filesystem/", "filesystem/mnt/a b"]);
    assert!(mounts["filesystem/mnt/a b"].contains("node.filesystem.size{mount=/mnt/a b}"));
    assert_eq!(mounts["filesystem/"].len(), 5);
}
