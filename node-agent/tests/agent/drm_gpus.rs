//! Tests of the GPUs of amdgpu, i915 and xe on a simulated machine.

use std::collections::BTreeSet;
use std::fs;

use crate::machine::{machine, open, threaded};

/// Files of the GPUs beyond the fixtures, below `/sys/class/drm`.
const FILES: [(&str, &str); 14] = [
    ("card0/device/mem_info_gtt_used", "15097856"),
    ("card0/device/mem_info_gtt_total", "67447160832"),
    ("card0/device/pcie_replay_count", "0"),
    ("card0/device/ras/umc_err_count", "ue: 0\nce: 12"),
    ("card0/device/ras/xgmi_wafl_err_count", "ue: 1\nce: 0\nde: 0"),
    // Not one of the counters.
    ("card0/device/ras/features", "feature mask: 0x4fff"),
    ("card0/device/hwmon/hwmon4/power1_cap", "300000000"),
    ("card1/device/hwmon/hwmon5/power1_max", "120000000"),
    ("card1/gt/gt0/rc6_residency_ms", "4711"),
    ("card1/gt/gt0/throttle_reason_status", "1"),
    ("card1/gt/gt0/throttle_reason_pl1", "1"),
    ("card2/device/tile0/gt0/gtidle/idle_residency_ms", "98234"),
    ("card2/device/tile0/gt0/freq0/throttle/status", "0"),
    ("card2/device/tile0/gt0/freq0/throttle/reason_thermal", "0"),
];

/// Creates a machine with a GPU of amdgpu, one of i915 and one of xe.
fn machine_with_gpus() -> tempfile::TempDir {
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
    for (file, text) in FILES {
        let path = cards.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    root
}

#[test]
fn gpus_of_three_drivers_have_the_quantities_of_their_files() {
    let root = machine_with_gpus();
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
            "memory.host.total{gpu=0,uuid=c0b0fd34e1b21f4d}",
            "memory.host.used{gpu=0,uuid=c0b0fd34e1b21f4d}",
            "memory.total{gpu=0,uuid=c0b0fd34e1b21f4d}",
            "memory.used{gpu=0,uuid=c0b0fd34e1b21f4d}",
            "memory.utilization{gpu=0,uuid=c0b0fd34e1b21f4d}",
            "pcie.replays{gpu=0,uuid=c0b0fd34e1b21f4d}",
            "utilization{gpu=0,uuid=c0b0fd34e1b21f4d}",
        ],
    );
    series(
        "sys/class/drm/card0/device/hwmon/hwmon4",
        &[
            "clock{chip=amdgpu,gpu=0,hwmon=4,name=sclk,sensor=1,uuid=c0b0fd34e1b21f4d}",
            "power.average{chip=amdgpu,gpu=0,hwmon=4,sensor=1,uuid=c0b0fd34e1b21f4d}",
            "power.limit{chip=amdgpu,gpu=0,hwmon=4,sensor=1,uuid=c0b0fd34e1b21f4d}",
            "temperature{chip=amdgpu,gpu=0,hwmon=4,name=edge,sensor=1,uuid=c0b0fd34e1b21f4d}",
            "temperature{chip=amdgpu,gpu=0,hwmon=4,name=junction,sensor=2,uuid=c0b0fd34e1b21f4d}",
        ],
    );
    series(
        "sys/class/drm/card0/device/ras",
        &[
            "errors.corrected{block=umc,gpu=0,uuid=c0b0fd34e1b21f4d}",
            "errors.corrected{block=xgmi_wafl,gpu=0,uuid=c0b0fd34e1b21f4d}",
            "errors.uncorrected{block=umc,gpu=0,uuid=c0b0fd34e1b21f4d}",
            "errors.uncorrected{block=xgmi_wafl,gpu=0,uuid=c0b0fd34e1b21f4d}",
        ],
    );
    series(
        "sys/class/drm/card1/device/hwmon/hwmon5",
        &["energy{gpu=1,hwmon=5,sensor=1}", "power.limit{gpu=1,hwmon=5,sensor=1}"],
    );
    series(
        "sys/class/drm/card1/gt/gt0",
        &[
            "clock{gpu=1,gt=0}",
            "idle.time{gpu=1,gt=0}",
            "throttled{gpu=1,gt=0,reason=pl1}",
            "throttled{gpu=1,gt=0,reason=status}",
        ],
    );
    series(
        "sys/class/drm/card2/device/hwmon/hwmon6",
        &["energy{gpu=2,hwmon=6,sensor=1}", "energy{gpu=2,hwmon=6,sensor=2}"],
    );
    series("sys/class/drm/card2/device/tile0/gt0/freq0", &["clock{domain=0,gpu=2,gt=0,tile=0}"]);
    series("sys/class/drm/card2/device/tile0/gt0/gtidle", &["idle.time{gpu=2,gt=0,tile=0}"]);
    series(
        "sys/class/drm/card2/device/tile0/gt0/freq0/throttle",
        &["throttled{domain=0,gpu=2,gt=0,reason=thermal,tile=0}"],
    );
    assert_eq!(sources.len(), 9);
}
