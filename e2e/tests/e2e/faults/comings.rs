//! A job whose cgroups come and go all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::pause;
use polymeter_e2e::random::Random;

/// Its id.
pub(crate) const ID: &str = "2";

/// How long its cgroups are there, and how long they are not, in milliseconds: also less than an agent needs to see it.
const STAY_MS: [u64; 4] = [1, 30, 200, 900];
const PAUSE_MS: [u64; 4] = [0, 5, 40, 300];

/// The thread that makes and removes them.
pub(crate) struct Comings {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u32>>,
}

impl Comings {
    pub(crate) fn start(cgroups: &Arc<TestCgroups>, seed: u64) -> Self {
        let (stop, cgroups) = (Arc::new(AtomicBool::new(false)), Arc::clone(cgroups));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut random, mut lives) = (Random(seed.max(1)), 0);
            while !stopped.load(Ordering::Relaxed) {
                let job = cgroups.job(ID);
                pause(STAY_MS[random.choose(STAY_MS.len())]);
                job.remove();
                pause(PAUSE_MS[random.choose(PAUSE_MS.len())]);
                lives += 1;
            }
            lives
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends it, and returns how often the cgroups came.
    pub(crate) fn end(mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Comings {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}
