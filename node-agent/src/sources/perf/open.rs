//! Opening groups of perf events: perf_event_open(2).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use perf_event::events::Raw;
use perf_event::{Builder, Counter, ReadFormat};
use polymeter_proto::catalogue::Definition;

use super::event_config::Config;

#[derive(Debug, Clone)]
pub enum PerfTarget {
    /// All processes of a cgroup of version 2, or of the `perf_event` controller of version 1.
    Cgroup(PathBuf),
    /// A process and all that it starts from now on.
    Process(u32),
    /// The whole node: what the units of a PMU outside of the cores count.
    Node,
}

/// Events that one `read` gives.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) leader: Counter,
    /// Held open: an event that is closed leaves its group.
    pub(crate) _members: Vec<Counter>,
    /// Position of the event, if it is the only one: inherited events cannot be read as groups.
    pub(crate) single: Option<usize>,
    /// CPU on which it counts; `None` for the events of a process, which count on any.
    pub(crate) cpu: Option<usize>,
}

impl Group {
    /// Reads its only event: the value, and the times for which it was enabled and running. Does not
    /// allocate.
    pub(crate) fn read_single(&self) -> Option<[u64; 3]> {
        #[expect(unsafe_code, reason = "the crate lends the descriptor as a bare number only")]
        // SAFETY: `self.leader` owns the descriptor and outlives this borrow.
        let leader = unsafe { BorrowedFd::borrow_raw(self.leader.as_raw_fd()) };
        let mut words = [0; 24];
        let len = rustix::io::read(leader, &mut words).ok()?;
        let mut words = words.get(..len)?.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        Some([words.next()?, words.next()?, words.next()?])
    }
}

pub(crate) struct Opener<'a> {
    pub(crate) target: &'a PerfTarget,
    pub(crate) cgroup: Option<File>,
    /// True if the kernel itself may not be counted: kernel.perf_event_paranoid is 2 or more for this user.
    pub(crate) user_only: bool,
}

impl Opener<'_> {
    /// Opens an event for trial, which also determines whether the kernel may be counted.
    pub(crate) fn probe(&mut self, config: Config, cpus: &[usize]) -> io::Result<()> {
        let cpu = cpus.first().copied();
        match self.open_one(config, cpu, None) {
            Err(error) if error.raw_os_error() == Some(libc::EACCES) && !self.user_only => {
                self.user_only = true;
                self.open_one(config, cpu, None).map(drop)
            }
            opened => opened.map(drop),
        }
    }

    pub(crate) fn open_all(&self, events: &[(Definition, Config)], cpus: &[usize]) -> io::Result<Vec<Group>> {
        if matches!(self.target, PerfTarget::Process(_)) {
            let groups = events.iter().enumerate().map(|(position, (_, config))| {
                let leader = self.open_one(*config, None, None)?;
                Ok(Group { leader, _members: Vec::new(), single: Some(position), cpu: None })
            });
            return groups.collect();
        }
        let configs: Vec<Config> = events.iter().map(|(_, config)| *config).collect();
        let mut groups = Vec::new();
        for cpu in cpus {
            match self.open_group(&configs, *cpu) {
                Ok(Some(group)) => groups.push(group),
                Ok(None) => {}
                // A CPU that is offline has no events and counts nothing.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(groups)
    }

    /// Opens events as a group on one CPU; `None` without events.
    pub(crate) fn open_group(&self, events: &[Config], cpu: usize) -> io::Result<Option<Group>> {
        let Some((first, rest)) = events.split_first() else { return Ok(None) };
        let leader = self.open_one(*first, Some(cpu), None)?;
        let mut group = Group { leader, _members: Vec::new(), single: None, cpu: Some(cpu) };
        for config in rest {
            let member = self.open_one(*config, Some(cpu), Some(&mut group.leader))?;
            group._members.push(member);
        }
        Ok(Some(group))
    }

    fn open_one(
        &self,
        config: Config,
        cpu: Option<usize>,
        leader: Option<&mut Counter>,
    ) -> io::Result<Counter> {
        let Config { kind, config, config1, config2, .. } = config;
        let mut builder = Builder::new(Raw::new(config).config1(config1).config2(config2));
        builder.attrs_mut().type_ = kind;
        let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        match (&self.cgroup, self.target) {
            (Some(cgroup), _) => {
                builder.observe_cgroup(cgroup);
                // Set directly, because the builder would also request the events' ids, which doubles the
                // size of a read.
                builder.attrs_mut().read_format = (ReadFormat::GROUP | times).bits();
            }
            (None, PerfTarget::Process(pid)) => {
                builder.observe_pid(i32::try_from(*pid).unwrap_or(-1)).inherit(true);
                builder.attrs_mut().read_format = times.bits();
            }
            (None, PerfTarget::Node) => {
                // Units outside of the cores tell no mode of a CPU from another, and refuse to exclude one.
                builder.any_pid().exclude_hv(false);
                builder.attrs_mut().read_format = (ReadFormat::GROUP | times).bits();
            }
            (None, PerfTarget::Cgroup(_)) => return Err(io::ErrorKind::NotFound.into()),
        }
        match cpu.filter(|_| !matches!(self.target, PerfTarget::Process(_))) {
            Some(cpu) => builder.one_cpu(cpu),
            None => builder.any_cpu(),
        };
        builder.exclude_kernel(self.user_only).enabled(true);
        match leader {
            None => builder.build(),
            Some(leader) => builder.build_with_group(leader),
        }
    }
}
