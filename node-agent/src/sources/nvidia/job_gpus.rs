//! GPUs of a job: those that the scheduler names, those that its processes use, and those that the
//! environment of its processes names.
//!
//! The scheduler and the driver are trusted. A user can write anything into an environment: a GPU that is
//! named only there belongs to the job unless the scheduler or the driver gives it to another job.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};

use super::gpu::Gpu;
use crate::sources::gpu_list::numbers_of;
use crate::sources::kernel_text;
use crate::sources::lock::lock;
use crate::sources::process_files::variables;
use crate::sources::process_list::{children, listed};

const ENVIRONMENTS_MAX: usize = 256;

const DESCENDANTS_MAX: usize = 4096;

const ENVIRONMENT_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobProcesses {
    Cgroup(PathBuf),
    Tree(u32),
}

#[derive(Debug)]
pub(super) struct JobGpus {
    proc: PathBuf,
    processes: JobProcesses,
    state: Mutex<State>,
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    granted: Option<String>,
    /// UUIDs of devices that processes of the job have used.
    used: BTreeSet<String>,
    /// UUIDs of devices that environments name, and that belong to no other job.
    claimed: BTreeSet<String>,
    environments: BTreeMap<u32, Option<(String, Numbers)>>,
}

impl State {
    fn granted(&self, gpus: &[Arc<Gpu>]) -> BTreeSet<String> {
        named(self.granted.as_deref().unwrap_or_default(), Numbers::Minor, gpus)
    }
}

/// Meaning of the numbers of GPUs in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// Those of device files, as schedulers have them.
    Minor,
    /// Those of the driver, in the order of the buses, as CUDA has them.
    Index,
}

impl JobGpus {
    pub(super) fn new(proc: &Path, processes: JobProcesses) -> Self {
        Self { proc: proc.to_owned(), processes, state: Mutex::default(), changes: AtomicU64::new(0) }
    }

    pub(super) fn grant(&self, granted: Option<&str>) {
        if let Some(granted) = granted {
            lock(&self.state).granted = Some(granted.to_owned());
        }
    }

    pub(super) fn devices(&self, gpus: &[Arc<Gpu>]) -> BTreeSet<String> {
        let state = lock(&self.state);
        let mut devices = state.granted(gpus);
        devices.extend(state.used.iter().chain(&state.claimed).cloned());
        devices
    }

    /// How often its devices changed so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    pub(super) fn pids(&self) -> BTreeSet<u32> {
        match &self.processes {
            JobProcesses::Cgroup(directory) => listed(directory).unwrap_or_default(),
            JobProcesses::Tree(root) => descendants(&self.proc, *root),
        }
    }

    /// Devices that the scheduler or the driver gives to the job, after a look at the users of each device.
    fn trusted(&self, users: &BTreeMap<String, BTreeSet<u32>>, gpus: &[Arc<Gpu>]) -> BTreeSet<String> {
        let pids = self.pids();
        let mut state = lock(&self.state);
        let before = state.used.len();
        state.used.extend(
            users
                .keys()
                .filter(|device| users.get(*device).is_some_and(|users| !users.is_disjoint(&pids)))
                .cloned(),
        );
        if state.used.len() > before {
            self.changes.fetch_add(1, Release);
        }
        let granted = state.granted(gpus);
        granted.into_iter().chain(state.used.iter().cloned()).collect()
    }

    /// Reads the environments of new processes, and adds the devices that they name and that are not given to
    /// others.
    fn claim(&self, given: &BTreeSet<String>, gpus: &[Arc<Gpu>]) {
        let pids = self.pids();
        let mut state = lock(&self.state);
        state.environments.retain(|pid, _| pids.contains(pid));
        for pid in pids.into_iter().take(ENVIRONMENTS_MAX) {
            // A process that is about to call execve(2) still has the environment of its parent, which is of
            // the same job.
            state.environments.entry(pid).or_insert_with(|| {
                let text = kernel_text::bytes(&self.proc.join(pid.to_string()).join("environ")).ok()?;
                visible_devices(text.get(..ENVIRONMENT_BYTES.min(text.len()))?)
            });
        }
        let texts = state.environments.values().flatten();
        let mut claimed: BTreeSet<String> =
            texts.flat_map(|(text, numbers)| named(text, *numbers, gpus)).collect();
        claimed.retain(|device| !given.contains(device));
        // A device stays when the process that named it has ended, unless it is given to another job.
        let before = state.claimed.clone();
        state.claimed.retain(|device| !given.contains(device));
        state.claimed.extend(claimed);
        if state.claimed != before {
            self.changes.fetch_add(1, Release);
        }
    }
}

fn descendants(proc: &Path, root: u32) -> BTreeSet<u32> {
    let (mut queue, mut next) = (vec![root], 0);
    while let Some(pid) = queue.get(next).copied().filter(|_| next < DESCENDANTS_MAX) {
        next += 1;
        queue.extend(children(&proc.join(pid.to_string())));
    }
    queue.into_iter().collect()
}

