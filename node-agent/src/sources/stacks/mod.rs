//! Call stacks of jobs: the kernel samples what each CPU does for the job, and a thread of the slow lane
//! reads the samples, finds the names of the functions, and counts. Callers are found by the kernel, which
//! follows frame pointers, or here, by the tables of each file.
//!
//! Nothing is open until the first read, which knows the period; the events end with the source.

mod demangle;
mod eh_frame;
mod elf;
mod files;
mod modules;
mod profile;
mod ranks;
mod records;
mod registers;
mod rings;
mod search;
mod spaces;
mod text_symbols;
mod unwind;
mod waits;

use std::path::PathBuf;

use polymeter_proto::catalogue::{STACKS_DWARF_KIND, STACKS_KIND, STACKS_WAIT_KIND};
use polymeter_proto::period::Period;
use polymeter_service::clock;
use rustix::io::Errno;

use self::profile::Collected;
use self::rings::{Callers, Rings, Sampled, Sampling, What, probe};
use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outcome::Outcome;
use super::perf::meaning;
use super::process_list::ProcessList;
use super::reading::Reading;
use super::slot::Slot;
use super::target::Target;

pub(super) fn check(data: &[u8]) {
    let Some((parser, data)) = data.split_first() else { return };
    match parser % 5 {
        0 => records::check(data),
        1 => elf::check(data),
        2 => text_symbols::check(data),
        3 => demangle::check(data),
        _ => unwind::check(data),
    }
}

/// Stack of the reading thread: names of functions nest, and their parsers follow.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// Why an ordinary user has no waits: a switch is an event of the kernel.
const SWITCHES_HIDDEN: &str = "the kernel shows switches of threads only where kernel.perf_event_paranoid is 1 or less, or with CAP_PERFMON";

pub(super) struct StacksKind {
    name: &'static str,
    what: What,
    callers: Callers,
}

impl StacksKind {
    /// Stacks with the callers that frame pointers tell.
    pub(super) const BY_FRAME_POINTERS: Self =
        Self { name: STACKS_KIND, what: What::Cpu, callers: Callers::FramePointers };
    /// Stacks with the callers that unwinding tells.
    pub(super) const BY_TABLES: Self =
        Self { name: STACKS_DWARF_KIND, what: What::Cpu, callers: Callers::Tables };
    /// Stacks of waits. Threads wait in libraries that keep no frame pointers.
    pub(super) const WAITS: Self =
        Self { name: STACKS_WAIT_KIND, what: What::Waits, callers: Callers::Tables };
}

/// Shortest period. Below it, sampling takes a noticeable part of the time.
const fn period_min(callers: Callers) -> Period {
    match callers {
        Callers::FramePointers => Period::MILLISECOND,
        Callers::Tables => Period::TEN_MILLISECONDS,
    }
}

impl SourceKind for StacksKind {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        match self.what {
            What::Cpu => vec!["cpu"],
            What::Waits => vec!["wait"],
        }
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let (host, callers) = (request.host, self.callers);
        let sampling = Sampling { what: self.what, callers, period: Period::SECOND, user_only: false };
        if callers == Callers::Tables && !registers::ARE_KNOWN {
            return opening.unavailable_all(&request.wanted, "no unwinding on processors of this kind");
        }
        let cgroup = match request.target {
            Target::Cgroups(cgroups) => cgroups.perf_directory(host.mounts),
            Target::Processes(_) | Target::Node(_) => None,
        };
        let sampled = cgroup
            .map(|path| Sampled::Cgroup(path.to_owned()))
            .or_else(|| ProcessList::of(request.target).map(Sampled::Listed));
        let (Some(sampled), None) = (sampled, host.step) else {
            return opening.unavailable_all(&request.wanted, "call stacks are sampled of whole jobs");
        };
        let Some(cpu) =
            host.cpus.first().filter(|_| self.what.rings() * host.cpus.len() < host.perf_descriptors)
        else {
            let reason = "limit of perf file descriptors per job reached; raise perf_fd_limit";
            return opening.unavailable_all(&request.wanted, reason);
        };
        match probe(cgroup, *cpu, sampling) {
            Ok(true) if self.what == What::Waits => opening.unavailable_all(&request.wanted, SWITCHES_HIDDEN),
            Ok(user_only) => {
                opening.push_custom(
                    self.name.to_owned(),
                    Box::new(StackSource {
                        slots: request.wanted.iter().cloned().map(Slot::unlabelled).collect(),
                        proc: host.mounts.proc.clone(),
                        cpus: host.cpus.to_vec(),
                        descriptors: host.perf_descriptors,
                        sampling: Sampling { user_only, ..sampling },
                        sampled,
                        period: None,
                        open: None,
                        taken: 0,
                    }),
                );
            }
            Err(error) => opening.unavailable_all(&request.wanted, &meaning(&error)),
        }
    }
}

