//! Bound of the series that users supply for a job. An agent has a bound of its own, and forgets what it
//! has counted when it ends; each series and each name is a row of the store that stays. What the store has
//! of a job is read when its users' series are first met, so that the bound holds over the ends of
//! collectors.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use polymeter_proto::series::{Identifier, JobDescriptor, Labels};
use polymeter_store::accepted::{Accepted, JobRecord, LossReason, SeriesRecord};

use super::times::loss;
use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Supplied {
    /// Prefix of the names of its metrics.
    pub(crate) begin: &'static str,
    /// Series of a job on a node.
    pub(crate) most: usize,
}

const SUPPLIED: [Supplied; 2] = [
    Supplied { begin: "user.", most: limits::USER_SERIES_OF_JOB },
    Supplied { begin: "region.", most: limits::REGION_SERIES_OF_JOB },
];

/// A job on a node, whichever agent announces it: cluster, job id, node; and the kind of series.
type Place = (Option<Identifier>, Identifier, Identifier, Supplied);

/// Users' series of the jobs on their nodes, by hash.
#[derive(Debug, Default)]
pub(crate) struct UserSeries {
    hasher: RandomState,
    known: HashMap<Place, HashSet<u64>>,
    /// Oldest first.
    order: VecDeque<Place>,
    count: usize,
}

fn place_of(job: &JobRecord, supplied: Supplied) -> Place {
    let JobDescriptor { cluster, job_id, .. } = &job.descriptor;
    (cluster.clone(), job_id.clone(), job.node().clone(), supplied)
}

fn supplied(series: &SeriesRecord) -> Option<(&Arc<JobRecord>, Supplied)> {
    series
        .job
        .as_ref()
        .zip(SUPPLIED.iter().find(|of| series.metric.name.as_str().starts_with(of.begin)).copied())
}

impl UserSeries {
    /// Jobs in `accepted` with the kinds of their users' series that were not read from the store yet.
    pub(crate) fn unknown(&self, accepted: &Accepted) -> Vec<(Arc<JobRecord>, Supplied)> {
        let mut unknown: HashMap<Place, Arc<JobRecord>> = HashMap::new();
        for (job, of) in
            accepted.samples.iter().flat_map(|samples| &samples.series).filter_map(|one| supplied(one))
        {
            let place = place_of(job, of);
            if !self.known.contains_key(&place) {
                unknown.entry(place).or_insert_with(|| Arc::clone(job));
            }
        }
        unknown.into_iter().map(|((.., of), job)| (job, of)).collect()
    }

    /// Takes the names and labels of the users' series of a job that the store has.
    pub(crate) fn learn(&mut self, job: &JobRecord, of: Supplied, stored: &[(String, Labels)]) {
        let place = place_of(job, of);
        let hashes: HashSet<u64> = stored.iter().map(|(metric, labels)| self.hash(metric, labels)).collect();
        if !self.known.contains_key(&place) {
            self.order.push_back(place.clone());
        }
        self.count += hashes.len();
        let before = self.known.insert(place, hashes);
        self.count -= before.map_or(0, |before| before.len());
    }

    fn hash(&self, metric: &str, labels: &Labels) -> u64 {
        self.hasher.hash_one((metric, labels.identity()))
    }

    /// Removes the samples of users' series beyond the bound from `accepted`, and counts them as lost.
    pub(crate) fn enforce(&mut self, accepted: &mut Accepted) {
        let mut refused = Vec::new();
        accepted.samples.retain(|samples| {
            let is_admitted = samples.series.iter().all(|series| self.admits(series));
            if !is_admitted {
                refused.push(loss(samples, LossReason::UserSeries));
            }
            is_admitted
        });
        refused.into_iter().for_each(|loss| accepted.add_loss(loss));
    }

    fn admits(&mut self, series: &SeriesRecord) -> bool {
        let Some((job, of)) = supplied(series) else { return true };
        let place = place_of(job, of);
        let hash = self.hash(series.metric.name.as_str(), &series.labels);
        if !self.known.contains_key(&place) {
            self.order.push_back(place.clone());
        }
        let known = self.known.entry(place).or_default();
        if known.contains(&hash) {
            return true;
        }
        if known.len() >= of.most {
            return false;
        }
        known.insert(hash);
        self.count += 1;
        while self.count > limits::USER_SERIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.count -= self.known.remove(&oldest).map_or(0, |forgotten| forgotten.len());
        }
        true
    }
}
