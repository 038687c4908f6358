//! The kind of AMD's GPUs that a job's processes use for computations (ROCm), as amdkfd shows it for each process. Queues of user space
//! pass amdgpu by, so that the times of engines in `fdinfo` lack them.
//!
//! Source: `kfd_procfs_show`, `kfd_procfs_stats_show` and `kfd_get_cu_occupancy` in `drivers/gpu/drm/amd/amdkfd/kfd_process.c` of Linux
//! (5.8; occupancy since 5.10): `/sys/class/kfd/kfd/proc/PID/{vram_GPU,sdma_GPU,stats_GPU/{evicted_ms,cu_occupancy}}`, where `GPU` is
//! the `gpu_id` of a node of the topology. A read waits for a worker of the kernel, which asks the GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::period::Period;
use polymeter_proto::series::Labels;

use super::devices;
use crate::sources::custom_source::CustomSource;
use crate::sources::kernel_text;
use crate::sources::kind::{Lane, OpenRequest, Opening, SourceKind};
use crate::sources::outcome::Outcome;
use crate::sources::path_pattern::PatternWatch;
use crate::sources::process_files::StatLine;
use crate::sources::process_list::ProcessList;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use crate::sources::source::Source;
use crate::sources::target::Target;

/// The kind's name in the catalogue, and that of its sources.
const KIND: &str = "kfd";

/// The directory of the driver, below `/sys`.
const DIRECTORY: &str = "class/kfd/kfd";

/// The nodes of the topology, below `/sys`.
const NODES: &str = "class/kfd/kfd/topology/nodes/*";

/// A quantity that the driver states for each process and GPU.
#[derive(Debug, Clone, Copy)]
struct Quantity {
    /// The catalogue's field.
    field: &'static str,
    is_counter: bool,
    /// The factor to the unit of the catalogue.
    factor: u64,
    /// The file of a process for a GPU.
    file: fn(u32) -> String,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity { field: "memory", is_counter: false, factor: 1, file: |gpu| format!("vram_{gpu}") },
    // In microseconds.
    Quantity { field: "sdma", is_counter: true, factor: 1_000, file: |gpu| format!("sdma_{gpu}") },
    Quantity {
        field: "evicted",
        is_counter: true,
        factor: 1_000_000,
        file: |gpu| format!("stats_{gpu}/evicted_ms"),
    },
    Quantity {
        field: "occupancy",
        is_counter: false,
        factor: 1,
        file: |gpu| format!("stats_{gpu}/cu_occupancy"),
    },
];

/// The GPUs that jobs use through amdkfd.
pub(in crate::sources) struct KfdKind;

impl SourceKind for KfdKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        QUANTITIES.iter().map(|quantity| quantity.field).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let host = request.host;
        if matches!(request.target, Target::Node(_)) {
            return;
        }
        if host.step.is_some() {
            return opening.unavailable_all(&request.wanted, "only for whole jobs");
        }
        let sys = host.mounts.sys();
        let watch = PatternWatch::new(&sys, [NODES].into());
        opening.push(format!("{KIND}/watch"), Source::Custom(Box::new(watch)));
        let gpus = gpus(&sys);
        if gpus.is_empty() {
            let reason = "this node has no GPU of amdkfd (/sys/class/kfd)";
            return opening.unavailable_all(&request.wanted, reason);
        }
        let Some(processes) = ProcessList::of(request.target) else {
            let reason = "the job has no cgroup of the controller that provides it";
            return opening.unavailable_all(&request.wanted, reason);
        };
        let source = KfdSource::new(&sys, &host.mounts.proc, processes, &request.wanted, &gpus);
        opening.push_custom(KIND.to_owned(), Box::new(source));
    }
}

/// Returns the GPUs of the topology: their ids, and the labels of their series.
fn gpus(sys: &Path) -> Vec<(u32, Labels)> {
    let labels = devices::labels(sys);
    let nodes = fs::read_dir(sys.join(DIRECTORY).join("topology/nodes")).into_iter().flatten().flatten();
    let gpu = |node: PathBuf| {
        // A CPU has the id 0, and one that may not be used has none.
        let id: u32 = number(&node.join("gpu_id")).ok()??.try_into().ok().filter(|id| *id > 0)?;
        let properties = kernel_text::text(&node.join("properties")).unwrap_or_default();
        let minor = kernel_text::lines(&properties).find_map(|line| line.strip_prefix("drm_render_minor "));
        let device = fs::read_link(sys.join(format!("class/drm/renderD{}/device", minor?.trim()))).ok();
        let address = device.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        // A GPU without a card is named by its id.
        let unknown = || vec![("gpu".to_owned(), id.to_string())];
        let pairs = address.and_then(|address| labels.get(address)).cloned().unwrap_or_else(unknown);
        Some((id, Labels::new(pairs).unwrap_or_default()))
    };
    let mut gpus: Vec<(u32, Labels)> = nodes.filter_map(|node| gpu(node.path())).collect();
    gpus.sort_by_key(|(id, _)| *id);
    gpus
}

/// Returns the number in a file; none if the file does not exist, or the text is no number.
///
/// # Errors
/// Returns the other errors of the file.
fn number(path: &Path) -> Result<Option<u64>, ErrorKind> {
    match kernel_text::text(path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.kind()),
    }
}

