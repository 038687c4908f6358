//! Events that sample a job, and the ring of each CPU into which the kernel writes.
//!
//! The kernel wakes nobody: a ring has room for all that can be sampled between two reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use perf_event::events::Software;
use perf_event::{Builder, Clock, Counter, SampleFlag, Sampler};
use polymeter_proto::period::Period;
use polymeter_service::clock;

use super::records::{DEPTH, Form, Record, Timed, parse};
use super::registers;
use crate::sources::process_files::threads;
use crate::sources::process_list::ProcessList;

/// Room for the records of one CPU; with the head of the ring as much as an ordinary user may lock by default
/// (`kernel.perf_event_mlock_kb`).
const RING_BYTES: usize = 256 * 1024;
/// Room for a user who may lock less.
const RING_BYTES_MIN: usize = 16 * 1024;

/// Room for the samples of waits on one CPU: there may be many switches between two reads.
const WAIT_RING_BYTES: usize = 512 * 1024;

/// Bytes of a stack that the kernel copies at each switch. They suffice for most programs.
const WAIT_STACK_BYTES: u16 = 4096;

/// Shortest and longest time between two reads of the samples of waits: the rings have room for about 2000
/// switches with their stacks a second and CPU, and for 50 000 times of switches. What is beyond is lost, so
/// that a storm of switches costs the agent no more.
const WAIT_GAPS_NS: (u64, u64) = (50_000_000, 100_000_000);

/// Bound of a sample: its addresses, those that separate kernel and user, and its head.
const SAMPLE_BYTES: u64 = 8 * (DEPTH as u64 + 2) + 48;

/// Bytes of a stack that the kernel copies with each sample: as many as `perf record` takes. They suffice for
/// dozens of functions.
const STACK_BYTES: u16 = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Threads on CPUs, once a period.
    Cpu,
    /// Threads that leave their CPUs, at each switch; the times of their returns are recorded, too.
    Waits,
}

/// What tells the callers of a sampled function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Callers {
    /// The kernel follows frame pointers.
    FramePointers,
    /// The kernel copies registers and stack, which are unwound by the tables of each file.
    Tables,
}

impl What {
    /// Number of rings of a CPU, and of events of a thread there.
    pub(super) const fn rings(self) -> usize {
        match self {
            Self::Cpu => 1,
            Self::Waits => 2,
        }
    }
}

impl Sampling {
    /// Longest time between two reads: no ring overflows but with many switches.
    pub(super) fn longest_gap_ns(self) -> u64 {
        if self.what == What::Waits {
            let (least_ns, most_ns) = WAIT_GAPS_NS;
            return self.period.as_nanos().saturating_mul(5).clamp(least_ns, most_ns);
        }
        let registers_bytes = 8 * u64::from(1 + registers::SAMPLED.count_ones());
        let copied_bytes = match self.callers {
            Callers::FramePointers => 0,
            Callers::Tables => registers_bytes + 8 + u64::from(STACK_BYTES) + 8,
        };
        // A quarter is left for the records of mappings and processes.
        let samples = RING_BYTES as u64 / 4 * 3 / (SAMPLE_BYTES + copied_bytes);
        let samples = samples.min(SAME_SAMPLES_MOST);
        self.period.as_nanos().saturating_mul(samples)
    }

    fn form(self) -> Form {
        Form { depth: DEPTH.into(), has_stack: self.callers == Callers::Tables }
    }
}

/// CPU time between the first samples: one percent more than the period on half of the CPUs, and one percent
/// less on the others.
fn first_nanos(period: Period, cpu: usize) -> u64 {
    let (nanos, percent) = (period.as_nanos(), period.as_nanos() / 97);
    if cpu.is_multiple_of(2) { nanos + percent } else { nanos - percent }
}

/// Samples of an event with the same time between them, at least; and at most, if the reads are on time.
/// While a loop is in step with one of these times, all samples are at the same place of it: with 100 to 440
/// of them, 3,200 samples missed the share of a function by up to 6 points.
const SAME_SAMPLES: u64 = 20;
const SAME_SAMPLES_MOST: u64 = 64;

/// CPU time between the samples of an event. It changes: if it were always the same, a loop that takes a
/// multiple of it would be sampled at the same places.
#[derive(Debug)]
struct Spacing {
    nanos: u64,
    /// Samples with this time between them.
    samples: u64,
    /// Number of earlier times.
    number: u64,
    /// CPU time for which no sample stands, since samples stand for a period each. Negative if they stand for
    /// more.
    unsampled_ns: i64,
}