#[derive(Debug)]
struct StackSource {
    slots: Vec<Slot>,
    proc: PathBuf,
    cpus: Vec<usize>,
    descriptors: usize,
    /// How it is sampled, but for the period.
    sampling: Sampling,
    sampled: Sampled,
    period: Option<Period>,
    open: Option<Open>,
    /// Samples since the source was opened.
    taken: u64,
}

#[derive(Debug)]
struct Open {
    period: Period,
    rings: Rings,
    collected: Collected,
    /// End of the last interval, in microseconds since the epoch.
    until_us: i64,
}

impl Open {
    fn take(&mut self) {
        let until_ns = clock::monotonic_ns();
        self.collected.take(self.rings.drain(), self.period, until_ns);
    }
}

impl StackSource {
    fn begin(&mut self, period: Period) -> Result<(), Errno> {
        let sampling = Sampling { period, ..self.sampling };
        let rings = Rings::open(&self.sampled, &self.cpus, sampling, self.descriptors);
        let mut rings = rings.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        rings.follow(&mut self.sampled, &self.proc);
        let collected = match self.open.take() {
            // The samples of the former period were read.
            Some(open) => open.collected,
            None => Collected::new(&self.proc, sampling.what),
        };
        self.open = Some(Open { period, rings, collected, until_us: clock::steady_us() });
        Ok(())
    }
}

impl CustomSource for StackSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn set_period(&mut self, period: Period) {
        self.period = Some(period.max(period_min(self.sampling.callers)));
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        if let Some(open) = &mut self.open {
            open.take();
            open.rings.follow(&mut self.sampled, &self.proc);
            let now_us = clock::steady_us();
            let span_us = (std::mem::replace(&mut open.until_us, now_us), now_us);
            let profile = open.collected.profile(span_us, open.period);
            self.taken += profile.samples();
            reading.set_stacks(profile);
        }
        let Some(period) = self.period else { return Outcome::Read };
        if let (What::Waits, Some(open)) = (self.sampling.what, &mut self.open) {
            // The kernel samples each switch, at any period.
            open.period = period;
        }
        if self.open.as_ref().is_none_or(|open| open.period != period)
            && let Err(errno) = self.begin(period)
        {
            return Outcome::of_error(errno);
        }
        (0..).zip(&self.slots).for_each(|(slot, _)| reading.set(slot, self.taken));
        Outcome::Read
    }

    fn read_between(&mut self) {
        if let Some(open) = &mut self.open {
            open.take();
        }
    }

    fn is_lasting(&self) -> bool {
        true
    }

    fn longest_gap_ns(&self) -> Option<u64> {
        self.period.map(|period| Sampling { period, ..self.sampling }.longest_gap_ns())
    }

    fn refresh_interval(&self) -> Option<Period> {
        Some(period_min(self.sampling.callers))
    }

    fn has_last_read(&self) -> bool {
        true
    }

    fn stack_bytes(&self) -> usize {
        STACK_BYTES
    }
}
