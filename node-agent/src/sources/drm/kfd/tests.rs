//! Tests of the GPUs that jobs use through amdkfd, on a laid-out machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use polymeter_proto::catalogue;

use super::files::DIRECTORY;
use super::*;
use crate::sources::custom_source::CustomSource;
use crate::sources::outcome::Outcome;
use crate::sources::process_list::ProcessList;
use crate::sources::reading::Reading;

/// A machine with a CPU and two GPUs, and a job.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for (node, id, minor, address) in
            [(0, 0, 0, ""), (1, 51_140, 128, "0000:c1:00.0"), (2, 7_117, 129, "0000:c6:00.0")]
        {
            let properties = format!("cpu_cores_count 0\nsimd_count 304\ndrm_render_minor {minor}\n");
            machine.write(&format!("sys/{DIRECTORY}/topology/nodes/{node}/gpu_id"), &format!("{id}\n"));
            machine.write(&format!("sys/{DIRECTORY}/topology/nodes/{node}/properties"), &properties);
            if id > 0 {
                let device = format!("sys/devices/{address}");
                machine.write(&format!("{device}/unique_id"), &format!("{id:x}\n"));
                for name in [format!("card{node}"), format!("renderD{minor}")] {
                    let entry = machine.path(&format!("sys/class/drm/{name}"));
                    fs::create_dir_all(&entry).unwrap();
                    symlink(format!("../../../devices/{address}"), entry.join("device")).unwrap();
                }
            }
        }
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn run(&self, pid: u32, started: u64, files: &[(&str, &str)]) {
        let stat = format!("{pid} (a) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {started} 0 0 0\n");
        self.write(&format!("proc/{pid}/stat"), &stat);
        files.iter().for_each(|(name, text)| self.write(&format!("sys/{DIRECTORY}/proc/{pid}/{name}"), text));
    }

    fn source(&self, pids: &str) -> KfdSource {
        self.write("job/cgroup.procs", pids);
        let wanted = catalogue::select(&"gpu.amd.*".parse().unwrap());
        let sys = self.path("sys");
        let processes = ProcessList::Cgroup(self.path("job"));
        KfdSource::new(&sys, &self.path("proc"), processes, &wanted, &gpus(&sys))
    }
}

fn read(source: &mut KfdSource) -> BTreeMap<String, u64> {
    let mut reading = Reading::absent(source.slots().len());
    assert_eq!(source.read(&mut reading), Outcome::Read);
    let values = reading.by_series(source.slots()).into_iter();
    values.map(|(series, bits)| (series.replace("gpu.amd.", ""), bits)).collect()
}

const FILES: [(&str, &str); 7] = [
    ("pasid", "32770\n"),
    ("vram_51140", "2013265920\n"),
    ("sdma_51140", "1500\n"),
    ("stats_51140/evicted_ms", "12\n"),
    ("stats_51140/cu_occupancy", "228\n"),
    ("vram_7117", "4096\n"),
    ("sdma_7117", "0\n"),
];

#[test]
fn processes_of_a_job_are_summed_for_each_gpu() {
    let machine = Machine::new();
    machine.run(7, 100, &FILES);
    machine.run(8, 101, &[("vram_51140", "80\n"), ("sdma_51140", "500\n")]);
    machine.run(9, 102, &FILES);
    // 9 is of another job, 10 does not use the driver.
    machine.write("proc/10/stat", "");
    let values = read(&mut machine.source("7\n8\n10\n"));
    let first = |name: &str, value: u64| (format!("{name}{{gpu=1,uuid=c7c4}}"), value);
    let second = |name: &str, value: u64| (format!("{name}{{gpu=2,uuid=1bcd}}"), value);
    let expected = [
        first("memory.used", 2_013_266_000),
        first("sdma.time", 2_000_000),
        first("evicted.time", 12_000_000),
        first("occupied", 228),
        second("memory.used", 4096),
        second("sdma.time", 0),
    ];
    assert_eq!(values, expected.into());
}

#[test]
fn counts_stay_when_a_process_ends_and_its_number_is_assigned_again() {
    let machine = Machine::new();
    machine.run(7, 100, &[("sdma_51140", "1500\n")]);
    let mut source = machine.source("7\n");
    let mut sdma = || read(&mut source).get("sdma.time{gpu=1,uuid=c7c4}").copied();
    assert_eq!(sdma(), Some(1_500_000));
    machine.run(7, 100, &[("sdma_51140", "1400\n")]);
    assert_eq!(sdma(), Some(1_500_000), "the kernel may leave a queue out");
    machine.run(7, 200, &[("sdma_51140", "10\n")]);
    assert_eq!(sdma(), Some(1_510_000), "another process");
    fs::remove_dir_all(machine.path(&format!("sys/{DIRECTORY}/proc/7"))).unwrap();
    assert_eq!(sdma(), Some(1_510_000));
    fs::remove_dir_all(machine.path("job")).unwrap();
    assert_eq!(source.read(&mut Reading::default()), Outcome::Gone);
}

#[test]
fn what_the_driver_does_not_state_is_absent() {
    let machine = Machine::new();
    assert_eq!(read(&mut machine.source("7\n")), BTreeMap::new(), "no process");
    for text in ["", "\n", "-1\n", "x\n", "18446744073709551616\n"] {
        machine.run(7, 100, &[("vram_51140", text), ("sdma_51140", text)]);
        assert_eq!(read(&mut machine.source("7\n")), BTreeMap::new(), "{text:?}");
    }
    machine.run(7, 100, &[("vram_51140", "18446744073709551615\n")]);
    machine.run(8, 100, &[("vram_51140", "1\n")]);
    assert_eq!(read(&mut machine.source("7\n8\n")).len(), 1, "no overflow");
    fs::remove_dir_all(machine.path("sys/class/kfd")).unwrap();
    assert_eq!(gpus(&machine.path("sys")), []);
}
