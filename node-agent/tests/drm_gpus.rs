//! Tests of the GPUs of amdgpu, i915 and xe on a simulated machine.
#![cfg(test)]

#[path = "common/machine.rs"]
mod machine;

use std::collections::BTreeSet;
use std::fs;

use machine::{machine, open, threaded};

#[test]
fn gpus_of_three_drivers_have_the_quantities_of_their_files() {
    let root = machine("");
    let cards = root.path().join("sys/class/drm");
    fs::write(cards.join("card0/device/unique_id"), "c0b0fd34e1b21f4d\n").unwrap();
    let sensors = cards.join("card0/device/hwmon/hwmon4");
    for (file, text) in
        [("name", "amdgpu"), ("temp1_label", "edge"), ("temp2_label", "junction"), ("freq1_label", "sclk")]
    {
        fs::write(sensors.join(file), format!("{text}\n")).unwrap();
    }
    // A connector is no GPU.
    fs::create_dir_all(cards.join("card0-DP-1/device/hwmon")).unwrap();
    let (opened, unavailable) = open(root.path(), "node.gpu.drm.*");
    let missing: Vec<String> = unavailable.iter().map(ToString::to_string).collect();
    assert_eq!(missing, ["node.gpu.drm.power: this node has no such device"]);
    let sources = threaded(&opened);
    let series = |name: &str, text: &[&str]| {
        let expected: BTreeSet<String> = text.iter().map(|series| format!("node.gpu.drm.{series}")).collect();
        assert_eq!(sources[name], expected, "{name}");
    };
    series(
        "sys/class/drm/card0/device",
        &[
            "memory.total{gpu=0,uuid=c0b0fd34e1b21f4d}",
            "memory.used{gpu=0,uuid=c0b0fd34e1b21f4d}",
            "memory.utilization{gpu=0,uuid=c0b0fd34e1b21f4d}",
            "utilization{gpu=0,uuid=c0b0fd34e1b21f4d}",
        ],
    );
    series(
        "sys/class/drm/card0/device/hwmon/hwmon4",
        &[
            "clock{chip=amdgpu,gpu=0,hwmon=4,name=sclk,sensor=1,uuid=c0b0fd34e1b21f4d}",
            "power.average{chip=amdgpu,gpu=0,hwmon=4,sensor=1,uuid=c0b0fd34e1b21f4d}",
            "temperature{chip=amdgpu,gpu=0,hwmon=4,name=edge,sensor=1,uuid=c0b0fd34e1b21f4d}",
            "temperature{chip=amdgpu,gpu=0,hwmon=4,name=junction,sensor=2,uuid=c0b0fd34e1b21f4d}",
        ],
    );
    series("sys/class/drm/card1/device/hwmon/hwmon5", &["energy{gpu=1,hwmon=5,sensor=1}"]);
    series("sys/class/drm/card1/gt/gt0", &["clock{gpu=1,gt=0}"]);
    series(
        "sys/class/drm/card2/device/hwmon/hwmon6",
        &["energy{gpu=2,hwmon=6,sensor=1}", "energy{gpu=2,hwmon=6,sensor=2}"],
    );
    series("sys/class/drm/card2/device/tile0/gt0/freq0", &["clock{domain=0,gpu=2,gt=0,tile=0}"]);
    assert_eq!(sources.len(), 6);
}
