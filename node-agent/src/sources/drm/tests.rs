//! Tests of the kind of a job's GPU clients, on laid-out trees.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::catalogue;

use super::super::gpu_clients::GpuClients;
use super::super::kind::SourceFactory;
use super::super::outcome::Outcome;
use super::super::process_list::ProcessList;
use super::super::read_buffer::ReadBuffer;
use super::super::reading::Reading;
use super::super::target::Opened;
use super::*;
use crate::cgroups::{JobCgroups, Mounts};
use crate::sources::CustomSource;

const SECOND_NS: u64 = 1_000_000_000;

const AMDGPU: &str = include_str!("../../../tests/drm/amdgpu-6.13");
const I915: &str = include_str!("../../../tests/drm/i915-6.8");
const XE: &str = include_str!("../../../tests/drm/xe-6.12");

struct Machine {
    root: tempfile::TempDir,
    clients: Arc<GpuClients>,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let drm = root.path().join("sys/class/drm");
        for (card, address) in [(0, "0000:c1:00.0"), (1, "0000:4d:00.0")] {
            let device = root.path().join("sys/devices/pci0000:00").join(address);
            fs::create_dir_all(&device).unwrap();
            for name in [format!("card{card}"), format!("renderD{}", 128 + card)] {
                fs::create_dir_all(drm.join(&name)).unwrap();
                symlink(format!("../../../devices/pci0000:00/{address}"), drm.join(name).join("device"))
                    .unwrap();
            }
        }
        fs::create_dir_all(drm.join("card0-DP-1/device")).unwrap();
        fs::write(drm.join("card0/device/unique_id"), "c0b0fd34e1b21f4d\n").unwrap();
        fs::create_dir_all(root.path().join("job")).unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), "").unwrap();
        let machine = Self { root, clients: Arc::default() };
        machine.list(&[]);
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn list(&self, pids: &[u32]) {
        let text: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        fs::write(self.path("job/cgroup.procs"), text).unwrap();
    }

    /// Lets a process have a descriptor with this text.
    fn open_gpu(&self, pid: u32, number: u32, text: &str) {
        for directory in ["fd", "fdinfo"] {
            fs::create_dir_all(self.path(&format!("proc/{pid}/{directory}"))).unwrap();
        }
        let link = self.path(&format!("proc/{pid}/fd/{number}"));
        if fs::symlink_metadata(&link).is_err() {
            symlink("/dev/dri/renderD128", link).unwrap();
        }
        fs::write(self.path(&format!("proc/{pid}/fdinfo/{number}")), text).unwrap();
    }

    fn open(&self, selector: &str) -> (Vec<Opened>, Vec<String>) {
        self.open_with(None, selector)
    }

    /// Opens the sources of the job, to which the scheduler gives GPUs.
    fn open_with(&self, gpu_devices: Option<&str>, selector: &str) -> (Vec<Opened>, Vec<String>) {
        let mounts = Mounts::read(self.root.path()).unwrap();
        let gpu_clients = Some(&self.clients);
        let factory = SourceFactory { gpu_clients, gpu_devices, ..SourceFactory::of(&mounts) };
        let cgroups = JobCgroups { v2: Some(self.path("job")), ..JobCgroups::default() };
        let wanted = catalogue::select(&selector.parse().unwrap());
        let (opened, unavailable) = factory.open(&Target::Cgroups(cgroups), &wanted);
        (opened, unavailable.iter().map(ToString::to_string).collect())
    }

    fn source(&self, selector: &str) -> ClientsSource {
        self.clients.begin(ProcessList::Cgroup(self.path("job")));
        let wanted = catalogue::select(&selector.parse().unwrap());
        let slots = slots(&wanted, &self.clients.keys(), &self.path("sys"));
        ClientsSource::new(&self.path("proc"), &self.clients, slots)
    }
}

fn read(source: &ClientsSource, now_ns: u64) -> (Outcome, BTreeMap<String, u64>) {
    let mut reading = Reading::absent(source.slots().len());
    let outcome = source.read_at(now_ns, &mut reading);
    let values = reading.by_series(source.slots()).into_iter();
    (outcome, values.map(|(series, bits)| (series.replace("gpu.drm.", ""), bits)).collect())
}

/// Reads a source without slots.
fn look(watch: &mut Opened) -> Outcome {
    watch.source.read(&mut ReadBuffer::default(), &mut Reading::default())
}

