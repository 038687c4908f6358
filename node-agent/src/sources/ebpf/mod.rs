//! eBPF programs that count events of a job in the kernel.
//!
//! The programs are written as instructions, since they are short: the build needs no compiler for BPF and no
//! library. Their counters are in memory that the agent maps, so that a read is no system call, and belongs
//! to the fast lane. A program is attached with a link, which ends with its descriptor: nothing stays
//! attached when the agent is killed, and links of several agents are independent of each other. Their memory
//! has a fixed size and is taken when they are loaded.

mod assembler;
mod btf;
mod cgroup;
mod direction;
mod fields;
mod instruction;
mod loading;
mod map;
mod map_counters;
mod mapping;
mod network;
mod possible_cpus;
mod reason;
mod runqueue;
mod system_call;
mod tracing;
mod vfs;

use polymeter_proto::catalogue::Definition;

use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::target::Target;
use fields::{KIND, NETWORK, RUNQUEUE, VFS};
use reason::EbpfError;

pub(super) use btf::check;
pub use cgroup::follow_created_cgroups;

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
        if !request.host.ebpf {
            opening.unavailable_all(
                &request.wanted,
                "eBPF programs are off; the administrator permits them with `ebpf = true` in the agent's configuration",
            );
            return;
        }
        for group in GROUPS {
            group.open(request, opening);
        }
    }
}

struct Group {
    name: &'static str,
    fields: &'static [&'static str],
    open: fn(&OpenRequest<'_>) -> Result<Box<dyn CustomSource>, EbpfError>,
}

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

impl Group {
    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let wanted = request.wanted.iter().filter(|definition| {
            let mut fields = definition.metric.origins.iter().filter_map(|origin| origin.field_of(KIND));
            fields.any(|field| self.fields.contains(&field))
        });
        let wanted: Vec<Definition> = wanted.cloned().collect();
        if wanted.is_empty() {
            return;
        }
        match (self.open)(request) {
            Ok(source) => opening.push_custom(format!("{KIND}/{}", self.name), source),
            Err(error) => opening.unavailable_all(&wanted, &error.to_string()),
        }
    }
}
