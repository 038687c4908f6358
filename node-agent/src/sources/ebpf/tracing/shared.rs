//! Objects that the jobs of one hierarchy share.

use std::sync::{Arc, Mutex, Weak};

use super::cgroup_types::CgroupHierarchy;
use crate::sources::lock::lock;

/// Programs that run, for each hierarchy. They end with the last job that uses them.
#[derive(Debug)]
pub(in super::super) struct Running<T>(Mutex<Vec<(CgroupHierarchy, Weak<T>)>>);

impl<T> Running<T> {
    pub(in super::super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Starts the programs for the first job of a hierarchy.
    pub(in super::super) fn get<E>(
        &self,
        hierarchy: CgroupHierarchy,
        start: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut running = lock(&self.0);
        running.retain(|(_, programs)| programs.strong_count() > 0);
        let known = running.iter().find(|(other, _)| *other == hierarchy);
        if let Some(known) = known.and_then(|(_, known)| known.upgrade()) {
            return Ok(known);
        }
        let new = Arc::new(start()?);
        running.push((hierarchy, Arc::downgrade(&new)));
        Ok(new)
    }
}

/// What the tests of the kernel found out for each hierarchy. It stays the same while the kernel runs.
#[derive(Debug)]
pub(in super::super) struct Known<T>(Mutex<Vec<(CgroupHierarchy, T)>>);

impl<T: Copy> Known<T> {
    pub(in super::super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(in super::super) fn get<E>(
        &self,
        hierarchy: CgroupHierarchy,
        find: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut known = lock(&self.0);
        if let Some((_, one)) = known.iter().find(|(other, _)| *other == hierarchy) {
            return Ok(*one);
        }
        let found = find()?;
        known.push((hierarchy, found));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_shared_until_no_job_uses_them() {
        let running = Running::new();
        let first = running.get(CgroupHierarchy::V2, || Ok::<_, String>(1)).unwrap();
        assert_eq!(*running.get(CgroupHierarchy::V2, || Ok::<_, String>(2)).unwrap(), 1);
        assert_eq!(*running.get(CgroupHierarchy::V1("cpu_cgrp_id"), || Ok::<_, String>(3)).unwrap(), 3);
        drop(first);
        assert_eq!(running.get(CgroupHierarchy::V2, || Err("refused".to_owned())), Err("refused".to_owned()));
        assert_eq!(*running.get(CgroupHierarchy::V2, || Ok::<_, String>(4)).unwrap(), 4);
    }

    #[test]
    fn what_is_known_is_found_out_once() {
        let known = Known::new();
        assert_eq!(known.get(CgroupHierarchy::V2, || Err("refused".to_owned())), Err("refused".to_owned()));
        assert_eq!(known.get(CgroupHierarchy::V2, || Ok::<_, String>(1)), Ok(1));
        assert_eq!(known.get(CgroupHierarchy::V2, || Ok::<_, String>(2)), Ok(1));
    }
}
