//! A job whose cgroups are created and removed all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::pause;
use polymeter_e2e::random::Random;

pub(crate) const ID: &str = "2";

/// How long its cgroups exist and do not exist, in milliseconds. Some times are too short for an agent to
/// notice.
const EXISTS_MS: [u64; 4] = [1, 30, 200, 900];
const ABSENT_MS: [u64; 4] = [0, 5, 40, 300];

/// Thread that creates and removes the cgroups.
pub(crate) struct CgroupChurn {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u32>>,
}

impl CgroupChurn {
    pub(crate) fn start(cgroups: &Arc<TestCgroups>, seed: u64) -> Self {
        let (stop, cgroups) = (Arc::new(AtomicBool::new(false)), Arc::clone(cgroups));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut random, mut cycles) = (Random::new(seed), 0);
            while !stopped.load(Ordering::Relaxed) {
                let job = cgroups.job(ID);
                pause(EXISTS_MS[random.choose(EXISTS_MS.len())]);
                job.remove();
                pause(ABSENT_MS[random.choose(ABSENT_MS.len())]);
                cycles += 1;
            }
            cycles
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends the thread. Returns how often the cgroups were created.
    pub(crate) fn end(mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for CgroupChurn {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}
