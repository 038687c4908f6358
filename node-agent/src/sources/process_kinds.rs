//! The kinds that sum over a job's processes.

use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::process_files::{FIELDS, IO_FIELDS};
use super::process_sum::{CGROUP_KIND, ProcessSumSource, TREE_KIND};
use super::target::Target;

/// The name of such a source.
const SOURCE: &str = "processes";

/// The kind that sums over the process tree of a job without a cgroup.
pub(super) struct ProcessesKind;

impl SourceKind for ProcessesKind {
    fn name(&self) -> &'static str {
        TREE_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Fast
    }

    fn fields(&self) -> Vec<&'static str> {
        FIELDS.iter().map(|(field, _)| *field).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        match request.target {
            Target::Processes(root) => {
                let source = ProcessSumSource::of_tree(&request.host.mounts.proc, *root);
                opening.push_custom(SOURCE.to_owned(), Box::new(source));
            }
            Target::Cgroups(_) => {
                let reason = "only for jobs without a cgroup";
                opening.unavailable_all(&request.wanted, reason);
            }
            Target::Node(_) => {}
        }
    }
}

/// The kind that sums over the processes of a job's cgroup the quantities that no file of the cgroup counts.
pub(super) struct CgroupProcessesKind;

impl SourceKind for CgroupProcessesKind {
    fn name(&self) -> &'static str {
        CGROUP_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Fast
    }

    fn fields(&self) -> Vec<&'static str> {
        IO_FIELDS.to_vec()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let directory = match request.target {
            Target::Cgroups(cgroups) => cgroups.of_processes(),
            Target::Processes(_) | Target::Node(_) => None,
        };
        match directory {
            Some(directory) => {
                let source = ProcessSumSource::of_cgroup(&request.host.mounts.proc, directory);
                opening.push_custom(SOURCE.to_owned(), Box::new(source));
            }
            None => {
                let reason = "the job has no cgroup of the controller that provides it";
                opening.unavailable_all(&request.wanted, reason);
            }
        }
    }
}