impl Spacing {
    fn first(period: Period, cpu: usize) -> Self {
        Self { nanos: first_nanos(period, cpu), samples: 0, number: 0, unsampled_ns: 0 }
    }

    /// Changes the time by up to an eighth of the period, so that samples and CPU time agree again.
    fn change(&mut self, period: Period) {
        let period_ns = period.as_nanos();
        let used_ns = self.samples * self.nanos;
        // The kernel discards what has passed since the last sample: half of the time in the mean.
        let used_ns = used_ns + self.nanos / 2;
        self.unsampled_ns += used_ns.cast_signed() - (self.samples * period_ns).cast_signed();
        self.number += 1;
        self.samples = 0;
        // Near the multiples of the golden ratio, whose fractions are spread evenly.
        let difference_ns = period_ns / 8 * (self.number * 618 % 1000) / 1000;
        self.nanos =
            if self.unsampled_ns > 0 { period_ns - difference_ns } else { period_ns + difference_ns };
    }
}

#[derive(Debug)]
pub(super) enum Sampled {
    /// Those of a cgroup of version 2, or of the `perf_event` controller of version 1.
    Cgroup(PathBuf),
    /// Those of a list, and all that they start.
    Listed(ProcessList),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Sampling {
    pub(super) what: What,
    pub(super) callers: Callers,
    pub(super) period: Period,
    /// True if the kernel's own part is left out.
    pub(super) user_only: bool,
}

pub(super) struct Rings {
    sampling: Sampling,
    cpus: Vec<usize>,
    /// By number of the CPU in the list, and by thread if each has an event.
    spacings: BTreeMap<(usize, u32), Spacing>,
    /// One for each CPU.
    samplers: Vec<Sampler>,
    /// Rings of switches, mappings and processes for waits: one for each CPU. Large samples leave their room
    /// alone.
    switches: Vec<SwitchRing>,
    tasks: Option<Tasks>,
}

struct SwitchRing {
    sampler: Sampler,
    bytes: usize,
    last_ns: u64,
    /// True if it was full at the last read, so that what was lost is of before that.
    was_full: bool,
}

/// A ring with less room than this has none for another record, and the number of those that were lost.
const FULL_BYTES: usize = 128;

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").field("cpus", &self.samplers.len()).finish_non_exhaustive()
    }
}

/// Threads with events of their own, which are inherited by what they start.
struct Tasks {
    events: BTreeMap<u32, Vec<Counter>>,
    /// Threads that were started by one with events, and have inherited them.
    inherited: BTreeSet<u32>,
    /// Threads that had no events at the last search: a record may say yet that they inherited them.
    without: BTreeSet<u32>,
    descriptors: usize,
}

/// Tries out whether a process of this user, or a cgroup, can be sampled. Returns true if the kernel's own
/// part must be left out.
pub(super) fn probe(cgroup: Option<&Path>, cpu: usize, sampling: Sampling) -> io::Result<bool> {
    let cgroup = cgroup.map(File::open).transpose()?;
    let open = |user_only| {
        let mut builder = samples(cpu, Sampling { user_only, ..sampling });
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

/// An event whose records have the form that `records` parses.
fn event<'a>(event: Software, cpu: usize, sampling: Sampling) -> Builder<'a> {
    let mut builder = Builder::new(event);
    let sample = SampleFlag::IP | SampleFlag::TID | SampleFlag::TIME | SampleFlag::CALLCHAIN;
    builder.one_cpu(cpu).sample(sample).sample_id_all(true).clockid(Clock::MONOTONIC);
    builder.exclude_kernel(sampling.user_only).exclude_hv(true).enabled(true);
    // Nobody waits: a wake-up is due when the ring is full.
    builder.wakeup_watermark(RING_BYTES);
    builder
}

fn follow_processes(builder: &mut Builder<'_>) {
    builder.mmap(true).mmap2(true).comm(true).comm_exec(true).task(true);
}

fn samples<'a>(cpu: usize, sampling: Sampling) -> Builder<'a> {
    let (software, period, stack_bytes) = match sampling.what {
        What::Cpu => (Software::CPU_CLOCK, first_nanos(sampling.period, cpu), STACK_BYTES),
        What::Waits => (Software::CONTEXT_SWITCHES, 1, WAIT_STACK_BYTES),
    };
    let mut builder = event(software, cpu, sampling);
    builder.sample_period(period);
    if sampling.what == What::Cpu {
        follow_processes(&mut builder);
    }
    if sampling.callers == Callers::Tables {
        builder.sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER).exclude_callchain_user(true);
        builder.sample_regs_user(registers::SAMPLED).sample_stack_user(stack_bytes.into());
    }
    builder
}

fn switches<'a>(cpu: usize, sampling: Sampling) -> Builder<'a> {
    let mut builder = event(Software::DUMMY, cpu, Sampling { user_only: true, ..sampling });
    follow_processes(&mut builder);
    builder.context_switch(true);
    builder
}

/// Opens an event with a ring. Returns it with the room of the ring.
fn sampler(builder: &Builder<'_>, ring_bytes: usize) -> io::Result<(Sampler, usize)> {
    let mut bytes = ring_bytes;
    loop {
        match builder.build()?.sampled(bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && bytes > RING_BYTES_MIN => bytes /= 2,
            opened => return opened.map(|sampler| (sampler, bytes)),
        }
    }
}

/// Opens an event of a cgroup with a ring. Without a cgroup the event is of this thread: it records nothing,
/// and lends its ring to the events of the job.
fn open_ring<'a>(
    mut builder: Builder<'a>,
    cgroup: Option<&'a File>,
    (cpu, sampling): (usize, Sampling),
    ring_bytes: usize,
) -> io::Result<(Sampler, usize)> {
    match cgroup {
        Some(cgroup) => sampler(builder.observe_cgroup(cgroup), ring_bytes),
        None => {
            let mut lender = event(Software::DUMMY, cpu, Sampling { user_only: true, ..sampling });
            sampler(lender.observe_self(), ring_bytes)
        }
    }
}

