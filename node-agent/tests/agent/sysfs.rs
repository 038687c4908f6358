//! Tests of the sources of a simulated machine: files with several wildcards, and file systems.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use polymeter_agent::sources::{Opened, Outcome, Source};
use polymeter_service::clock;

use crate::machine::{copy_tree, machine, open, threaded};

#[test]
fn sensors_have_a_label_for_each_wildcard() {
    let root = machine("");
    let (opened, unavailable) = open(root.path(), "node.hwmon.temperature");
    assert_eq!(unavailable, []);
    let all: BTreeSet<String> = threaded(&opened).into_values().flatten().collect();
    let expected = ["hwmon=0,sensor=1", "hwmon=0,sensor=2", "hwmon=3,sensor=1", "hwmon=3,sensor=12"];
    assert_eq!(all, expected.map(|labels| format!("node.hwmon.temperature{{{labels}}}")).into());
}

fn read(watch: &mut Opened) -> Outcome {
    let (mut buffer, mut reading) = Default::default();
    watch.source.read(&mut buffer, &mut reading)
}

#[test]
fn a_device_that_is_added_later_is_noticed() {
    let root = machine("");
    fs::remove_dir_all(root.path().join("sys/class/infiniband")).unwrap();
    let (opened, unavailable) = open(root.path(), "node.infiniband.receive.bytes");
    assert_eq!(unavailable[0].to_string(), "node.infiniband.receive.bytes: this node has no such device");
    let [mut watch] = <[Opened; 1]>::try_from(opened).unwrap();
    assert!(watch.source.slots().is_empty());
    assert_eq!(read(&mut watch), Outcome::Read);
    copy_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs"), root.path());
    assert_eq!(read(&mut watch), Outcome::Changed);
}

#[test]
fn a_file_without_wildcards_that_appears_later_is_noticed() {
    let root = machine("");
    let file = root.path().join("proc/loadavg");
    fs::remove_file(&file).unwrap_or_default();
    let (opened, unavailable) = open(root.path(), "node.load1");
    assert_eq!(unavailable.len(), 1);
    let [mut watch] = <[Opened; 1]>::try_from(opened).unwrap();
    assert_eq!(read(&mut watch), Outcome::Read);
    fs::write(&file, "").unwrap();
    assert_eq!(read(&mut watch), Outcome::Changed);
    // It is there, and cannot be read yet.
    let (opened, unavailable) = open(root.path(), "node.load1");
    assert!(opened.is_empty() && unavailable[0].may_recover, "{unavailable:?}");
    fs::write(&file, "0.25 0.50 0.75 1/100 1\n").unwrap();
    assert_eq!(open(root.path(), "node.load1").1, []);
}

#[test]
fn thousands_of_files_of_a_wildcard_are_read() {
    let root = machine("");
    for zone in 0..3000 {
        let zone = root.path().join(format!("sys/class/thermal/thermal_zone{zone}"));
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("temp"), "41000\n").unwrap();
    }
    let (opened, unavailable) = open(root.path(), "node.thermal.temperature");
    assert_eq!(unavailable, []);
    assert_eq!(threaded(&opened).values().map(BTreeSet::len).sum::<usize>(), 3000);
}

