//! A job that discovery has found by its cgroups.

use std::collections::BTreeMap;
use std::path::PathBuf;

use polymeter_proto::series::Identifier;

use crate::admission::{CgroupOwner, Descriptors};
use crate::cgroups::{Captured, JobCgroups};
use crate::targets::TargetKey;

#[derive(Debug)]
pub(crate) struct Walk {
    /// Jobs by their paths relative to the hierarchies' roots.
    pub(crate) found: BTreeMap<PathBuf, FoundJob>,
    /// Registered jobs of which no cgroup is left.
    pub(crate) vanished: Vec<TargetKey>,
    /// Directories of jobs that were found and left out, because there are too many.
    pub(crate) passed_over: usize,
    pub(crate) descriptors: Descriptors,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundJob {
    pub(crate) captured: Captured,
    /// Path relative to the hierarchies' roots.
    pub(crate) relative: PathBuf,
    pub(crate) cgroups: JobCgroups,
    /// Owner of its directory, if that was looked up: its path names none, and jobs compete for room.
    pub(crate) directory_uid: Option<u32>,
}

impl FoundJob {
    pub(crate) fn name(&self) -> Option<Identifier> {
        Identifier::escaped(self.captured.job.as_deref()?.as_bytes())
    }

    /// Scheduler that makes cgroups like these.
    pub(crate) fn scheduler(&self) -> Option<Identifier> {
        let is_any = |is: fn(&str) -> bool| self.relative.iter().filter_map(|part| part.to_str()).any(is);
        let name = if is_any(|part| part.starts_with("slurm") || part.ends_with("slurmstepd.scope")) {
            "slurm"
        } else if is_any(|part| part == "oar" || part == "oar.slice") {
            "oar"
        } else {
            return None;
        };
        Identifier::try_from(name).ok()
    }

    pub(crate) const fn names_owner(&self) -> bool {
        self.captured.uid.is_some() || self.captured.user.is_some()
    }

    /// Owner according to its path, else that of its directory: a user who may create cgroups owns them.
    pub(crate) fn owner(&self) -> CgroupOwner {
        if self.names_owner() {
            (self.captured.uid, self.captured.user.clone())
        } else {
            (self.directory_uid, None)
        }
    }
}
