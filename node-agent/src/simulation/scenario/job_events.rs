//! The jobs that discovery finds: their cgroups, numbers, steps and exits, and the checks of a walk.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;

use super::{Scenario, USERS, done};
use crate::cgroups::{Captured, JobCgroups, Step};
use crate::lifecycle::{FoundJob, Walk};
use crate::targets::{TargetKey, TrackedTarget};

/// Hierarchies in which a job has cgroups, in the order in which the scheduler creates and removes them.
const HIERARCHIES: [&str; 3] = ["memory", "cpu", "unified"];

impl Scenario {
    pub(super) fn begin_job(&mut self) {
        let (number, uid) = (self.name(), *self.random.choose(&USERS));
        // As in Slurm from 26.05 on, or before.
        let is_sluid = self.random.percent(40);
        let name = if is_sluid { sluid(&number) } else { number.clone() };
        let relative = PathBuf::from(format!("uid_{uid}/job_{name}"));
        if self.core.edge.numbers.iter().any(|(other, of_other)| *other != relative && *of_other == number) {
            return;
        }
        let knows_uid = self.random.percent(80);
        let captured = Captured {
            job: Some(name.as_str().to_owned()),
            is_sluid,
            uid: knows_uid.then_some(uid),
            user: None,
        };
        // A job that exists already is removed and created again.
        self.core.edge.steps.remove(&relative);
        self.core.edge.numbers.insert(relative.clone(), number);
        self.inode += 1;
        let first = *self.random.choose(&[1, 2, 3]);
        for created in [first, HIERARCHIES.len()] {
            let cgroups = cgroups_of(&relative, self.inode, 0..created);
            let (captured, relative) = (captured.clone(), relative.clone());
            let found = FoundJob { captured, relative, cgroups, directory_uid: Some(uid) };
            self.cgroups.insert(found.relative.clone(), found);
            self.walk();
        }
    }

    pub(super) fn remove_job(&mut self) {
        let paths: Vec<PathBuf> = self.cgroups.keys().cloned().collect();
        if !paths.is_empty() {
            let path = self.random.choose(&paths).clone();
            let cgroups = &mut self.cgroups.get_mut(&path).unwrap().cgroups;
            let left = if self.random.percent(50) { cgroups.inodes.len() - 1 } else { 0 };
            if left > 0 {
                let removed = HIERARCHIES.len() - left;
                *cgroups = cgroups_of(&path, inode_of(cgroups), removed..HIERARCHIES.len());
            } else {
                self.cgroups.remove(&path);
                self.core.edge.numbers.remove(&path);
                self.core.edge.steps.remove(&path);
            }
        }
        self.walk();
    }

    pub(super) fn walk(&mut self) {
        let (found, descriptors) = (self.cgroups.clone(), self.descriptors());
        let room = self.core.lifecycle.has_room(&self.core.targets, found.len(), descriptors);
        done(self.core.walked(Walk { found, vanished: Vec::new(), passed_over: 0, descriptors }));
        assert!(!room || self.core.edge.left_out == 0, "jobs are left out although there is room");
        self.check_shares();
        self.check_cgroups();
    }

    /// Checks that no job goes on in the cgroups of the next one with its name.
    fn check_cgroups(&mut self) {
        for (key, target) in self.core.targets.iter() {
            let found = target.found_at.as_ref().and_then(|path| self.cgroups.get(path));
            let Some((handle, found)) = target.handle().zip(found) else { continue };
            let inode = inode_of(&found.cgroups);
            let begun = *self.inodes.entry(handle).or_insert(inode);
            assert_eq!(begun, inode, "{key:?} goes on in other cgroups");
        }
    }

