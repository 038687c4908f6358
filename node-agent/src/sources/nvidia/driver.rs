//! NVIDIA's driver: its library, and the GPUs that it lists. One thread loads the library and lists the GPUs,
//! again and again while a metric of them is wanted, so that neither the opening of a source nor its reading
//! waits for the driver.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::gpu::{Gpu, Identity};
use super::job_gpus::{self, JobGpus, JobProcesses};
use super::library::{self, LoadError, Signs};
use super::quantity::is_lost;
use super::raw::{gpu_instance, initialize_anew};
use crate::clock;
use crate::sources::lock::lock;

/// Time between two listings of the GPUs, in steps.
const LISTING_STEPS: u32 = 5;

/// Time between two attempts to initialize a library that refuses, in steps: it may be installed on nodes
/// without GPUs, and each attempt loads it.
const ATTEMPT_STEPS: u32 = 60;

/// How often the thread looks whether it is still needed.
const STEP: Duration = Duration::from_secs(1);

/// Shortest time between two looks for a driver that is installed later.
const SIGNS_INTERVAL_NS: u64 = 5_000_000_000;

/// Stack of the thread: the library initializes itself there.
const STACK_BYTES: usize = 1024 * 1024;

/// Drivers of this process, by the root of the machine; more than one only in tests. They are never removed,
/// because the library stays loaded.
static DRIVERS: Mutex<BTreeMap<PathBuf, Arc<Driver>>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
pub(super) struct Driver {
    root: PathBuf,
    step: Duration,
    state: Mutex<State>,
    /// How often the list of GPUs, or the reason why there is none, changed.
    changes: AtomicU64,
    looked_ns: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoGpus {
    #[error("the NVIDIA driver has not answered yet")]
    NotAnswered,
    #[error("cannot start a thread for the NVIDIA driver: {0}")]
    Thread(String),
    #[error("{0}")]
    Library(String),
    #[error("NVIDIA driver: {0}")]
    Driver(String),
    #[error("the NVIDIA driver lists no GPU")]
    NoneListed,
    #[error("the NVIDIA driver lists {0} GPUs, none of which answers")]
    NoneAnswers(u32),
}

#[derive(Debug)]
struct State {
    nvml: Option<&'static Nvml>,
    gpus: Result<Vec<Arc<Gpu>>, NoGpus>,
    /// Signs of a driver when it was last looked for in vain.
    missing_since: Option<Signs>,
    has_thread: bool,
    jobs: BTreeMap<JobProcesses, Weak<JobGpus>>,
    /// True if a job was added since its GPUs were looked for.
    has_new_job: bool,
}

fn readers(driver: &Arc<Driver>) -> usize {
    // One is in the list, one is the thread's.
    Arc::strong_count(driver).saturating_sub(2)
}

impl Driver {
    pub(super) fn of(root: &Path) -> Arc<Self> {
        Self::with_step(root, STEP)
    }

    /// Creates the driver of the machine at `root` with this step, if it is not there.
    pub(super) fn with_step(root: &Path, step: Duration) -> Arc<Self> {
        let mut drivers = lock(&DRIVERS);
        Arc::clone(drivers.entry(root.to_owned()).or_insert_with(|| Arc::new(Self::new(root, step))))
    }

    fn new(root: &Path, step: Duration) -> Self {
        let state = State {
            nvml: None,
            gpus: Err(NoGpus::NotAnswered),
            missing_since: None,
            has_thread: false,
            jobs: BTreeMap::new(),
            has_new_job: false,
        };
        Self {
            root: root.to_owned(),
            step,
            state: Mutex::new(state),
            changes: AtomicU64::new(0),
            looked_ns: AtomicU64::new(0),
        }
    }

