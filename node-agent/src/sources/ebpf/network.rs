//! The network of one job: a program for each direction, attached to its cgroup of version 2.
//!
//! The kernel runs the programs for packets of sockets that were created in the cgroup or below it. Traffic that passes the
//! kernel by, as that of InfiniBand verbs, is not counted.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::catalogue::{Definition, Hierarchy};
use polymeter_proto::series::Labels;

use super::cgroup::{Attachment, Cgroup, Programs};
use super::counters::{Counters, sum};
use super::direction::Direction;
use super::fields::{KIND, NETWORK};
use super::program::count_packets;
use super::reason::{Step, meaning};
use super::system_call::{Mapping, attach, load_program};
use crate::sources::cpu_list;
use crate::sources::custom_source::CustomSource;
use crate::sources::kind::{OpenRequest, metrics_of};
use crate::sources::outcome::Outcome;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use crate::sources::target::Target;

/// The most jobs and steps whose network is counted at a time. Each takes two programs and a line of the cache for each CPU
/// in memory of the kernel, and two descriptors.
const NETWORKS_MAX: usize = 1024;

/// The number of open sources.
static NETWORKS: AtomicUsize = AtomicUsize::new(0);

/// One of the places for open sources.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let next = |taken: usize| (taken < NETWORKS_MAX).then_some(taken + 1);
        NETWORKS.fetch_update(Relaxed, Relaxed, next).ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        NETWORKS.fetch_sub(1, Relaxed);
    }
}

/// The network counters of one job. They begin at 0 when the source is opened.
#[derive(Debug)]
pub(super) struct NetworkSource {
    slots: Vec<Slot>,
    /// The counter of each slot.
    counters: Vec<usize>,
    memory: Mapping,
    /// Detaches the programs when it is dropped.
    attachment: Arc<Attachment>,
    _place: Place,
}

impl NetworkSource {
    /// Attaches the programs to the target's cgroup, or states why that is impossible. The source has all counters, whether they
    /// are wanted or not, so that it stays open when another one is wanted.
    pub(super) fn open(request: &OpenRequest<'_>) -> Result<Self, String> {
        let cgroup = match request.target {
            Target::Cgroups(cgroups) => cgroups.directory(Hierarchy::V2),
            Target::Processes(_) | Target::Node(_) => None,
        };
        let cgroup = cgroup.ok_or(
            "eBPF counts the network of cgroups of version 2, and the job has none; name one when the job is registered, or \
             boot the node with cgroups of version 2",
        )?;
        let place = Place::take().ok_or_else(|| {
            format!("the network of {NETWORKS_MAX} jobs and steps is counted already; sample it for fewer")
        })?;
        let cpus = possible_cpus(&request.host.mounts.root)?;
        let (memory, programs) = NetworkPrograms::load(cpus)?;
        let attachment = Attachment::new(cgroup, Box::new(programs))?;
        let (slots, counters) = slots().unzip();
        Ok(Self { slots, counters, memory, attachment, _place: place })
    }
}

/// Returns the slots, each with its counter.
fn slots() -> impl Iterator<Item = (Slot, usize)> {
    metrics_of(KIND).flat_map(|metric| {
        let field_is =
            |field: &&str| metric.origins.iter().any(|origin| origin.field_of(KIND) == Some(field));
        let counter = NETWORK.iter().position(field_is);
        counter
            .map(|counter| (Slot { definition: Definition::of(metric), labels: Labels::default() }, counter))
    })
}

/// The programs of one job, with a link for each while they are attached. A link ends with its descriptor.
#[derive(Debug)]
struct NetworkPrograms {
    receive: OwnedFd,
    transmit: OwnedFd,
    links: Option<[OwnedFd; 2]>,
}

impl NetworkPrograms {
    /// Loads the programs of both directions. Returns the memory of their counters, too.
    fn load(cpus: u32) -> Result<(Mapping, Self), String> {
        let counters = Counters::create(cpus).map_err(|error| meaning(Step::Load, &error))?;
        let load = |direction, name| {
            let instructions = count_packets(direction, counters.map().as_raw_fd());
            load_program(name, direction, &instructions).map_err(|error| meaning(Step::Load, &error))
        };
        let receive = load(Direction::Receive, c"polymeter_rx")?;
        let transmit = load(Direction::Transmit, c"polymeter_tx")?;
        Ok((counters.into_memory(), Self { receive, transmit, links: None }))
    }
}

impl Programs for NetworkPrograms {
    fn attach(&mut self, cgroup: &Cgroup) -> Result<(), String> {
        let attach = |program: &OwnedFd, direction| {
            attach(program.as_fd(), cgroup.descriptor(), direction)
                .map_err(|error| meaning(Step::Attach, &error))
        };
        self.links =
            Some([attach(&self.receive, Direction::Receive)?, attach(&self.transmit, Direction::Transmit)?]);
        Ok(())
    }
}

/// Returns the number of CPUs that can ever be online: one more than the highest number, which a program may run on.
fn possible_cpus(root: &Path) -> Result<u32, String> {
    let path = root.join("sys/devices/system/cpu/possible");
    let fault = |error: io::Error| format!("{}: {error}", path.display());
    let text = fs::read_to_string(&path).map_err(fault)?;
    let highest = cpu_list::parse(text.trim()).and_then(|cpus| cpus.into_iter().max());
    let count = highest.and_then(|highest| u32::try_from(highest + 1).ok());
    count.ok_or_else(|| fault(io::Error::other("not a list of CPUs")))
}

impl CustomSource for NetworkSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        if self.attachment.is_lost() {
            return Outcome::Gone;
        }
        for (slot, counter) in (0..).zip(&self.counters) {
            reading.set(slot, sum(&self.memory, *counter));
        }
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }
}