/// Finds the GPUs of the jobs.
pub(super) fn attribute(jobs: &[Arc<JobGpus>], gpus: &[Arc<Gpu>]) {
    let mut users: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for gpu in gpus {
        // A GPU that is busy or lost keeps its jobs.
        let Some(mut reading) = gpu.begin() else { continue };
        for (number, device) in gpu.devices.iter().enumerate() {
            if let Ok(processes) = reading.processes(number) {
                let pids = processes.into_iter().map(|process| process.pid);
                users.insert(device.uuid.clone(), pids.collect());
            }
        }
    }
    // The processes on a MIG device are on its GPU, too, which is not the job's.
    for gpu in gpus.iter().filter(|gpu| gpu.devices.len() > 1) {
        users.remove(gpu.uuid());
    }
    let trusted: Vec<BTreeSet<String>> = jobs.iter().map(|job| job.trusted(&users, gpus)).collect();
    for (number, job) in jobs.iter().enumerate() {
        let others = trusted.iter().enumerate().filter(|(other, _)| *other != number);
        let given = others.flat_map(|(_, devices)| devices.iter().cloned()).collect();
        job.claim(&given, gpus);
    }
}

/// UUIDs of the devices in a list such as `0,1`, `0-3`, `GPU-8f6d,1` or `MIG-4a5b`. A UUID may be cut off as
/// long as only one device matches. The number of a GPU with MIG devices names none: schedulers number those
/// in ways of their own.
fn named(list: &str, numbers: Numbers, gpus: &[Arc<Gpu>]) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for item in list.split(',').map(str::trim) {
        if let Some(listed) = numbers_of(item) {
            let whole = gpus
                .iter()
                .filter(|gpu| match numbers {
                    Numbers::Minor => listed.contains(&gpu.minor),
                    Numbers::Index => listed.contains(&gpu.index),
                })
                .filter(|gpu| gpu.devices.len() == 1);
            named.extend(whole.map(|gpu| gpu.uuid().to_owned()));
        } else if item.starts_with("GPU-") || item.starts_with("MIG-") {
            let devices = gpus.iter().flat_map(|gpu| &gpu.devices);
            let found: Vec<&str> =
                devices.map(|device| device.uuid.as_str()).filter(|uuid| uuid.starts_with(item)).collect();
            match found.as_slice() {
                [only] => named.extend([(*only).to_owned()]),
                // The UUID of a device may begin like a longer one.
                several if several.contains(&item) => named.extend([item.to_owned()]),
                [..] => named.extend(instance(item, gpus)),
            }
        }
    }
    named
}

/// UUID of the MIG device that the earlier form `MIG-GPU-8f6d/INSTANCE/COMPUTE` names.
fn instance(item: &str, gpus: &[Arc<Gpu>]) -> Option<String> {
    let mut parts = item.strip_prefix("MIG-")?.split('/');
    let (uuid, number) = (parts.next()?, parts.next()?.parse::<u32>().ok()?);
    let gpu = gpus.iter().find(|gpu| gpu.uuid() == uuid)?;
    let device = gpu.devices.iter().find(|device| device.instance == Some(number))?;
    Some(device.uuid.clone())
}

/// Devices that an environment, proc_pid_environ(5), names, and what their numbers mean. Slurm's variables
/// have the node's numbers. Those of CUDA count only the visible devices where a scheduler hides the others,
/// so that under Slurm only their UUIDs are taken.
fn visible_devices(environment: &[u8]) -> Option<(String, Numbers)> {
    let variable = |name: &str| variables(environment, name).find(|value| !value.is_empty());
    let of_slurm = ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS"].iter().find_map(|name| variable(name));
    let of_cuda = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"]
        .iter()
        .find_map(|name| variable(name));
    match (of_slurm, of_cuda) {
        (Some(list), _) => Some((list.to_owned(), Numbers::Minor)),
        (None, Some(list)) if variable("SLURM_JOB_ID").is_some() => {
            let uuids = list.split(',').filter(|item| numbers_of(item).is_none());
            let list = Some(uuids.collect::<Vec<_>>().join(",")).filter(|list| !list.is_empty());
            list.map(|list| (list, Numbers::Index))
        }
        (None, list) => list.map(|list| (list.to_owned(), Numbers::Index)),
    }
}

pub(in crate::sources) fn check(data: &[u8]) {
    let Some((list, numbers)) = visible_devices(data) else { return };
    assert!(!list.is_empty() && !list.contains('\0'));
    assert!(named(&list, numbers, &[]).is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cuda_count_only_without_slurm() {
        let list = |environment: &[&str]| visible_devices(environment.join("\0").as_bytes());
        let devices = |environment: &[&str]| list(environment).map(|(devices, _)| devices);
        assert_eq!(list(&["SLURM_JOB_GPUS=1"]).map(|(_, numbers)| numbers), Some(Numbers::Minor));
        assert_eq!(list(&["CUDA_VISIBLE_DEVICES=1"]).map(|(_, numbers)| numbers), Some(Numbers::Index));
        assert_eq!(devices(&["PATH=/bin", "HOME="]), None);
        assert_eq!(devices(&["CUDA_VISIBLE_DEVICES=0,2", "A=1"]).as_deref(), Some("0,2"));
        assert_eq!(devices(&["CUDA_VISIBLE_DEVICES=", "GPU_DEVICE_ORDINAL=3"]).as_deref(), Some("3"));
        assert_eq!(
            devices(&["SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0"]),
            None,
            "the first of the visible ones"
        );
        assert_eq!(devices(&["SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0-1,GPU-a"]).as_deref(), Some("GPU-a"));
        let job = ["CUDA_VISIBLE_DEVICES=0", "SLURM_JOB_GPUS=4,5", "SLURM_JOB_ID=7"];
        assert_eq!(devices(&job).as_deref(), Some("4,5"));
        let step = ["SLURM_JOB_GPUS=4,5", "SLURM_STEP_GPUS=5"];
        assert_eq!(devices(&step).as_deref(), Some("5"));
        assert_eq!(visible_devices(b"CUDA_VISIBLE_DEVICES=\xff\0\0"), None);
    }
}
