//! A running daemon, as the kernel shows it.

use std::os::unix::net::UnixStream;
use std::path::Path;

use procfs::process::Process;
use rustix::net::sockopt::socket_peercred;

/// Policy of sched(7).
const SCHED_FIFO: u32 = 1;

#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) uid: u32,
    /// Effective capabilities, one bit each; none if they are not known.
    pub(super) capabilities: Option<u64>,
    /// Highest real-time priority of its threads; none if none has one or that is not known.
    pub(super) rt_priority: Option<u32>,
    /// Its program was replaced since it started.
    pub(super) is_outdated: bool,
}

impl Daemon {
    /// None if no one listens at the socket.
    pub(super) fn at(socket: &Path) -> Option<Self> {
        let peer = socket_peercred(UnixStream::connect(socket).ok()?).ok()?;
        let process = Process::new(peer.pid.as_raw_nonzero().get()).ok();
        let process = process.as_ref();
        Some(Self {
            uid: peer.uid.as_raw(),
            capabilities: process.and_then(|process| Some(process.status().ok()?.capeff)),
            rt_priority: process.and_then(rt_priority),
            is_outdated: process
                .and_then(|process| std::fs::read_link(format!("/proc/{}/exe", process.pid())).ok())
                .is_some_and(|path| path.as_os_str().to_string_lossy().ends_with(" (deleted)")),
        })
    }

    /// `number` is that of capabilities(7).
    pub(super) fn has_capability(&self, number: u32) -> bool {
        self.capabilities.is_some_and(|bits| bits & (1 << number) != 0)
    }
}

fn rt_priority(process: &Process) -> Option<u32> {
    let stats = process.tasks().ok()?.flatten().filter_map(|task| task.stat().ok());
    stats.filter(|stat| stat.policy == Some(SCHED_FIFO)).filter_map(|stat| stat.rt_priority).max()
}
