//! Information about the machine that is needed to repeat a measurement.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use polymeter_service::cgroup_mounts::Mounts;
use serde::Serialize;

/// Unknown values are absent.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct MachineInfo {
    name: Option<String>,
    kernel: Option<String>,
    kernel_build: Option<String>,
    cpu: Option<String>,
    cpus: usize,
    memory_kib: Option<u64>,
    clock_source: Option<String>,
    frequency_governor: Option<String>,
    perf_event_paranoid: Option<i64>,
    cgroups: CgroupInfo,
}

#[derive(Debug, Default, PartialEq, Serialize)]
struct CgroupInfo {
    v1: BTreeMap<String, PathBuf>,
    v2: Option<PathBuf>,
    v2_controllers: Vec<String>,
}

impl MachineInfo {
    pub(super) fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let line = |path: &str| Some(text(path)?.trim().to_owned());
        let cpuinfo = text("proc/cpuinfo").unwrap_or_default();
        let meminfo = text("proc/meminfo").unwrap_or_default();
        Self {
            name: line("proc/sys/kernel/hostname"),
            kernel: line("proc/sys/kernel/osrelease"),
            kernel_build: line("proc/sys/kernel/version"),
            cpu: field(&cpuinfo, "model name"),
            cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            memory_kib: field(&meminfo, "MemTotal")
                .and_then(|size| size.strip_suffix(" kB")?.trim().parse().ok()),
            clock_source: line("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            frequency_governor: line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            perf_event_paranoid: line("proc/sys/kernel/perf_event_paranoid")
                .and_then(|level| level.parse().ok()),
            cgroups: cgroups(root),
        }
    }
}

/// Value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn cgroups(root: &Path) -> CgroupInfo {
    let Ok(mounts) = Mounts::read(root) else { return CgroupInfo::default() };
    let controllers =
        mounts.v2.as_ref().and_then(|v2| fs::read_to_string(v2.join("cgroup.controllers")).ok());
    CgroupInfo {
        v2_controllers: controllers.unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        v1: mounts.v1,
        v2: mounts.v2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_information_is_read_from_procfs_and_sysfs() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Abacus 3\n\nprocessor\t: 1\nmodel name\t: Abacus 3\n",
        );
        put("proc/meminfo", "MemTotal:        1024 kB\nMemFree: 1 kB\n");
        put("proc/sys/kernel/osrelease", "6.1.0\n");
        put("proc/sys/kernel/perf_event_paranoid", "-1\n");
        put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        put("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        let machine = MachineInfo::read(root.path());
        assert_eq!((machine.cpu.as_deref(), machine.cpus), (Some("Abacus 3"), 2));
        assert_eq!((machine.memory_kib, machine.kernel.as_deref()), (Some(1024), Some("6.1.0")));
        assert_eq!((machine.perf_event_paranoid, machine.frequency_governor), (Some(-1), None));
        assert_eq!(machine.cgroups.v2_controllers, ["cpu", "memory"]);
    }

    #[test]
    fn unknown_values_are_absent() {
        let machine = MachineInfo::read(tempfile::tempdir().unwrap().path());
        assert_eq!((machine.kernel, machine.cpu, machine.cpus, machine.memory_kib), (None, None, 0, None));
        assert_eq!(machine.cgroups, CgroupInfo::default());
    }
}
