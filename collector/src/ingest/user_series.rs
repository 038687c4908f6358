//! The bound of the series that users supply for a job. An agent has a bound of its own, and forgets what it
//! has counted when it ends; each series and each name is a row of the store that stays.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use polymeter_proto::series::{Identifier, JobDescriptor};
use polymeter_store::accepted::{Accepted, LossReason, SampleBlock, SeriesRecord};

use super::times::loss;
use crate::limits;

/// What the names of metrics begin with whose series users supply, and the bound of each.
const BOUNDS: [(&str, usize); 2] =
    [("user.", limits::USER_SERIES_OF_JOB), ("region.", limits::REGION_SERIES_OF_JOB)];

/// A job on a node, whichever agent announces it: its cluster, its id, and the node; and what the names begin
/// with.
type Place = (Option<Identifier>, Identifier, Identifier, &'static str);

/// The users' series of the jobs on their nodes, by hash.
#[derive(Debug, Default)]
pub(super) struct UserSeries {
    hasher: RandomState,
    known: HashMap<Place, HashSet<u64>>,
    /// The places, the oldest first.
    order: VecDeque<Place>,
    count: usize,
}

impl UserSeries {
    /// Removes the samples of users' series beyond the bound from `accepted`, and counts them as lost.
    pub(super) fn enforce(&mut self, accepted: &mut Accepted) {
        let mut refused = Vec::new();
        accepted.samples.retain(|samples| {
            let is_admitted = self.admits_all(samples);
            if !is_admitted {
                refused.push(loss(samples, LossReason::UserSeries));
            }
            is_admitted
        });
        refused.into_iter().for_each(|loss| accepted.add_loss(loss));
    }

    fn admits_all(&mut self, samples: &SampleBlock) -> bool {
        samples.series.iter().all(|series| self.admits(series))
    }

    fn admits(&mut self, series: &SeriesRecord) -> bool {
        let bound = BOUNDS.iter().find(|(begin, _)| series.metric.name.as_str().starts_with(begin));
        let Some(((begin, most), job)) = bound.zip(series.job.as_ref()) else { return true };
        let JobDescriptor { cluster, job_id, .. } = &job.descriptor;
        let place = (cluster.clone(), job_id.clone(), series.node().clone(), *begin);
        let hash = self.hasher.hash_one((series.metric.name.as_str(), &series.labels));
        let known = self.known.entry(place.clone()).or_default();
        if known.contains(&hash) {
            return true;
        }
        if known.len() >= *most {
            return false;
        }
        if known.is_empty() {
            self.order.push_back(place);
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
