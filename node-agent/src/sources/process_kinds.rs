//! Kinds that sum over a job's processes.

use std::path::Path;

use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::process_files::{CGROUP_IO_FIELDS, FIELDS, IO_FIELDS};
use super::process_sum::{CGROUP_KIND, IO_KIND, ProcessSumSource, TREE_KIND};
use super::target::Target;

const SOURCE: &str = "processes";

const IO_SOURCE: &str = "processes/io";

/// Sums over the process tree of a job without a cgroup.
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
                for definition in &request.wanted {
                    if definition.metric.is_of_kind(IO_KIND) {
                        opening.leave(definition.clone());
                    } else {
                        let reason = "only for jobs without a cgroup".to_owned();
                        opening.unavailable(definition.clone(), reason);
                    }
                }
            }
            Target::Node(_) => {}
        }
    }
}

/// Sums over the processes of a job's cgroup the quantities that no file of the cgroup counts here.
pub(super) struct CgroupProcessesKind;

impl SourceKind for CgroupProcessesKind {
    fn name(&self) -> &'static str {
        CGROUP_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Fast
    }

    fn fields(&self) -> Vec<&'static str> {
        CGROUP_IO_FIELDS.to_vec()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        open_in_cgroup(request, opening, SOURCE, ProcessSumSource::of_cgroup);
    }
}

/// I/O of a job's processes where none of its cgroups counts calls and their bytes.
pub(super) struct ProcessIoKind;

impl SourceKind for ProcessIoKind {
    fn name(&self) -> &'static str {
        IO_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        IO_FIELDS.to_vec()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        open_in_cgroup(request, opening, IO_SOURCE, ProcessSumSource::of_all_in_cgroup);
    }
}

fn open_in_cgroup(
    request: &OpenRequest<'_>,
    opening: &mut Opening<'_>,
    name: &str,
    create: fn(&Path, &Path) -> ProcessSumSource,
) {
    let directory = match request.target {
        Target::Cgroups(cgroups) => cgroups.of_processes(),
        Target::Processes(_) | Target::Node(_) => None,
    };
    match directory {
        Some(directory) => {
            let source = create(&request.host.mounts.proc, directory);
            opening.push_custom(name.to_owned(), Box::new(source));
        }
        None => {
            let reason = "the job has no cgroup of the controller that provides it";
            opening.unavailable_all(&request.wanted, reason);
        }
    }
}