/// A process: its number belongs to others later, its time of start does not.
type ProcessId = (u32, u64);

/// A value of a slot: a quantity of a GPU.
#[derive(Debug)]
struct Value {
    quantity: Quantity,
    gpu: u32,
    /// The counts of processes.
    known: BTreeMap<ProcessId, u64>,
    /// The sum of the counts of those that have ended; none before there were any.
    ended: Option<u64>,
}

/// The GPUs that a job uses.
#[derive(Debug)]
struct KfdSource {
    /// The directory with one directory for each process that uses the driver.
    directory: PathBuf,
    proc: PathBuf,
    processes: ProcessList,
    slots: Vec<Slot>,
    values: Vec<Value>,
}

impl KfdSource {
    fn new(
        sys: &Path,
        proc: &Path,
        processes: ProcessList,
        wanted: &[Definition],
        gpus: &[(u32, Labels)],
    ) -> Self {
        let quantity_of = |definition: &Definition| {
            let field = definition.metric.field_of(KIND)?;
            QUANTITIES.into_iter().find(|quantity| quantity.field == field)
        };
        let known = wanted.iter().filter_map(|definition| Some((definition, quantity_of(definition)?)));
        let of_gpus = known.flat_map(|(definition, quantity)| {
            gpus.iter().map(move |(gpu, labels)| {
                let slot = Slot { definition: definition.clone(), labels: labels.clone() };
                (slot, Value { quantity, gpu: *gpu, known: BTreeMap::new(), ended: None })
            })
        });
        let (slots, values) = of_gpus.unzip();
        Self { directory: sys.join(DIRECTORY).join("proc"), proc: proc.to_owned(), processes, slots, values }
    }
}

impl Value {
    /// Takes a reading of the processes that use the driver. Returns the sum; none if a process that has it could not be read, or
    /// if no process ever had it.
    fn read(&mut self, directory: &Path, processes: &BTreeSet<ProcessId>) -> Option<u64> {
        let mut is_failed = false;
        let mut found = BTreeMap::new();
        for process in processes {
            let path = directory.join(process.0.to_string()).join((self.quantity.file)(self.gpu));
            match number(&path) {
                Ok(Some(value)) => {
                    found.insert(*process, value.saturating_mul(self.quantity.factor));
                }
                Ok(None) => {}
                Err(_) => is_failed = true,
            }
        }
        if !self.quantity.is_counter {
            let sum = found.values().fold(0_u64, |sum, value| sum.saturating_add(*value));
            return (!is_failed && !found.is_empty()).then_some(sum);
        }
        for (process, value) in found {
            let known = self.known.entry(process).or_default();
            // A queue that is removed during the reading of the driver is not in this value.
            *known = value.max(*known);
        }
        let ended = &mut self.ended;
        self.known.retain(|process, value| {
            let is_there = processes.contains(process);
            if !is_there {
                *ended = Some(ended.unwrap_or(0).saturating_add(*value));
            }
            is_there
        });
        let is_any = self.ended.is_some() || !self.known.is_empty();
        is_any.then(|| {
            self.known.values().fold(self.ended.unwrap_or(0), |sum, value| sum.saturating_add(*value))
        })
    }
}

impl CustomSource for KfdSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        let Some(pids) = self.processes.list(&self.proc) else { return Outcome::Gone };
        // A process has not ended because a file of it cannot be read for a moment.
        let known: BTreeMap<u32, u64> =
            self.values.iter().flat_map(|value| value.known.keys().copied()).collect();
        let uses = |pid: &u32| known.contains_key(pid) || self.directory.join(pid.to_string()).exists();
        let started = |pid: u32| {
            let stat = StatLine::read(&self.proc.join(pid.to_string()));
            Some((pid, stat.map(|stat| stat.started()).or_else(|| known.get(&pid).copied())?))
        };
        let processes: BTreeSet<ProcessId> = pids.into_iter().filter(uses).filter_map(started).collect();
        for (slot, value) in (0..).zip(&mut self.values) {
            match value.read(&self.directory, &processes) {
                Some(bits) => reading.set(slot, bits),
                None => reading.set_lacking(slot),
            }
        }
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }

    fn refresh_interval(&self) -> Option<Period> {
        Some(Period::HUNDRED_MILLISECONDS)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use polymeter_proto::catalogue;

    use super::*;

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

        /// Lays out a process of the job.
        fn run(&self, pid: u32, started: u64, files: &[(&str, &str)]) {
            let stat = format!("{pid} (a) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {started} 0 0 0\n");
            self.write(&format!("proc/{pid}/stat"), &stat);
            files
                .iter()
                .for_each(|(name, text)| self.write(&format!("sys/{DIRECTORY}/proc/{pid}/{name}"), text));
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
        let mut reading = Reading::absent(source.slots.len());
        assert_eq!(source.read(&mut reading), Outcome::Read);
        let name =
            |slot: &Slot| format!("{}{{{}}}", slot.definition.name().replace("gpu.amd.", ""), slot.labels);
        let values = source.slots.iter().map(name).zip(reading.iter());
        values.filter_map(|(name, bits)| Some((name, bits?))).collect()
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
}
