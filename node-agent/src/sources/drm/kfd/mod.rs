//! AMD's GPUs that a job's processes use for computations (ROCm), as amdkfd shows it for each process. Queues
//! of user space pass amdgpu by, so that the times of engines in `fdinfo` lack them.
//!
//! Source: `kfd_procfs_show`, `kfd_procfs_stats_show` and `kfd_get_cu_occupancy` in
//! `drivers/gpu/drm/amd/amdkfd/kfd_process.c` of Linux (5.8; occupancy since 5.10):
//! `/sys/class/kfd/kfd/proc/PID/{vram_GPU,sdma_GPU,stats_GPU/{evicted_ms,cu_occupancy}}`, where `GPU` is the
//! `gpu_id` of a node of the topology. A read waits for a worker of the kernel, which asks the GPU.

mod files;
mod source;
mod topology;

use crate::sources::kind::{Lane, OpenRequest, Opening, SourceKind};
use crate::sources::path_pattern::PatternWatch;
use crate::sources::source::Source;
use crate::sources::target::Target;
use source::{KIND, KfdSource, QUANTITIES};
use topology::{NODES, gpus};

pub(in crate::sources) use files::check;

pub(in crate::sources) struct KfdKind;

impl SourceKind for KfdKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        QUANTITIES.iter().map(|quantity| quantity.field).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let host = request.host;
        if matches!(request.target, Target::Node(_)) {
            return;
        }
        if host.step.is_some() {
            return opening.unavailable_all(&request.wanted, "only for whole jobs");
        }
        let sys = host.mounts.sys();
        let watch = PatternWatch::new(&sys, [NODES].into());
        opening.push(format!("{KIND}/watch"), Source::Custom(Box::new(watch)));
        let gpus = gpus(&sys);
        if gpus.is_empty() {
            let reason = "this node has no GPU of amdkfd (/sys/class/kfd)";
            return opening.unavailable_all(&request.wanted, reason);
        }
        let Some(processes) = opening.processes(request) else { return };
        let source = KfdSource::new(&sys, &host.mounts.proc, processes, &request.wanted, &gpus);
        opening.push_custom(KIND.to_owned(), Box::new(source));
    }
}

#[cfg(test)]
mod tests;
