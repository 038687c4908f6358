//! Thread that receives the records of ended threads.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, Weak};

use polymeter_service::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{self as kernel, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with, sockopt,
};
use tracing::warn;

use super::exited_jobs::Jobs;
use super::netlink::{Answer, answers, family_request, register_request};
use crate::sources::kernel_text;
use crate::sources::lock::lock;
use crate::sources::process_list::listed;

/// Room for records that wait: some thousand.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;

/// Room for one message: the kernel collects records in pages.
const MESSAGE_BYTES: usize = 16 * 1024;

/// Time between two lists of the jobs' processes, and longest time until the thread of an unneeded listener
/// ends.
const LIST_EVERY_NS: u64 = 1_000_000_000;

/// Receives the records of ended threads, and counts them for their jobs.
#[derive(Debug, Default)]
pub(in crate::sources) struct Listener {
    jobs: Mutex<Jobs>,
    /// How often the kernel dropped records.
    overruns: AtomicU64,
    knows_processes: AtomicBool,
    is_overrun_logged: AtomicBool,
    /// True if the form of the kernel's records is not known.
    is_unreadable: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::sources) enum ListenError {
    #[error("cannot listen to taskstats: {0}")]
    Kernel(#[from] Errno),
    #[error("taskstats needs AF_NETLINK in RestrictAddressFamilies= of the agent's systemd unit")]
    AddressFamily,
    #[error("this kernel has no taskstats (CONFIG_TASKSTATS)")]
    Missing,
    #[error("cannot find the CPUs for taskstats: {0}")]
    Cpus(io::Error),
    #[error("taskstats needs the capability CAP_NET_ADMIN")]
    Capability,
    #[error("taskstats is not available in a container: it needs the first PID and user namespace")]
    Container,
    #[error("cannot start a thread for taskstats: {0}")]
    Thread(io::Error),
}

impl Listener {
    /// Registers with the kernel and starts the thread. It asks the kernel only, and does not block.
    pub(in crate::sources) fn start(sys: &Path, proc: &Path) -> Result<Arc<Self>, ListenError> {
        let socket = register(sys)?;
        let listener = Arc::new(Self::default());
        let weak = Arc::downgrade(&listener);
        let proc = proc.to_owned();
        let thread = std::thread::Builder::new().name("taskstats".to_owned());
        thread.spawn(move || serve(&socket, &weak, &proc)).map_err(ListenError::Thread)?;
        Ok(listener)
    }

    pub(in crate::sources) fn with_jobs<R>(&self, act: impl FnOnce(&mut Jobs) -> R) -> R {
        act(&mut lock(&self.jobs))
    }

    pub(in crate::sources) const fn overruns(&self) -> &AtomicU64 {
        &self.overruns
    }

    pub(in crate::sources) fn knows_processes(&self) -> bool {
        self.knows_processes.load(Relaxed)
    }

    /// True if the form of records is not known, so that nothing can be counted.
    pub(in crate::sources) fn is_unreadable(&self) -> bool {
        self.is_unreadable.load(Relaxed)
    }

    pub(super) fn take(&self, bytes: &[u8], proc: &Path) {
        for answer in answers(bytes) {
            if answer == Answer::Unreadable && !self.is_unreadable.swap(true, Relaxed) {
                warn!(
                    "the records of ended threads have a form that is not known, as before Linux 4.20; exited.* is absent"
                );
            }
            if let Answer::Ended(record) = answer {
                if record.is_last.is_some() {
                    self.knows_processes.store(true, Relaxed);
                }
                self.with_jobs(|jobs| {
                    jobs.count(&record, |pid| kernel_text::text(&proc.join(format!("{pid}/cgroup"))).ok())
                });
            }
        }
    }

    fn note_overrun(&self) {
        self.overruns.fetch_add(1, Relaxed);
        if !self.is_overrun_logged.swap(true, Relaxed) {
            warn!(
                "the kernel has dropped records of ended threads: too many end at a time; exited.* is too low"
            );
        }
    }

    fn list(&self) {
        let tops: Vec<(u64, PathBuf)> = self.with_jobs(|jobs| {
            jobs.by_number.iter().filter_map(|(number, job)| Some((*number, job.top.clone()?))).collect()
        });
        for (number, top) in tops {
            let processes = listed(&top).unwrap_or_default();
            self.with_jobs(|jobs| {
                if let Some(job) = jobs.by_number.get_mut(&number) {
                    // A process of the last list may have ended meanwhile, and its record may follow.
                    job.processes = processes;
                }
            });
        }
    }
}

/// Receives until no job needs the listener any more.
fn serve(socket: &OwnedFd, listener: &Weak<Listener>, proc: &Path) {
    let mut buffer = vec![0_u8; MESSAGE_BYTES];
    let mut list_at_ns = 0;
    let wait = Timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        // An interrupted wait is repeated.
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)).ok();
        let Some(listener) = listener.upgrade() else { return };
        loop {
            match recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((_, length)) => listener.take(buffer.get(..length).unwrap_or_default(), proc),
                Err(Errno::NOBUFS) => listener.note_overrun(),
                Err(_) => break,
            }
        }
        let now_ns = clock::monotonic_ns();
        if now_ns >= list_at_ns {
            list_at_ns = now_ns.saturating_add(LIST_EVERY_NS);
            listener.list();
        }
    }
}

/// Opens a socket that receives the records of all CPUs.
fn register(sys: &Path) -> Result<OwnedFd, ListenError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(kernel::GENERIC));
    let socket = socket.map_err(|errno| match errno {
        Errno::AFNOSUPPORT => ListenError::AddressFamily,
        other => other.into(),
    })?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    // Without the right to it the kernel's default is the room.
    sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES).ok();
    let family = ask(&socket, &family_request()).and_then(|answers| {
        let family = answers.into_iter().find_map(|answer| match answer {
            Answer::Family(family) => Some(family),
            Answer::Done(_) | Answer::Ended(_) | Answer::Unreadable => None,
        });
        family.ok_or(Errno::NOENT)
    });
    let family = family.map_err(|errno| match errno {
        Errno::NOENT => ListenError::Missing,
        other => other.into(),
    })?;
    let cpus = kernel_text::text(&sys.join("devices/system/cpu/possible")).map_err(ListenError::Cpus)?;
    ask(&socket, &register_request(family, cpus.trim())).map_err(|errno| match errno {
        Errno::PERM => ListenError::Capability,
        Errno::INVAL => ListenError::Container,
        other => other.into(),
    })?;
    Ok(socket)
}

/// Sends a request, and returns the answers to it. The kernel answers while it takes the request, so that
/// nothing waits.
fn ask(socket: &OwnedFd, request: &[u8]) -> Result<Vec<Answer>, Errno> {
    sendto(socket, request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = vec![0_u8; MESSAGE_BYTES];
    let mut all = Vec::new();
    loop {
        let (_, length) = recv(socket, &mut *buffer, RecvFlags::DONTWAIT)?;
        for answer in answers(buffer.get(..length).unwrap_or_default()) {
            match answer {
                Answer::Done(Ok(())) => return Ok(all),
                Answer::Done(Err(code)) => return Err(Errno::from_raw_os_error(code)),
                answer @ (Answer::Family(_) | Answer::Ended(_) | Answer::Unreadable) => all.push(answer),
            }
        }
    }
}
