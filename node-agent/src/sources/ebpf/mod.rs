//! The kind of eBPF programs, which count events of a job in the kernel.
//!
//! The programs are written as instructions (`program.rs`), since they are short: the build needs no compiler for BPF and no
//! library. Their counters are in memory that the agent maps, so that a read is no system call, and belongs to the fast lane.
//! A program is attached with a link, which ends with its descriptor: nothing stays attached when the agent is killed, and
//! links of several agents are independent of each other.

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
mod network;
#[cfg(feature = "ebpf")]
mod program;
#[cfg(feature = "ebpf")]
mod reason;
#[cfg(feature = "ebpf")]
mod system_call;

use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::target::Target;
use fields::{KIND, NETWORK};

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
        NETWORK.to_vec()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if matches!(request.target, Target::Node(_)) {
            return;
        }
        #[cfg(feature = "ebpf")]
        match network::NetworkSource::open(request) {
            Ok(source) => opening.push_custom(format!("{KIND}/network"), Box::new(source)),
            Err(reason) => opening.unavailable_all(&request.wanted, &reason),
        }
        #[cfg(not(feature = "ebpf"))]
        opening.unavailable_all(
            &request.wanted,
            "the agent was built without the feature `ebpf`; build it with `--features ebpf`",
        );
    }
}
