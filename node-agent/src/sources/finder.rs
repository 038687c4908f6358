//! Find what belongs to a source and comes later: the supervisor searches, and the sampler reads what was
//! found.

use super::perf::ProcessFollower;
use super::summed_file::{Descendants, ScanResult};

#[derive(Debug)]
pub enum Finder {
    Cgroups(Descendants),
    /// Processes whose perf events are counted one by one.
    Processes(Box<ProcessFollower>),
}

impl Finder {
    /// Searches for more; perf events may take `perf_room` further descriptors.
    pub fn scan(&mut self, perf_room: usize) -> ScanResult {
        match self {
            Self::Cgroups(below) => below.scan(),
            Self::Processes(follower) => follower.scan(perf_room),
        }
    }

    pub fn perf_descriptors(&self) -> usize {
        match self {
            Self::Cgroups(_) => 0,
            Self::Processes(follower) => follower.descriptors(),
        }
    }
}