    /// Checks that every existing job is tracked, waits for its number or is counted as left out, and that
    /// all owners have the same share.
    fn check_shares(&self) {
        let waiting: Vec<JobCgroups> = self
            .core
            .lifecycle
            .unnumbered_jobs(self.core.edge.now)
            .map(|(cgroups, is_over)| {
                assert!(!is_over, "the search for the number of {cgroups:?} does not end");
                cgroups.clone()
            })
            .collect();
        let mut shares: BTreeMap<Option<u32>, (usize, usize)> = BTreeMap::new();
        for found in self.cgroups.values() {
            let is_tracked =
                self.core.targets.iter().any(|(_, target)| target.found_at.as_ref() == Some(&found.relative));
            let is_waiting = waiting.contains(&found.cgroups);
            assert!(!(is_tracked && is_waiting), "the number of {found:?} is known and searched");
            let has_place = is_tracked || is_waiting;
            let (tracked, left_out) = shares.entry(found.owner().0).or_default();
            *tracked += usize::from(has_place);
            *left_out += usize::from(!has_place);
        }
        assert_eq!(
            shares.values().map(|(_, left_out)| left_out).sum::<usize>(),
            self.core.edge.left_out,
            "{shares:?}"
        );
        let most = shares.values().map(|(tracked, _)| *tracked).max().unwrap_or_default();
        assert!(
            shares.values().all(|(tracked, left_out)| *left_out == 0 || tracked + 1 >= most),
            "unequal shares: {shares:?}"
        );
    }

    /// Checks that a job that was found has its number as its id, or its SLUID if that cannot be resolved.
    pub(super) fn check_name(&self, key: &TargetKey, target: &TrackedTarget) {
        let Some(number) = target.found_at.as_ref().and_then(|path| self.core.edge.numbers.get(path)) else {
            return;
        };
        let is_sluid = target.found_at.as_ref().is_some_and(|path| self.cgroups[path].captured.is_sluid);
        let is_named = key.as_ref() == Some(number) || (is_sluid && *key == Some(sluid(number)));
        assert!(is_named, "job {number} is tracked as {key:?}");
    }

    pub(super) fn exit(&mut self) {
        let exits = (0..1 + self.random.below(3)).map(|_| (self.name(), self.random.percent(50))).collect();
        self.rescan(exits);
    }

    pub(super) fn change_steps(&mut self) {
        let found = self
            .core
            .targets
            .iter()
            .filter_map(|(key, target)| Some((key.clone()?, target.found_at.clone()?)));
        let found: Vec<(Identifier, PathBuf)> = found.collect();
        if found.is_empty() {
            return;
        }
        let (job_id, relative) = self.random.choose(&found).clone();
        let name = format!("step_{}", self.random.below(3));
        let steps = self.core.edge.steps.entry(relative.clone()).or_default();
        let is_ended = steps.remove(&name).is_some();
        if !is_ended || self.random.percent(30) {
            // A step that returns at once has another cgroup.
            self.inode += 1;
            let path = PathBuf::from("/cgroup").join(relative).join(&name);
            let inodes = BTreeMap::from([(path.clone(), self.inode)]);
            let cgroups = JobCgroups { v2: Some(path), inodes, ..JobCgroups::default() };
            let labels = vec![("step".to_owned(), name.clone())];
            steps.insert(name.clone(), Step { level: StepLevel::Step, name, labels, cgroups });
        }
        self.rescan(BTreeMap::from([(job_id, is_ended)]));
    }

    /// Lets the agent see exits, and rescan the jobs in which they happened.
    fn rescan(&mut self, exits: BTreeMap<Identifier, bool>) {
        self.core.edge.exits = exits;
        done(self.core.handle_exits());
        done(self.core.rescan_missed());
    }
}

/// Part of the directories of a job, all with one inode: each hierarchy numbers its own.
fn cgroups_of(relative: &Path, inode: u64, hierarchies: Range<usize>) -> JobCgroups {
    let mut cgroups = JobCgroups::default();
    for name in &HIERARCHIES[hierarchies] {
        let path = Path::new("/").join(name).join(relative);
        cgroups.inodes.insert(path.clone(), inode);
        match *name {
            "unified" => cgroups.v2 = Some(path),
            controller => drop(cgroups.v1.insert(controller.to_owned(), path)),
        }
    }
    cgroups
}

fn inode_of(cgroups: &JobCgroups) -> u64 {
    *cgroups.inodes.values().next().unwrap()
}

pub(super) fn sluid(number: &Identifier) -> Identifier {
    Identifier::try_from(format!("sluid{number}")).unwrap()
}
