//! Network of one job: a program for each direction, attached to its cgroup of version 2.
//!
//! The kernel runs the programs for packets of sockets that were created in the cgroup or below it. Traffic
//! that passes the kernel by, as that of InfiniBand verbs, is not counted.

mod program;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use polymeter_proto::catalogue::{Definition, Hierarchy};

use super::cgroup::{Attachment, Cgroup, Programs};
use super::direction::Direction;
use super::fields::{KIND, NETWORK};
use super::loading::{attach_to_cgroup, load_packet_program};
use super::map::create_array;
use super::map_counters::Counters;
use super::mapping::Mapping;
use super::possible_cpus::possible_cpus;
use super::reason::{EbpfError, Step};
use super::system_call::operand;
use crate::sources::custom_source::CustomSource;
use crate::sources::kind::{OpenRequest, metrics_of};
use crate::sources::outcome::Outcome;
use crate::sources::place::Place;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use crate::sources::target::Target;
use program::{LINE_BYTES, count_packets};

/// Bound of the jobs and steps whose network is counted at a time. Each takes two programs, two descriptors,
/// and a cache line for each CPU in the kernel's memory.
const NETWORKS_MAX: usize = 1024;

static NETWORKS: AtomicUsize = AtomicUsize::new(0);

/// Network counters of one job. They begin at 0 when the source is opened.
#[derive(Debug)]
pub(super) struct NetworkSource {
    slots: Vec<Slot>,
    numbers: Vec<usize>,
    counters: Counters,
    /// Detaches the programs when it is dropped.
    attachment: Arc<Attachment>,
    _place: Place,
}

impl NetworkSource {
    /// Attaches the programs to the target's cgroup. The source has all counters, so that it stays open when
    /// another one is wanted.
    pub(super) fn open(request: &OpenRequest<'_>) -> Result<Self, EbpfError> {
        let cgroup = match request.target {
            Target::Cgroups(cgroups) => cgroups.directory(Hierarchy::V2),
            Target::Processes(_) | Target::Node(_) => None,
        };
        let cgroup = cgroup.ok_or(EbpfError::NoCgroupOfVersion2)?;
        let place = Place::take(&NETWORKS, NETWORKS_MAX).ok_or(EbpfError::TooManyNetworks(NETWORKS_MAX))?;
        let cpus = possible_cpus(&request.host.mounts.root)?;
        let (counters, programs) = NetworkPrograms::load(cpus)?;
        let attachment = Attachment::new(cgroup, Box::new(programs))?;
        let (slots, numbers) = slots().unzip();
        Ok(Self { slots, numbers, counters, attachment, _place: place })
    }
}

fn slots() -> impl Iterator<Item = (Slot, usize)> {
    metrics_of(KIND).flat_map(|metric| {
        let field_is =
            |field: &&str| metric.origins.iter().any(|origin| origin.field_of(KIND) == Some(field));
        let counter = NETWORK.iter().position(field_is);
        counter.map(|counter| (Slot::unlabelled(Definition::of(metric)), counter))
    })
}

/// Programs of one job, with a link for each while they are attached. A link ends with its descriptor.
#[derive(Debug)]
struct NetworkPrograms {
    receive: OwnedFd,
    transmit: OwnedFd,
    links: Option<[OwnedFd; 2]>,
}

impl NetworkPrograms {
    fn load(cpus: u32) -> Result<(Counters, Self), EbpfError> {
        let fault = |error| Step::Load.refused(error);
        let line_bytes = u32::try_from(LINE_BYTES).map_err(io::Error::other).map_err(fault)?;
        let map = create_array(c"polymeter", line_bytes, cpus).map_err(fault)?;
        let words = (cpus as usize).saturating_mul(LINE_BYTES / size_of::<u64>());
        let memory = Mapping::of_array(map.as_fd(), 0, words).map_err(fault)?;
        let load = |direction, name| {
            load_packet_program(name, direction, &count_packets(direction, operand(map.as_fd())))
        };
        let receive = load(Direction::Receive, c"polymeter_rx").map_err(fault)?;
        let transmit = load(Direction::Transmit, c"polymeter_tx").map_err(fault)?;
        // The programs and the memory keep the map.
        Ok((Counters::new(memory, LINE_BYTES / size_of::<u64>()), Self { receive, transmit, links: None }))
    }
}

impl Programs for NetworkPrograms {
    fn attach(&mut self, cgroup: &Cgroup) -> Result<(), EbpfError> {
        let attach = |program: &OwnedFd, direction| {
            attach_to_cgroup(program.as_fd(), cgroup.descriptor(), direction)
                .map_err(|error| Step::Attach.refused(error))
        };
        self.links =
            Some([attach(&self.receive, Direction::Receive)?, attach(&self.transmit, Direction::Transmit)?]);
        Ok(())
    }
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
        for (slot, number) in (0..).zip(&self.numbers) {
            reading.set(slot, self.counters.sum(*number));
        }
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }
}
