//! Log of this machine's forks, by perf events that record them on each CPU. One log serves all jobs whose
//! processes are followed, and exists while there are any.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, Weak};

use perf_event::events::Software;
use perf_event::{Builder, Clock, Sampler};

use super::forks::Forks;
use crate::sources::lock::lock;

/// Room for the records of one CPU: some 500 processes between two looks.
const ROOM_BYTES: usize = 32 * 1024;

static LOG: Mutex<Weak<ForkLog>> = Mutex::new(Weak::new());

pub(super) struct ForkLog(Mutex<Open>);

impl fmt::Debug for ForkLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkLog").finish_non_exhaustive()
    }
}

struct Open {
    samplers: Vec<Sampler>,
    forks: Forks,
}

impl ForkLog {
    /// Begins the log if there is none; `None` without the right to record the forks of all processes.
    pub(super) fn of(cpus: &[usize]) -> Option<Arc<Self>> {
        let mut known = lock(&LOG);
        if let Some(log) = known.upgrade() {
            return Some(log);
        }
        let samplers = cpus.iter().filter_map(|cpu| match open(*cpu) {
            // A CPU that is offline.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
            opened => Some(opened),
        });
        let samplers: Vec<Sampler> = samplers.collect::<io::Result<_>>().ok()?;
        if samplers.is_empty() {
            return None;
        }
        let log = Arc::new(Self(Mutex::new(Open { samplers, forks: Forks::begin() })));
        *known = Arc::downgrade(&log);
        Some(log)
    }

    /// Takes the records of all CPUs, and passes the forks to `act`.
    pub(super) fn with<R>(&self, act: impl FnOnce(&Forks) -> R) -> R {
        let Open { samplers, forks } = &mut *lock(&self.0);
        forks.begin_look();
        for sampler in samplers {
            while let Some(record) = sampler.next_record() {
                forks.take(record.ty(), &record.to_contiguous());
            }
        }
        act(forks)
    }
}

/// Opens an event that counts nothing, and records forks on one CPU.
fn open(cpu: usize) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::DUMMY);
    builder.any_pid().one_cpu(cpu).task(true).clockid(Clock::BOOTTIME).enabled(true);
    builder.build()?.sampled(ROOM_BYTES)
}