#[test]
fn engines_and_memory_of_a_job_have_the_labels_of_their_gpu() {
    let machine = Machine::new();
    machine.list(&[7, 8]);
    machine.open_gpu(7, 5, AMDGPU);
    // The same client through another descriptor and in another process.
    machine.open_gpu(7, 6, AMDGPU);
    machine.open_gpu(8, 5, AMDGPU);
    machine.open_gpu(8, 9, XE);
    assert_eq!(read(&machine.source("gpu.drm.*"), SECOND_NS), (Outcome::Read, BTreeMap::new()));
    let source = machine.source("gpu.drm.*");
    let (outcome, values) = read(&source, 2 * SECOND_NS);
    assert_eq!((outcome, source.slots().len()), (Outcome::Read, values.len()));
    let amd = "gpu=0";
    let uuid = "uuid=c0b0fd34e1b21f4d";
    for (series, expected) in [
        (format!("clients{{{amd},{uuid}}}"), 1),
        (format!("engine.time{{engine=compute,{amd},{uuid}}}"), 46_464_671),
        (format!("engine.capacity{{engine=compute,{amd},{uuid}}}"), 1),
        (format!("memory.resident{{{amd},region=vram,{uuid}}}"), 40 << 20),
        (format!("memory.total{{{amd},region=vram,{uuid}}}"), 44_564 << 10),
        (format!("memory.shared{{{amd},region=vram,{uuid}}}"), 31_952 << 10),
        // There is no card with this address.
        ("clients{gpu=0000:03:00.0}".to_owned(), 1),
        ("engine.cycles{engine=ccs,gpu=0000:03:00.0}".to_owned(), 91),
        ("engine.cycles.total{engine=ccs,gpu=0000:03:00.0}".to_owned(), 7_655_183_225),
        ("engine.capacity{engine=ccs,gpu=0000:03:00.0}".to_owned(), 4),
        ("memory.resident{gpu=0000:03:00.0,region=vram0}".to_owned(), 23_992 << 10),
    ] {
        assert_eq!(values.get(&series), Some(&expected), "{series} in {values:#?}");
    }
}

#[test]
fn counts_survive_the_processes_and_a_new_opening() {
    let machine = Machine::new();
    machine.list(&[7, 8]);
    machine.open_gpu(7, 5, I915);
    machine.open_gpu(8, 5, &I915.replace("drm-client-id:\t972", "drm-client-id:\t973"));
    let compute = "engine.time{engine=compute,gpu=1}";
    let values = |second: u64| read(&machine.source("gpu.drm.*"), second * SECOND_NS).1;
    values(1);
    assert_eq!(values(2)[compute], 2 * 137_463_412_963);
    // One has ended; the text of the other is cut off, then states less, then more.
    machine.list(&[8]);
    fs::remove_dir_all(machine.path("proc/7")).unwrap();
    let text = I915.replace("drm-client-id:\t972", "drm-client-id:\t973");
    let times =
        [("137463412963 ns\n", "13"), ("137463412963 ns\n", "7 ns\n"), ("137463412963", "137463412970")];
    let seen: Vec<u64> = (3..)
        .zip(times)
        .map(|(second, (from, to))| {
            machine.open_gpu(8, 5, &text.replace(from, to));
            values(second)[compute]
        })
        .collect();
    let both = 2 * 137_463_412_963;
    assert_eq!(seen, [both, both, both + 7]);
    machine.list(&[]);
    let values = values(7);
    assert_eq!((values[compute], values["clients{gpu=1}"]), (both + 7, 0));
    assert_eq!(values["memory.resident{gpu=1,region=local0}"], 0);
}

#[test]
fn descriptors_that_are_closed_or_reused_count_nothing() {
    let machine = Machine::new();
    machine.list(&[7]);
    machine.open_gpu(7, 5, AMDGPU);
    read(&machine.source("gpu.drm.*"), SECOND_NS);
    let source = machine.source("gpu.drm.clients");
    let clients = "clients{gpu=0,uuid=c0b0fd34e1b21f4d}";
    // Since the last search the number belongs to another file, or to none.
    machine.open_gpu(7, 5, "pos:\t0\nflags:\t02\n");
    assert_eq!(read(&source, SECOND_NS + 1).1[clients], 0);
    fs::remove_file(machine.path("proc/7/fdinfo/5")).unwrap();
    assert_eq!(read(&source, SECOND_NS + 2).1[clients], 0);
    fs::remove_dir_all(machine.path("job")).unwrap();
    assert_eq!(read(&source, SECOND_NS + 3).0, Outcome::Gone);
}

