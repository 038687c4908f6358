//! The kind of eBPF programs, which count events of a job in the kernel.
//!
//! The programs are written as instructions, since they are short: the build needs no compiler for BPF and no library.
//! Their counters are in memory that the agent maps, so that a read is no system call, and belongs to the fast lane. A
//! program is attached with a link, which ends with its descriptor: nothing stays attached when the agent is killed,
//! and links of several agents are independent of each other. Their memory has a fixed size and is taken when they are
//! loaded.

#[cfg(feature = "ebpf")]
mod assembler;
#[cfg(feature = "ebpf")]
mod btf;
#[cfg(feature = "ebpf")]
mod cgroup;
#[cfg(feature = "ebpf")]
mod counters;
#[cfg(feature = "ebpf")]
mod direction;
mod fields;
#[cfg(feature = "ebpf")]
mod instruction;
#[cfg(feature = "ebpf")]
mod loading;
#[cfg(feature = "ebpf")]
mod map;
#[cfg(feature = "ebpf")]
mod mapping;
#[cfg(feature = "ebpf")]
mod network;
#[cfg(feature = "ebpf")]
mod possible_cpus;
#[cfg(feature = "ebpf")]
mod reason;
#[cfg(feature = "ebpf")]
mod runqueue;
#[cfg(feature = "ebpf")]
mod system_call;
#[cfg(feature = "ebpf")]
mod tracing;
#[cfg(feature = "ebpf")]
mod vfs;

#[cfg(feature = "ebpf")]
use polymeter_proto::catalogue::Definition;

#[cfg(feature = "ebpf")]
use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::target::Target;
use fields::{KIND, NETWORK, RUNQUEUE, VFS};

#[cfg(feature = "ebpf")]
pub(super) use btf::check;

/// Attaches the programs anew to cgroups that were removed and created again. The counts continue.
#[cfg(feature = "ebpf")]
pub fn follow_created_cgroups() {
    cgroup::follow_all();
}

/// Does nothing: the agent was built without eBPF programs.
#[cfg(not(feature = "ebpf"))]
pub const fn follow_created_cgroups() {}

/// eBPF programs of jobs.
pub(super) struct EbpfKind;

impl SourceKind for EbpfKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Fast
    }

    fn fields(&self) -> Vec<&'static str> {
        [&NETWORK[..], &RUNQUEUE, &VFS].concat()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if matches!(request.target, Target::Node(_)) {
            return;
        }
        #[cfg(feature = "ebpf")]
        for group in GROUPS {
            group.open(request, opening);
        }
        #[cfg(not(feature = "ebpf"))]
        opening.unavailable_all(
            &request.wanted,
            "the agent was built without the feature `ebpf`; build it with `--features ebpf`",
        );
    }
}

/// Metrics that one source counts.
#[cfg(feature = "ebpf")]
struct Group {
    /// The name of the source.
    name: &'static str,
    fields: &'static [&'static str],
    open: fn(&OpenRequest<'_>) -> Result<Box<dyn CustomSource>, String>,
}

#[cfg(feature = "ebpf")]
static GROUPS: &[Group] = &[
    Group {
        name: "network",
        fields: &NETWORK,
        open: |request| Ok(Box::new(network::NetworkSource::open(request)?)),
    },
    Group {
        name: "runqueue",
        fields: &RUNQUEUE,
        open: |request| Ok(Box::new(runqueue::RunqueueSource::open(request)?)),
    },
    Group { name: "vfs", fields: &VFS, open: |request| Ok(Box::new(vfs::FilesSource::open(request)?)) },
];

#[cfg(feature = "ebpf")]
impl Group {
    /// Opens the source if one of its metrics is wanted.
    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let is_of_group = |definition: &&Definition| {
            let mut fields = definition.metric.origins.iter().filter_map(|origin| origin.field_of(KIND));
            fields.any(|field| self.fields.contains(&field))
        };
        let wanted: Vec<Definition> = request.wanted.iter().filter(is_of_group).cloned().collect();
        if wanted.is_empty() {
            return;
        }
        match (self.open)(request) {
            Ok(source) => opening.push_custom(format!("{KIND}/{}", self.name), source),
            Err(reason) => opening.unavailable_all(&wanted, &reason),
        }
    }
}
