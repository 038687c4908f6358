//! Way from a task to its cgroups in the structures of the kernel.

use super::super::btf::Btf;
use super::super::reason::EbpfError;
use super::kernel_types::offset;

/// Hierarchy whose cgroups are the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum CgroupHierarchy {
    V2,
    /// A controller of version 1, by its name in `enum cgroup_subsys_id`.
    V1(&'static str),
}

/// Form of the list of a cgroup's ancestors, which begins with the root and ends with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ancestors {
    /// Pointers to cgroups. Since Linux 6.1.
    Pointers,
    Ids,
}

/// Offsets of the members on the way, in bytes.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct CgroupTypes {
    /// `struct task_struct` to `struct css_set`.
    pub(super) task_cgroups: i16,
    /// `struct css_set` to the cgroup of version 2, or to the state of a controller.
    pub(super) set_member: i16,
    /// State of a controller to its cgroup; `None` in version 2.
    pub(super) state_cgroup: Option<i16>,
    pub(super) level: i16,
    pub(super) ancestors: (Ancestors, i16),
    pub(super) node: i16,
    pub(super) node_id: i16,
}

impl CgroupTypes {
    pub(in super::super) fn of(btf: &Btf, hierarchy: CgroupHierarchy) -> Result<Self, EbpfError> {
        let (set_member, state_cgroup) = match hierarchy {
            CgroupHierarchy::V2 => (offset(btf, "css_set", "dfl_cgrp")?, None),
            CgroupHierarchy::V1(controller) => {
                let number = btf.enumerator("cgroup_subsys_id", controller);
                let number = number.and_then(|number| i16::try_from(number * 8).ok());
                let number = number.ok_or_else(|| EbpfError::Lacking(controller.to_owned()))?;
                (
                    offset(btf, "css_set", "subsys")?.saturating_add(number),
                    Some(offset(btf, "cgroup_subsys_state", "cgroup")?),
                )
            }
        };
        let ancestors = match offset(btf, "cgroup", "ancestors") {
            Ok(pointers) => (Ancestors::Pointers, pointers),
            Err(_) => (Ancestors::Ids, offset(btf, "cgroup", "ancestor_ids")?),
        };
        Ok(Self {
            task_cgroups: offset(btf, "task_struct", "cgroups")?,
            set_member,
            state_cgroup,
            level: offset(btf, "cgroup", "level")?,
            ancestors,
            node: offset(btf, "cgroup", "kn")?,
            node_id: offset(btf, "kernfs_node", "id")?,
        })
    }
}