impl Rings {
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
        let mut rings = Self {
            sampling,
            cpus: Vec::with_capacity(cpus.len()),
            spacings: BTreeMap::new(),
            samplers: Vec::new(),
            switches: Vec::new(),
            tasks: None,
        };
        for cpu in cpus {
            let ring_bytes = if sampling.what == What::Waits { WAIT_RING_BYTES } else { RING_BYTES };
            let of_samples = samples(*cpu, sampling);
            match open_ring(of_samples, cgroup.as_ref(), (*cpu, sampling), ring_bytes) {
                // A CPU that is offline.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                opened => rings.samplers.push(opened?.0),
            }
            if sampling.what == What::Waits {
                let of_switches = switches(*cpu, sampling);
                let opened = open_ring(of_switches, cgroup.as_ref(), (*cpu, sampling), RING_BYTES)?;
                let (sampler, bytes) = opened;
                rings.switches.push(SwitchRing { sampler, bytes, last_ns: 0, was_full: false });
            }
            rings.cpus.push(*cpu);
        }
        rings.tasks = matches!(sampled, Sampled::Listed(_)).then(|| Tasks {
            descriptors: descriptors.saturating_sub(sampling.what.rings() * rings.cpus.len()),
            events: BTreeMap::new(),
            inherited: BTreeSet::new(),
            without: BTreeSet::new(),
        });
        Ok(rings)
    }

    /// Takes all records, in the order of each CPU.
    pub(super) fn drain(&mut self) -> Vec<Timed> {
        let (mut records, form) = (Vec::new(), self.sampling.form());
        let is_periodic = self.sampling.what == What::Cpu;
        for ((number, sampler), cpu) in self.samplers.iter_mut().enumerate().zip(&self.cpus) {
            while let Some(record) = sampler.next_record() {
                let timed = parse(record.ty(), record.misc(), &record.to_contiguous(), form);
                if let (true, Some(Timed { record: Record::Sample { tid, .. }, .. })) = (is_periodic, &timed)
                {
                    let thread = if self.tasks.is_some() { *tid } else { 0 };
                    let first = || Spacing::first(self.sampling.period, *cpu);
                    self.spacings.entry((number, thread)).or_insert_with(first).samples += 1;
                }
                records.extend(timed);
            }
        }
        if !self.switches.is_empty() {
            // A wait whose sample was lost is counted by its switches.
            records.retain(|timed| !matches!(timed.record, Record::Lost(_)));
        }
        for ring in &mut self.switches {
            ring.drain(form, &mut records);
        }
        if let Some(tasks) = &mut self.tasks {
            tasks.take(&records);
        }
        if is_periodic {
            self.vary();
        }
        records
    }

    /// Changes the times between the samples of events that had the same for long. Those that a thread
    /// inherited keep theirs.
    fn vary(&mut self) {
        if let Some(tasks) = &self.tasks {
            self.spacings.retain(|(_, thread), _| tasks.events.contains_key(thread));
        }
        for ((number, thread), spacing) in &mut self.spacings {
            if spacing.samples < SAME_SAMPLES {
                continue;
            }
            let event = match &self.tasks {
                None => self.samplers.get(*number).map(AsRawFd::as_raw_fd),
                Some(tasks) => {
                    tasks.events.get(thread).and_then(|events| events.get(*number)).map(AsRawFd::as_raw_fd)
                }
            };
            spacing.change(self.sampling.period);
            if let Some(event) = event {
                set_period(event, spacing.nanos);
            }
        }
    }

    /// Opens events for the processes of the list that have none. Nothing is to be found for a cgroup.
    pub(super) fn follow(&mut self, sampled: &mut Sampled, proc: &Path) {
        if let (Some(tasks), Sampled::Listed(list)) = (&mut self.tasks, sampled) {
            let rings: Vec<&Sampler> =
                self.samplers.iter().chain(self.switches.iter().map(|ring| &ring.sampler)).collect();
            tasks.follow(&list.list(proc).unwrap_or_default(), proc, (&self.cpus, self.sampling), &rings);
        }
    }
}

