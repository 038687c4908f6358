//! A working job, and an independent reader of its kernel files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use polymeter_e2e::cgroup::Job;
use polymeter_e2e::reference::Snapshot;
use polymeter_e2e::workload::Workload;

/// Work of the job between two snapshots, repeated.
const WORK: [&str; 3] = ["touch 20", "burn 5", "rest 40"];

/// A thread with the job's process and the reader. Both end with it.
pub(crate) struct Observer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Job, Vec<Snapshot>)>>,
}

impl Observer {
    pub(crate) fn start(job: Job) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut workload = Workload::start();
        job.enter(workload.pid());
        let thread = thread::spawn(move || {
            let mut snapshots = Vec::new();
            for work in WORK.into_iter().cycle() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                snapshots.push(Snapshot::take(&job));
                workload.execute(work);
            }
            (job, snapshots)
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends the work and returns the snapshots. The job still exists.
    pub(crate) fn end(mut self) -> (Job, Vec<Snapshot>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}
