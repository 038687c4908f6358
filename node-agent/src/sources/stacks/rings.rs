//! The events that sample a job, and the ring of each CPU into which the kernel writes.
//!
//! The kernel wakes nobody: a ring has room for all that can be sampled between two reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use perf_event::events::Software;
use perf_event::{Builder, Clock, Counter, SampleFlag, Sampler};
use polymeter_proto::period::Period;

use super::records::{DEPTH, Form, Record, Timed, parse};
use super::registers;
use crate::sources::process_list::ProcessList;

/// The room for the records of one CPU, in bytes; with the head of the ring as much as an ordinary user may
/// lock by default (`kernel.perf_event_mlock_kb`).
const RING_BYTES: usize = 256 * 1024;
/// The smallest room, for a user who may lock less.
const RING_BYTES_MIN: usize = 16 * 1024;

/// The most bytes of a sample: its addresses, those that separate kernel and user, and its head.
const SAMPLE_BYTES: u64 = 8 * (DEPTH as u64 + 2) + 48;

/// The bytes of a stack that the kernel copies with each sample: as many as `perf record` takes. They suffice
/// for dozens of functions.
const STACK_BYTES: u16 = 8192;

/// What tells the callers of a sampled function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Callers {
    /// The kernel follows frame pointers.
    FramePointers,
    /// The kernel copies registers and stack, which are unwound by the tables of each file.
    Tables,
}

impl Callers {
    /// Returns the longest time between two reads during which no ring overflows, in nanoseconds.
    pub(super) fn longest_gap_ns(self, period: Period) -> u64 {
        let registers_bytes = 8 * u64::from(1 + registers::SAMPLED.count_ones());
        let copied_bytes = match self {
            Self::FramePointers => 0,
            Self::Tables => registers_bytes + 8 + u64::from(STACK_BYTES) + 8,
        };
        // A quarter is left for the records of mappings and processes.
        let samples = RING_BYTES as u64 / 4 * 3 / (SAMPLE_BYTES + copied_bytes);
        period.as_nanos().saturating_mul(samples)
    }

    /// Returns the form of the samples of [`event`].
    fn form(self) -> Form {
        Form { depth: DEPTH.into(), has_stack: self == Self::Tables }
    }
}

/// Returns the CPU time between two samples, in nanoseconds: one percent more than the period on half of the
/// CPUs, and one percent less on the others. At exactly the period, a loop that takes a multiple of it would
/// always be sampled at the same places.
fn nanos_between(period: Period, cpu: usize) -> u64 {
    let (nanos, percent) = (period.as_nanos(), period.as_nanos() / 97);
    if cpu.is_multiple_of(2) { nanos + percent } else { nanos - percent }
}

/// The processes that are sampled.
#[derive(Debug)]
pub(super) enum Sampled {
    /// Those of a cgroup of version 2, or of the `perf_event` controller of version 1.
    Cgroup(PathBuf),
    /// Those of a list, and all that they start.
    Listed(ProcessList),
}

/// How a job is sampled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampling {
    pub(super) callers: Callers,
    pub(super) period: Period,
    /// True if the kernel's own part is left out.
    pub(super) user_only: bool,
}

/// The events of one job.
pub(super) struct Rings {
    form: Form,
    /// One for each CPU.
    samplers: Vec<Sampler>,
    tasks: Option<Tasks>,
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").field("cpus", &self.samplers.len()).finish_non_exhaustive()
    }
}

/// The threads that have events of their own, which are inherited by what they start.
struct Tasks {
    cpus: Vec<usize>,
    sampling: Sampling,
    events: BTreeMap<u32, Vec<Counter>>,
    /// Threads that were started by one with events, and have inherited them.
    inherited: BTreeSet<u32>,
    /// Threads that had no events at the last search: a record may say yet that they inherited them.
    without: BTreeSet<u32>,
    descriptors: usize,
}

/// Tries out whether a process of this user, or a cgroup, can be sampled. Returns true if the kernel's own
/// part must be left out.
pub(super) fn probe(cgroup: Option<&Path>, cpu: usize, callers: Callers) -> io::Result<bool> {
    let cgroup = cgroup.map(File::open).transpose()?;
    let open = |user_only| {
        let mut builder =
            event(Software::CPU_CLOCK, cpu, Sampling { callers, period: Period::SECOND, user_only });
        match &cgroup {
            Some(cgroup) => builder.observe_cgroup(cgroup),
            None => builder.observe_self(),
        };
        builder.build().map(drop)
    };
    match open(false) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => open(true).map(|()| true),
        opened => opened.map(|()| false),
    }
}

/// Returns an event whose records have the form that `records` parses.
fn event<'a>(event: Software, cpu: usize, sampling: Sampling) -> Builder<'a> {
    let Sampling { callers, period, user_only } = sampling;
    let mut builder = Builder::new(event);
    let sample = SampleFlag::IP | SampleFlag::TID | SampleFlag::TIME | SampleFlag::CALLCHAIN;
    builder.one_cpu(cpu).sample(sample).sample_id_all(true).clockid(Clock::MONOTONIC);
    builder.mmap(true).mmap2(true).comm(true).comm_exec(true).task(true);
    builder.exclude_kernel(user_only).exclude_hv(true).enabled(true);
    builder.sample_period(nanos_between(period, cpu));
    if callers == Callers::Tables {
        builder.sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER).exclude_callchain_user(true);
        builder.sample_regs_user(registers::SAMPLED).sample_stack_user(STACK_BYTES.into());
    }
    // Nobody waits: a wake-up is due when the ring is full.
    builder.wakeup_watermark(RING_BYTES);
    builder
}

