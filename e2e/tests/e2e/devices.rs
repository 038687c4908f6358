//! Devices that contain each other: their roles go with their series from `/sys` of a laid-out machine to the
//! store, and a report sums each byte once.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::stored;
use polymeter_e2e::{TestEnvironment, program, tests, wait_until};
use polymeter_store::reader::{JobRow, SeriesScope};
use serde_json::Value;

tests![a_job_on_stacked_devices_has_each_byte_once];

/// Two disks below an array with a volume, an unrelated disk, and a bond of two ports with a VLAN.
const FILES: [(&str, &str); 26] = [
    ("proc/self/mountinfo", "30 1 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
    ("proc/loadavg", "0.25 0.50 0.75 1/100 1\n"),
    ("proc/diskstats", " 259 0 nvme0n1 1 0 10 0 0 0 0 0 0 0 0\n 253 0 dm-0 1 0 10 0 0 0 0 0 0 0 0\n"),
    (
        "proc/net/dev",
        "Inter-|   Receive                            |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    \
         packets errs drop fifo colls carrier compressed\n  data0: 300 3 0 0 0 0 0 0 3 3 0 0 0 0 0 0\n   eno1: 100 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n   \
         eno2: 200 2 0 0 0 0 0 0 2 2 0 0 0 0 0 0\n storage: 300 3 0 0 0 0 0 0 3 3 0 0 0 0 0 0\n",
    ),
    ("sys/devices/system/cpu/online", "0\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n"),
    ("sys/block/nvme0n1/dev", "259:0\n"),
    ("sys/block/nvme0n1/device/model", "a\n"),
    ("sys/block/nvme1n1/dev", "259:1\n"),
    ("sys/block/nvme1n1/device/model", "a\n"),
    ("sys/block/sdk/dev", "8:160\n"),
    ("sys/block/md127/dev", "9:127\n"),
    ("sys/block/md127/slaves/nvme0n1", ""),
    ("sys/block/md127/slaves/nvme1n1", ""),
    ("sys/block/dm-0/dev", "253:0\n"),
    ("sys/block/dm-0/slaves/md127", ""),
    ("sys/class/net/eno1/type", "1\n"),
    ("sys/class/net/eno1/device/vendor", "a\n"),
    ("sys/class/net/eno2/type", "1\n"),
    ("sys/class/net/eno2/device/vendor", "a\n"),
    ("sys/class/net/data0/type", "1\n"),
    ("sys/class/net/data0/lower_eno1/type", "1\n"),
    ("sys/class/net/data0/lower_eno2/type", "1\n"),
    ("sys/class/net/data0/bonding/mode", "802.3ad 4\n"),
    ("sys/class/net/storage/type", "1\n"),
    ("sys/class/net/storage/lower_data0/type", "1\n"),
];

const JOB: &str = "sys/fs/cgroup/jobs/job_8";

/// Replaces the text of a file by one of the same length, as readers of the open file see it.
fn overwrite(path: &Path, text: &str) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// Builds `io.stat` of a job that read so many bytes from the array and from the unrelated disk. The disks of
/// the array have different parts of it.
fn io_stat(array: u64, other: u64) -> String {
    let first = array / 4;
    [("253:0", array), ("9:127", array), ("259:0", first), ("259:1", array - first), ("8:160", other)]
        .map(|(device, bytes)| format!("{device} rbytes={bytes} wbytes=0 rios=10 wios=0 dbytes=0 dios=0\n"))
        .concat()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn a_job_on_stacked_devices_has_each_byte_once() {
    let env = TestEnvironment::new();
    let root = env.path("root");
    let file = |path: &str| -> PathBuf { root.join(path) };
    for (path, text) in FILES {
        write(&file(path), text);
    }
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let baseline = [
        ("io.read.bytes", "100ms"),
        ("node.network.receive.bytes", "100ms"),
        ("node.disk.read.sectors", "100ms"),
    ];
    let jobs = ["jobs/job_{job}".to_owned()];
    let plan = Plan { collector: &endpoint, jobs: &jobs, baseline: &baseline };
    let keys = format!("root = \"{}\"\nrescan_interval = \"100ms\"\n", root.display());
    let agent = Agent::start_with(&env, &plan, &keys, "");
    // The job appears with its files: an empty io.stat is that of a job without I/O.
    write(&file("staged/io.stat"), &io_stat(4_000_000_000, 2_000_000_000));
    write(&file("staged/cgroup.procs"), "");
    fs::create_dir_all(file(JOB).parent().unwrap()).unwrap();
    fs::rename(file("staged"), file(JOB)).unwrap();
    agent.wait_until_tracked("8", &["v2/io.stat"]);
    wait_until("the first values are stored", || read_bytes(&env, "8:160") > 0.0);
    overwrite(&file(&format!("{JOB}/io.stat")), &io_stat(7_000_000_000, 2_500_000_000));
    wait_until("the last values are stored", || {
        read_bytes(&env, "8:160") >= 2.5e9 && read_bytes(&env, "259:1") >= 5.25e9
    });
    fs::remove_dir_all(file(JOB)).unwrap();
    let row = stored::wait_for_end(&env, "8");

    assert_roles(&env, &row);
    assert_reports(&env);
    agent.daemon.terminate();
    collector.terminate();
}

fn read_bytes(env: &TestEnvironment, device: &str) -> f64 {
    let mut reader = env.reader();
    let samples = stored::job(&mut reader, "8")
        .map(|row| stored::samples(&mut reader, SeriesScope::Job(row.job_key)))
        .unwrap_or_default();
    let series = samples.get(&("io.read.bytes".to_owned(), format!("device={device}")));
    series.and_then(|series| series.points.last()).map_or(0.0, |(_, value)| *value)
}

fn assert_roles(env: &TestEnvironment, row: &JobRow) {
    let roles = |of: SeriesScope<'_>, metric: &str| -> Vec<String> {
        let series = env.reader().series(of).unwrap().into_iter().filter(|series| series.metric == metric);
        let mut roles: Vec<String> = series
            .map(|series| {
                format!("{}: {}", series.labels, series.labels.role().map_or("-", |role| role.as_str()))
            })
            .collect();
        roles.sort();
        roles
    };
    let expected = [
        "device=253:0: stacked 259:1 259:0 9:127",
        "device=259:0: physical",
        "device=259:1: physical",
        "device=8:160: physical",
        "device=9:127: stacked 259:1 259:0",
    ];
    assert_eq!(roles(SeriesScope::Job(row.job_key), "io.read.bytes"), expected);
    let of_node = SeriesScope::Node(&row.nodes[0]);
    let expected = [
        "interface=data0: stacked eno2 eno1",
        "interface=eno1: physical",
        "interface=eno2: physical",
        "interface=storage: stacked eno2 eno1 data0",
    ];
    assert_eq!(roles(of_node, "node.network.receive.bytes"), expected);
    let expected = ["device=dm-0: stacked nvme1n1 nvme0n1 md127", "device=nvme0n1: physical"];
    assert_eq!(roles(of_node, "node.disk.read.sectors"), expected);
}

/// Checks that the report has each byte once, also from a copy of the job.
fn assert_reports(env: &TestEnvironment) {
    let report = |store: &str| -> Value {
        let output = program("polymeter").args(["report", "--json", "8", "--store", store]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(report(&env.store())["used"]["read_bytes"], 3.5e9);
    // The roles travel with an export.
    let exported = env.path("job.parquet");
    let copy = format!("sqlite:{}", env.path("copy.db").display());
    run(&["export", "8", "--with-nodes", "--store", &env.store(), "-o", exported.to_str().unwrap()]);
    run(&["store", "import", exported.to_str().unwrap(), "--store", &copy]);
    assert_eq!(report(&copy)["used"]["read_bytes"], 3.5e9);
}

fn run(arguments: &[&str]) {
    let output = program("polymeter").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
