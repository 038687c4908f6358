//! GPUs of the node, and whether the agent can read them.

use std::fs;

use polymeter_proto::control::MetricLine;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

/// PCI number, name, and metrics.
const MANUFACTURERS: [(&str, &str, &str); 3] =
    [("0x10de", "NVIDIA", "gpu.utilization"), ("0x1002", "AMD", "gpu.drm."), ("0x8086", "Intel", "gpu.drm.")];

/// VGA, 3D and other controllers of displays.
const CLASSES: [&str; 3] = ["0x0300", "0x0302", "0x0380"];

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let vendors = vendors(machine);
    let mut has_any = false;
    for (vendor, name, metric) in MANUFACTURERS {
        let count = vendors.iter().filter(|found| *found == vendor).count();
        if count == 0 {
            continue;
        }
        has_any = true;
        let line = match machine.metrics() {
            Some(Ok(lines)) => lines.iter().find(|line| line.metric.starts_with(metric)),
            Some(Err(_)) | None => None,
        };
        judge(count, name, metric, line, findings);
    }
    if !has_any {
        findings.ok("this machine has none");
    }
}

fn judge(count: usize, name: &str, metric: &str, line: Option<&MetricLine>, findings: &mut Findings) {
    let text = format!("{count} of {name}");
    match line {
        Some(line) if line.available => findings.ok(format!("{text}, which the agent reads")),
        Some(line) => {
            let reason = line.reason.as_deref().unwrap_or("no reason is known");
            // An integrated GPU of Intel serves the console of many servers.
            if name == "Intel" {
                findings.ok(format!("{text}, {metric}* unavailable: {reason}"));
            } else {
                findings.warning(
                    format!("{text}, and {metric}* are unavailable: {reason}"),
                    "see docs/how-to/gpus.md: the driver, and the rights of the service",
                );
            }
        }
        None => findings.not_checked(format!("{text}; only a running agent tells if it can read them")),
    }
}

fn vendors(machine: &Machine) -> Vec<String> {
    let read = |path: std::path::PathBuf| Some(fs::read_to_string(path).ok()?.trim().to_owned());
    let devices = fs::read_dir(machine.mounts.sys().join("bus/pci/devices")).into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let class = read(device.path().join("class"))?;
            let is_gpu = CLASSES.iter().any(|known| class.starts_with(known));
            is_gpu.then(|| read(device.path().join("vendor"))).flatten()
        })
        .collect()
}