impl SwitchRing {
    /// Takes all records, and adds the times in which some were lost.
    fn drain(&mut self, form: Form, records: &mut Vec<Timed>) {
        let mut taken_bytes = 0;
        while let Some(record) = self.sampler.next_record() {
            let body = record.to_contiguous();
            taken_bytes += body.len() + 8;
            let Some(timed) = parse(record.ty(), record.misc(), &body, form) else { continue };
            let since_ns = std::mem::replace(&mut self.last_ns, timed.time_ns);
            if !matches!(timed.record, Record::Lost(_)) {
                records.push(timed);
            } else if !self.was_full {
                let until_ns = timed.time_ns;
                records.push(Timed { time_ns: since_ns, record: Record::Blind { until_ns } });
            }
            self.was_full = false;
        }
        self.was_full = taken_bytes + FULL_BYTES > self.bytes;
        if self.was_full {
            let until_ns = clock::monotonic_ns();
            records.push(Timed { time_ns: self.last_ns, record: Record::Blind { until_ns } });
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

    /// Opens events for threads of `processes` that had none at the last search either: by then the record of
    /// a thread that inherited them is read. At first all have none.
    fn follow(
        &mut self,
        processes: &BTreeSet<u32>,
        proc: &Path,
        (cpus, sampling): (&[usize], Sampling),
        rings: &[&Sampler],
    ) {
        let threads: BTreeSet<u32> = processes.iter().flat_map(|pid| threads(proc, *pid)).collect();
        let is_first = self.events.is_empty() && self.inherited.is_empty();
        let without: BTreeSet<u32> = threads
            .iter()
            .copied()
            .filter(|tid| !self.events.contains_key(tid) && !self.inherited.contains(tid))
            .collect();
        let due = without.iter().filter(|tid| is_first || self.without.contains(tid));
        for tid in due {
            let of_thread = sampling.what.rings() * cpus.len();
            if self.events.len().saturating_add(1) * of_thread > self.descriptors {
                break;
            }
            // A thread that has ended, or that this user may not sample, has no samples.
            if let Ok(events) = open_thread(*tid, cpus, sampling, rings) {
                self.events.insert(*tid, events);
            }
        }
        self.events.retain(|tid, _| threads.contains(tid));
        self.inherited.retain(|tid| threads.contains(tid));
        self.without = without;
    }
}

/// Opens the events of a thread, which write to the rings of samples and of switches.
fn open_thread(tid: u32, cpus: &[usize], sampling: Sampling, rings: &[&Sampler]) -> io::Result<Vec<Counter>> {
    let mut events = Vec::with_capacity(sampling.what.rings() * cpus.len());
    let of_samples = cpus.iter().map(|cpu| samples(*cpu, sampling));
    let of_switches = cpus.iter().map(|cpu| switches(*cpu, sampling));
    for (mut builder, ring) in of_samples.chain(of_switches).zip(rings) {
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

/// `PERF_EVENT_IOC_PERIOD`.
const PERIOD: libc::Ioctl = 0x4008_2404;

/// Changes the time between two samples of an event. One that has ended keeps its own.
fn set_period(event: RawFd, nanos: u64) {
    #[expect(unsafe_code, reason = "no safe crate has this operation of perf events")]
    // SAFETY: the operation reads the number that the reference names, which outlives the call.
    unsafe {
        libc::ioctl(event, PERIOD, &raw const nanos)
    };
}