fn sampler(builder: &Builder<'_>) -> io::Result<Sampler> {
    let mut bytes = RING_BYTES;
    loop {
        match builder.build()?.sampled(bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && bytes > RING_BYTES_MIN => bytes /= 2,
            opened => return opened,
        }
    }
}

impl Rings {
    /// Opens the events of a job, with at most `descriptors`.
    pub(super) fn open(
        sampled: &Sampled,
        cpus: &[usize],
        sampling: Sampling,
        descriptors: usize,
    ) -> io::Result<Self> {
        let cgroup = match sampled {
            Sampled::Cgroup(path) => Some(File::open(path)?),
            Sampled::Listed(_) => None,
        };
        let mut samplers = Vec::with_capacity(cpus.len());
        let mut online = Vec::with_capacity(cpus.len());
        for cpu in cpus {
            let opened = match &cgroup {
                Some(cgroup) => sampler(event(Software::CPU_CLOCK, *cpu, sampling).observe_cgroup(cgroup)),
                // Of this thread nothing is recorded: the event lends its ring to those of the job.
                None => {
                    let mut builder = event(Software::DUMMY, *cpu, Sampling { user_only: true, ..sampling });
                    builder.mmap(false).mmap2(false).comm(false).comm_exec(false).task(false);
                    sampler(builder.observe_self())
                }
            };
            match opened {
                // A CPU that is offline.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                opened => samplers.push(opened?),
            }
            online.push(*cpu);
        }
        let tasks = matches!(sampled, Sampled::Listed(_)).then(|| Tasks {
            descriptors: descriptors.saturating_sub(samplers.len()),
            cpus: online,
            sampling,
            events: BTreeMap::new(),
            inherited: BTreeSet::new(),
            without: BTreeSet::new(),
        });
        Ok(Self { form: sampling.callers.form(), samplers, tasks })
    }

    /// Takes all records, in the order of each CPU.
    pub(super) fn drain(&mut self) -> Vec<Timed> {
        let mut records = Vec::new();
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                records.extend(parse(record.ty(), record.misc(), &record.to_contiguous(), self.form));
            }
        }
        if let Some(tasks) = &mut self.tasks {
            tasks.take(&records);
        }
        records
    }

    /// Opens events for the processes of the list that have none. Nothing is to be found for a cgroup.
    pub(super) fn follow(&mut self, sampled: &mut Sampled, proc: &Path) {
        if let (Some(tasks), Sampled::Listed(list)) = (&mut self.tasks, sampled) {
            tasks.follow(&list.list(proc).unwrap_or_default(), proc, &self.samplers);
        }
    }
}

impl Tasks {
    fn take(&mut self, records: &[Timed]) {
        for Timed { record, .. } in records {
            if let Record::Fork { tid, .. } = record {
                self.inherited.insert(*tid);
            } else if let Record::Exit { tid } = record {
                self.inherited.remove(tid);
                self.events.remove(tid);
            }
        }
    }

    /// Opens events for all threads of `processes` that have had none at the last search, too: the record of
    /// a thread that inherited them is read by then. At first all have none.
    fn follow(&mut self, processes: &BTreeSet<u32>, proc: &Path, rings: &[Sampler]) {
        let threads: BTreeSet<u32> = processes.iter().flat_map(|pid| threads(proc, *pid)).collect();
        let is_first = self.events.is_empty() && self.inherited.is_empty();
        let has_none = |tid: &u32| !self.events.contains_key(tid) && !self.inherited.contains(tid);
        let without: BTreeSet<u32> = threads.iter().copied().filter(has_none).collect();
        let due = without.iter().filter(|tid| is_first || self.without.contains(tid));
        for tid in due {
            if self.events.len().saturating_add(1) * self.cpus.len() > self.descriptors {
                break;
            }
            // A thread that has ended, or that this user may not sample, has no samples.
            if let Ok(events) = open_thread(*tid, &self.cpus, self.sampling, rings) {
                self.events.insert(*tid, events);
            }
        }
        self.events.retain(|tid, _| threads.contains(tid));
        self.inherited.retain(|tid| threads.contains(tid));
        self.without = without;
    }
}

fn open_thread(tid: u32, cpus: &[usize], sampling: Sampling, rings: &[Sampler]) -> io::Result<Vec<Counter>> {
    let mut events = Vec::with_capacity(cpus.len());
    for (cpu, ring) in cpus.iter().zip(rings) {
        let mut builder = event(Software::CPU_CLOCK, *cpu, sampling);
        builder.observe_pid(i32::try_from(tid).unwrap_or(-1)).inherit(true);
        // Enabled with its ring: a sample without one is lost.
        let mut counter = builder.enabled(false).build()?;
        write_to(&counter, ring)?;
        counter.enable()?;
        events.push(counter);
    }
    Ok(events)
}

/// `PERF_EVENT_IOC_SET_OUTPUT`.
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// Makes an event write its records to the ring of another on the same CPU.
fn write_to(event: &Counter, ring: &Sampler) -> io::Result<()> {
    #[expect(unsafe_code, reason = "no safe crate has this operation of perf events")]
    // SAFETY: the operation takes a descriptor by value, and both outlive the call.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, ring.as_raw_fd()) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn threads(proc: &Path, pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(proc.join(format!("{pid}/task"))).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