#[test]
fn series_appear_when_the_job_first_uses_a_gpu() {
    let machine = Machine::new();
    machine.list(&[7]);
    let (mut before, unavailable) = machine.open("gpu.drm.engine.*");
    let names = before.iter().map(|opened| (opened.name.as_str(), opened.source.slots().len()));
    assert_eq!((names.collect(), unavailable), (vec![(KIND, 0), (WATCH, 0)], vec![]));
    assert_eq!(look(&mut before[1]), Outcome::Read);
    machine.open_gpu(7, 5, I915);
    // Its thread finds it within some seconds.
    read(&machine.source("gpu.drm.*"), u64::MAX);
    assert_eq!([(); 2].map(|()| look(&mut before[1])), [Outcome::Changed, Outcome::Read]);
    let (opened, unavailable) = machine.open("gpu.drm.engine.*");
    assert_eq!(opened[0].name, KIND);
    assert_eq!(opened[0].source.slots().len(), 10, "time and capacity of five classes");
    let reason = "the driver of the job's GPUs does not show it";
    assert_eq!(
        unavailable,
        ["cycles", "cycles.total"].map(|name| format!("gpu.drm.engine.{name}: {reason}"))
    );
}

#[test]
fn the_gpus_that_the_scheduler_gives_are_counted_before_they_are_used() {
    let machine = Machine::new();
    machine.list(&[7]);
    // One job after the other: the number is the place in the order of the render devices, not of the cards.
    assert_eq!(labels(machine.open_with(Some("1"), "gpu.drm.*")), ["gpu=1"]);
    assert_eq!(read(&machine.source("gpu.drm.*"), SECOND_NS).1, [("clients{gpu=1}".to_owned(), 0)].into());
    assert_eq!(labels(machine.open_with(Some("GPU-none,7"), "gpu.drm.*")), ["gpu=1"], "they stay");
    machine.open_gpu(7, 5, I915);
    let seen = read(&machine.source("gpu.drm.*"), 3 * SECOND_NS).1;
    assert_eq!(seen, [("clients{gpu=1}".to_owned(), 1)].into());
    assert!(labels(machine.open_with(Some("1"), "gpu.drm.engine.time")).len() > 1);
}

fn labels((opened, unavailable): (Vec<Opened>, Vec<String>)) -> Vec<String> {
    assert_eq!(unavailable, [""; 0]);
    opened[0].source.slots().iter().map(|slot| slot.labels.to_string()).collect()
}

#[test]
fn lists_name_gpus_by_place_minor_number_and_uuid() {
    let machine = Machine::new();
    let sys = machine.path("sys");
    let named = |list: &str| devices::named(&sys, list).into_iter().collect::<Vec<_>>();
    let (first, second) = ("0000:c1:00.0", "0000:4d:00.0");
    for (list, expected) in [
        ("0", vec![first]),
        ("129", vec![second]),
        ("1, 128", vec![second, first]),
        ("0-7", vec![second, first]),
        ("GPU-C0B0FD34E1B21F4D", vec![first]),
        ("GPU-8f6d,MIG-1,2,-,", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(named(list), expected, "{list}");
    }
    // The order is that of the numbers, not of the names.
    let drm = machine.path("sys/class/drm");
    fs::create_dir_all(drm.join("renderD99")).unwrap();
    symlink("../../../devices/pci0000:00/0000:03:00.0", drm.join("renderD99/device")).unwrap();
    assert_eq!(named("0"), ["0000:03:00.0"]);
    // The places of a node with GPUs of another driver are not known to be those of these devices.
    fs::create_dir_all(machine.path("sys/devices/pci0000:00/0000:03:00.0")).unwrap();
    symlink("../../../bus/pci/drivers/nvidia", machine.path("sys/devices/pci0000:00/0000:03:00.0/driver"))
        .unwrap();
    assert_eq!((named("0,1"), named("99,128")), (vec![], vec![first.to_owned()]));
}

#[test]
fn a_source_without_slots_finds_clients_by_itself() {
    let machine = Machine::new();
    machine.list(&[7]);
    machine.open_gpu(7, 5, AMDGPU);
    let (_opened, _) = machine.open("gpu.drm.*");
    let until_ns = crate::clock::monotonic_ns() + 120 * SECOND_NS;
    while machine.clients.changes() == 0 {
        assert!(crate::clock::monotonic_ns() < until_ns, "no client was found");
        crate::clock::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_node_without_gpus_has_no_source() {
    let machine = Machine::new();
    let drm = machine.path("sys/class/drm");
    fs::remove_dir_all(drm.join("renderD129")).unwrap();
    symlink("../../../bus/pci/drivers/nvidia", drm.join("renderD128/device/driver")).unwrap();
    let (mut opened, unavailable) = machine.open("gpu.drm.clients");
    assert_eq!(unavailable, ["gpu.drm.clients: this node has no GPU with a device /dev/dri/renderD*"]);
    assert_eq!(opened.len(), 1);
    assert_eq!(look(&mut opened[0]), Outcome::Read);
    fs::create_dir_all(drm.join("renderD129")).unwrap();
    assert_eq!(look(&mut opened[0]), Outcome::Changed, "a GPU was added");
}