    /// Number of changes so far, and with it the GPUs, or the reason why there are none. Starts the thread
    /// that looks for them, unless there is nothing new to be found.
    pub(super) fn gpus(self: &Arc<Self>) -> (u64, Result<Vec<Arc<Gpu>>, NoGpus>) {
        let mut state = lock(&self.state);
        if !state.has_thread && state.missing_since.is_none() {
            state.has_thread = true;
            let driver = Arc::clone(self);
            let builder = std::thread::Builder::new().name("nvidia".to_owned()).stack_size(STACK_BYTES);
            if let Err(error) = builder.spawn(move || driver.serve()) {
                state.has_thread = false;
                return (self.changes(), Err(NoGpus::Thread(error.to_string())));
            }
        }
        (self.changes(), state.gpus.clone())
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Release);
    }

    /// GPUs of a job, which the driver keeps while a source refers to them.
    pub(super) fn job(&self, proc: &Path, processes: JobProcesses) -> Arc<JobGpus> {
        let mut state = lock(&self.state);
        if let Some(known) = state.jobs.get(&processes).and_then(Weak::upgrade) {
            return known;
        }
        state.jobs.retain(|_, job| job.strong_count() > 0);
        let job = Arc::new(JobGpus::new(proc, processes.clone()));
        state.jobs.insert(processes, Arc::downgrade(&job));
        state.has_new_job = true;
        job
    }

    #[cfg(test)]
    pub(super) fn jobs(&self) -> usize {
        lock(&self.state).jobs.values().filter(|job| job.strong_count() > 0).count()
    }

    fn attribute(&self) {
        let (jobs, gpus) = {
            let mut state = lock(&self.state);
            state.has_new_job = false;
            let jobs: Vec<Arc<JobGpus>> = state.jobs.values().filter_map(Weak::upgrade).collect();
            (jobs, state.gpus.clone().unwrap_or_default())
        };
        if !jobs.is_empty() {
            job_gpus::attribute(&jobs, &gpus);
        }
    }

    /// Lets the next opening look for the driver again if new signs of it have appeared. All sources together
    /// look once in some seconds.
    pub(super) fn look_for_signs(&self) {
        let now_ns = clock::monotonic_ns();
        let looked_ns = self.looked_ns.load(Acquire);
        let is_due = now_ns.saturating_sub(looked_ns) >= SIGNS_INTERVAL_NS;
        if !is_due || self.looked_ns.compare_exchange(looked_ns, now_ns, Release, Acquire).is_err() {
            return;
        }
        let mut state = lock(&self.state);
        if state.missing_since.as_ref().is_some_and(|signs| *signs != Signs::look(&self.root)) {
            state.missing_since = None;
            self.note_change();
        }
    }

    fn serve(self: Arc<Self>) {
        rustix::process::setpriority_process(None, 0).ok();
        // The steps since the library was initialized anew.
        let mut waited = ATTEMPT_STEPS;
        loop {
            let signs = Signs::look(&self.root);
            let nvml = lock(&self.state).nvml;
            let steps = match nvml.map_or_else(|| self.load(), Ok) {
                Ok(nvml) => {
                    let has_answered = self.list(nvml);
                    if has_answered {
                        waited = ATTEMPT_STEPS;
                    } else if waited >= ATTEMPT_STEPS {
                        waited = 0;
                        self.begin_anew(nvml);
                    }
                    self.attribute();
                    waited = waited.saturating_add(LISTING_STEPS);
                    LISTING_STEPS
                }
                Err(LoadError { reason, is_found }) => {
                    self.publish(Err(NoGpus::Library(reason)));
                    if !is_found {
                        let mut state = lock(&self.state);
                        state.missing_since = Some(signs);
                        state.has_thread = false;
                        return;
                    }
                    ATTEMPT_STEPS
                }
            };
            for _ in 0..steps {
                clock::sleep(self.step);
                let mut state = lock(&self.state);
                if readers(&self) == 0 {
                    state.has_thread = false;
                    return;
                }
                let has_new_job = state.has_new_job && state.gpus.is_ok();
                drop(state);
                if has_new_job {
                    self.attribute();
                }
            }
        }
    }