#[test]
fn a_metric_without_a_line_has_a_reason_until_the_line_comes() {
    let root = machine("");
    let stat = root.path().join("proc/stat");
    fs::write(&stat, "").unwrap();
    let (opened, unavailable) = open(root.path(), "node.co*");
    let reason = format!("node.context_switches: {}: the file is empty", stat.display());
    assert_eq!(unavailable.iter().map(ToString::to_string).collect::<Vec<_>>(), [reason]);
    assert!(opened.iter().all(|opened| opened.source.slots().is_empty()));
    // Each CPU has a line, so that the file is read although it has none yet.
    let (mut opened, unavailable) = open(root.path(), "node.c*");
    assert!(
        unavailable.iter().any(|unavailable| unavailable.definition.metric.name == "node.context_switches")
    );
    assert!(
        !unavailable.iter().any(|unavailable| unavailable.definition.metric.name == "node.cpu.user.per_cpu")
    );
    let file = opened.iter_mut().find(|opened| opened.name == "proc/stat").unwrap();
    let (mut buffer, mut reading) = Default::default();
    assert_eq!(file.source.read(&mut buffer, &mut reading), polymeter_agent::sources::Outcome::Read);
    fs::write(&stat, "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nctxt 99\n").unwrap();
    assert_eq!(file.source.read(&mut buffer, &mut reading), polymeter_agent::sources::Outcome::Changed);
    assert_eq!(open(root.path(), "node.context_switches").1, []);
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

#[test]
fn sensors_are_named_by_the_texts_of_their_chip() {
    let root = machine("");
    let chip = root.path().join("sys/class/hwmon/hwmon0");
    fs::write(chip.join("name"), "k10temp\n").unwrap();
    fs::write(chip.join("temp1_label"), "Tctl\n").unwrap();
    // Texts that are empty or not UTF-8 are no labels; one with a quotation mark is.
    fs::write(chip.join("temp2_label"), b"CPU\xff\n").unwrap();
    fs::write(root.path().join("sys/class/hwmon/hwmon3/name"), "a\"b\n").unwrap();
    fs::write(root.path().join("sys/class/hwmon/hwmon3/temp1_label"), "\n").unwrap();
    let (opened, _) = open(root.path(), "node.hwmon.temperature");
    let all: BTreeSet<String> = threaded(&opened).into_values().flatten().collect();
    let expected = [
        "chip=a\"b,hwmon=3,sensor=1",
        "chip=a\"b,hwmon=3,sensor=12",
        "chip=k10temp,hwmon=0,name=Tctl,sensor=1",
        "chip=k10temp,hwmon=0,sensor=2",
    ];
    assert_eq!(all, expected.map(|labels| format!("node.hwmon.temperature{{{labels}}}")).into());
}

#[test]
fn files_of_many_devices_share_a_thread() {
    let root = machine("");
    fs::write(root.path().join("sys/class/thermal/thermal_zone0/type"), "x86_pkg_temp\n").unwrap();
    let (opened, unavailable) = open(root.path(), "node.thermal.*");
    assert_eq!(unavailable, []);
    assert_eq!(
        threaded(&opened),
        [(
            "sys/class/thermal/thermal_zone*",
            ["node.thermal.temperature{type=x86_pkg_temp,zone=0}", "node.thermal.temperature{zone=10}"]
                .map(str::to_owned)
                .into()
        )]
        .into()
    );
    let (opened, unavailable) = open(root.path(), "node.cpu.*.thermal.*");
    assert_eq!(unavailable, []);
    let throttling = threaded(&opened);
    assert_eq!(throttling.keys().collect::<Vec<_>>(), [&"sys/devices/system/cpu/cpu*/thermal_throttle"]);
    assert_eq!(throttling.values().flatten().count(), 4);
    let (opened, _) = open(root.path(), "node.cpu.frequency");
    assert_eq!(threaded(&opened)["sys/devices/system/cpu/cpu*/cpufreq"].len(), 2);
}

#[test]
fn a_node_without_a_controller_of_cray_has_no_source_of_it() {
    let root = machine("");
    let (opened, unavailable) = open(root.path(), "node.cray.*");
    assert_eq!(unavailable, []);
    assert_eq!(threaded(&opened)["sys/cray/pm_counters"].len(), 11);
    fs::remove_dir_all(root.path().join("sys/cray")).unwrap();
    let (opened, unavailable) = open(root.path(), "node.cray.*");
    assert_eq!((threaded(&opened).len(), unavailable.len()), (0, 11));
    assert!(unavailable.iter().all(|unavailable| unavailable.reason == "this node has no such device"));
}

#[test]
fn zones_of_powercap_count_energy() {
    let root = machine("");
    let (_, unavailable) = open(root.path(), "node.energy.*");
    assert_eq!(unavailable.len(), 5);
    assert_eq!(
        unavailable[0].reason,
        "perf power/energy-pkg/: this kernel has no PMU `power`; powercap has no zone `package`"
    );
    for (zone, name) in [
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "dram"),
        ("intel-rapl:1", "package-1"),
        ("intel-rapl-mmio:0", "package-0"),
    ] {
        let zone = root.path().join("sys/class/powercap").join(zone);
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), format!("{name}\n")).unwrap();
        fs::write(zone.join("energy_uj"), "1000\n").unwrap();
        fs::write(zone.join("max_energy_range_uj"), "262143328850\n").unwrap();
    }
    let (opened, unavailable) = open(root.path(), "node.energy.*");
    assert_eq!(unavailable.len(), 3);
    let series = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(
        threaded(&opened),
        [
            ("rapl/memory", series(&["node.energy.memory{package=0}"])),
            ("rapl/package", series(&["node.energy.package{package=0}", "node.energy.package{package=1}"])),
        ]
        .into()
    );
    wait_for_intervals(&opened, &[("rapl/memory", Some("1ms")), ("rapl/package", Some("1ms"))]);
    assert!(
        opened.iter().all(|opened| opened.source.is_lasting()),
        "no energy is lost when others are opened anew"
    );
}

/// Waits until the sources of the slow lane have these refresh intervals. A thread reads them after the
/// opening.
fn wait_for_intervals(opened: &[Opened], expected: &[(&str, Option<&str>)]) {
    let expected: BTreeMap<&str, Option<String>> =
        expected.iter().map(|(name, interval)| (*name, interval.map(str::to_owned))).collect();
    let until_ns = clock::monotonic_ns() + 60_000_000_000;
    loop {
        let threaded = opened.iter().filter(|opened| matches!(opened.source, Source::Threaded(_)));
        let intervals = threaded.map(|opened| {
            let interval = opened.source.refresh_interval().get();
            (opened.name.as_str(), interval.map(|interval| interval.to_string()))
        });
        let found: BTreeMap<_, _> = intervals.collect();
        if found == expected {
            return;
        }
        assert!(clock::monotonic_ns() < until_ns, "{found:?}, expected {expected:?}");
        clock::sleep(Duration::from_millis(1));
    }
}

#[test]
fn hardware_states_how_often_it_updates_its_values() {
    let root = machine("");
    let sys = root.path().join("sys");
    let (opened, _) = open(root.path(), "node.cray.*");
    // Older systems do not state it.
    wait_for_intervals(&opened, &[("sys/cray/pm_counters", None)]);
    fs::write(sys.join("cray/pm_counters/raw_scan_hz"), "10\n").unwrap();
    fs::write(sys.join("class/hwmon/hwmon0/update_interval"), "1500\n").unwrap();
    // Drivers write 0 or garbage where the chip does not know its interval.
    fs::write(sys.join("class/hwmon/hwmon3/update_interval"), "0\n").unwrap();
    let (opened, _) = open(root.path(), "node.cray.*");
    wait_for_intervals(&opened, &[("sys/cray/pm_counters", Some("100ms"))]);
    let (opened, _) = open(root.path(), "node.hwmon.temperature");
    wait_for_intervals(
        &opened,
        &[("sys/class/hwmon/hwmon0", Some("1500ms")), ("sys/class/hwmon/hwmon3", None)],
    );
}
