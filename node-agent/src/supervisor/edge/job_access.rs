//! The edge to jobs: their cgroups and processes, their numbers and owners.

use std::path::PathBuf;

use polymeter_proto::series::Identifier;
use polymeter_service::clock;

use super::node::NodeEdge;
use crate::admission::Descriptors;
use crate::cgroups::JobCgroups;
use crate::lifecycle::{OwnerHint, Walk, identity};
use crate::request::{JobSpec, RegisterError};
use crate::sources::Target;
use crate::supervisor::owner_lookups::User;
use crate::targets::{Targets, TrackedTarget};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::supervisor) enum Search {
    Walk,
    /// Uses the result of the last walk, if no change was reported since and a walk is not due.
    Rescan,
}

impl NodeEdge {
    /// Finds the jobs that exist; none if a rescan need not walk, and the targets are those of the last walk.
    /// `has_room` returns whether there is room for a number of jobs; if not, their owners are needed, too.
    pub(in crate::supervisor) fn find_jobs(
        &mut self,
        search: Search,
        targets: &Targets,
        has_room: impl Fn(usize, Descriptors) -> bool,
    ) -> Option<Walk> {
        let now_ns = clock::monotonic_ns();
        let vanished = targets.keys_where(|target| {
            target.found_at.is_none() && target.cgroups().is_some_and(|cgroups| !exists(cgroups))
        });
        if search == Search::Walk || self.discovery.must_walk(now_ns) {
            self.discovery.walk(now_ns);
        } else if vanished.is_empty() && self.discovery.found().len() == targets.found_count() {
            return None;
        }
        let descriptors = self.descriptors();
        let mut found = self.discovery.found().clone();
        if !has_room(found.len(), descriptors) {
            for job in found.values_mut().filter(|job| !job.names_owner()) {
                let directory = job.cgroups.directories().first().map(|path| path.to_path_buf());
                job.directory_uid = directory.and_then(|directory| identity::directory_owner(&directory));
            }
        }
        let passed_over = self.discovery.passed_over();
        Some(Walk { found, vanished, passed_over, descriptors })
    }

    /// Number of a job of Slurm, from its processes.
    pub(super) fn job_number(&self, cgroups: &JobCgroups) -> Option<Identifier> {
        identity::job_number(&self.mounts.proc, cgroups)
    }

    /// True if the number of some job has become known, or will not become known.
    pub(in crate::supervisor) fn has_numbers<'a>(
        &self,
        mut jobs: impl Iterator<Item = (&'a JobCgroups, bool)>,
    ) -> bool {
        jobs.any(|(cgroups, is_over)| is_over || self.job_number(cgroups).is_some())
    }

    /// Owner of a job, as far as it is known without the name service.
    pub(super) fn owner(&self, target: &TrackedTarget, hint: OwnerHint) -> User {
        let proc = &self.mounts.proc;
        let (uid, name) = match (hint, &target.target) {
            (OwnerHint::Name(name), _) => (None, Some(name)),
            (OwnerHint::Processes, Target::Cgroups(cgroups)) => {
                let mut directories = cgroups.directories().into_iter();
                (directories.find_map(|path| identity::owner_of_processes(proc, path)), None)
            }
            (OwnerHint::Processes, Target::Processes(root)) => (identity::owner_of(proc, *root), None),
            (OwnerHint::Processes, Target::Node(_)) => (None, None),
        };
        User { uid, name, wants_name: target.lacks_owner_name() }
    }

    pub(in crate::supervisor) fn registered_target(&self, spec: &JobSpec) -> Result<Target, RegisterError> {
        if let Some(root) = spec.process.filter(|_| spec.cgroups.is_empty()) {
            return Ok(Target::Processes(root));
        }
        let mut cgroups = JobCgroups::default();
        for path in &spec.cgroups {
            if !path.is_dir() {
                return Err(RegisterError::NoSuchCgroup(PathBuf::clone(path)));
            }
            cgroups.add(&self.mounts, path);
        }
        if cgroups.is_empty() { Err(RegisterError::NoCgroup) } else { Ok(Target::Cgroups(cgroups)) }
    }
}

fn exists(cgroups: &JobCgroups) -> bool {
    cgroups.directories().iter().any(|path| path.is_dir())
}