    fn load(&self) -> Result<&'static Nvml, LoadError> {
        // It stays loaded until the process ends, so that no handle outlives it.
        let nvml: &'static Nvml = Box::leak(Box::new(library::load(&self.root)?));
        lock(&self.state).nvml = Some(nvml);
        Ok(nvml)
    }

    /// Initializes the library anew, if no GPU is being read, and lists the GPUs.
    fn begin_anew(&self, nvml: &'static Nvml) {
        let gpus = lock(&self.state).gpus.clone().unwrap_or_default();
        let unused: Option<Vec<_>> = gpus.iter().map(|gpu| gpu.forget_handles()).collect();
        let Some(unused) = unused else { return };
        if let Err(error) = initialize_anew(nvml) {
            tracing::debug!(%error, "the NVIDIA driver cannot be used");
        }
        drop(unused);
        self.list(nvml);
    }

    /// Lists the GPUs, and publishes each as soon as it has answered. A known GPU stays in the list: it may
    /// return. Returns false if the driver has lost all GPUs, as after it was loaded again.
    fn list(&self, nvml: &'static Nvml) -> bool {
        let count = match nvml.device_count() {
            Ok(count) => count,
            Err(error) => {
                if lock(&self.state).gpus.as_ref().map_or(true, Vec::is_empty) {
                    self.publish(Err(NoGpus::Driver(error.to_string())));
                }
                return !is_lost(&error);
            }
        };
        let known = lock(&self.state).gpus.clone().unwrap_or_default();
        if count == 0 && known.is_empty() {
            self.publish(Err(NoGpus::NoneListed));
            return true;
        }
        let mut gpus = known;
        let mut has_answered = false;
        for index in 0..count {
            let listed = nvml
                .device_by_index(index)
                .and_then(|gpu| Ok((devices(&gpu)?, gpu.minor_number().unwrap_or(index))));
            let (devices, minor) = match listed {
                Ok(listed) => listed,
                // One that does not answer now is listed when it does.
                Err(error) => {
                    has_answered |= !is_lost(&error);
                    continue;
                }
            };
            has_answered = true;
            let uuid = devices.first().map(|device| device.uuid.clone()).unwrap_or_default();
            let known = gpus.iter().position(|gpu| gpu.uuid() == uuid);
            let known = known.map(|position| gpus.remove(position));
            gpus.push(match known {
                Some(gpu) if (gpu.index, gpu.minor) == (index, minor) && gpu.devices == devices => gpu,
                other => {
                    let xid = other.map(|gpu| Arc::clone(&gpu.xid)).unwrap_or_default();
                    Arc::new(Gpu::new(nvml, (index, minor), devices, xid))
                }
            });
            gpus.sort_by(|one, other| (one.index, one.uuid()).cmp(&(other.index, other.uuid())));
            self.publish(Ok(gpus.clone()));
        }
        if gpus.is_empty() {
            self.publish(Err(NoGpus::NoneAnswers(count)));
        }
        has_answered
    }

    fn publish(&self, gpus: Result<Vec<Arc<Gpu>>, NoGpus>) {
        let mut state = lock(&self.state);
        let is_same = match (&state.gpus, &gpus) {
            (Ok(before), Ok(now)) => {
                before.len() == now.len()
                    && before.iter().zip(now).all(|(one, other)| Arc::ptr_eq(one, other))
            }
            (Err(before), Err(now)) => before == now,
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        };
        if !is_same {
            state.gpus = gpus;
            self.note_change();
        }
    }
}

/// The GPU itself, then its MIG devices.
fn devices(gpu: &Device<'static>) -> Result<Vec<Identity>, NvmlError> {
    let mut devices = vec![Identity { uuid: gpu.uuid()?, instance: None }];
    // An error means that the GPU cannot have MIG devices.
    for number in 0..gpu.mig_device_count().unwrap_or(0) {
        // The numbers have gaps.
        let Ok(device) = gpu.mig_device_by_index(number) else { continue };
        if let (Ok(uuid), Ok(instance)) = (device.uuid(), gpu_instance(&device)) {
            devices.push(Identity { uuid, instance: Some(instance) });
        }
    }
    Ok(devices)
}
