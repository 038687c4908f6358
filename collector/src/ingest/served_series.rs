//! Series of devices outside the nodes that are about other nodes, or about jobs that a label names.
//!
//! Only some agents may state values about other nodes: the others could show wrong values to the jobs there.
//! A series whose label names a job is that job's while it runs, on the node that the device serves if the
//! agent states one. Other values with such a label stay with the agent that polls, whose series only
//! administrators read: they may be of a job that is not known yet, or of one that runs elsewhere.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::name::matches_glob;
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, JobName, SessionDescriptor, job_name, served_node,
};
use polymeter_store::accepted::{
    Accepted, JobRecord, LossReason, SampleBlock, SeriesRecord, SessionRecord, StoreId,
};
use polymeter_store::{DeviceJob, DeviceJobs};

use super::times::loss;
use crate::limits;

/// Agents that may state values about nodes other than their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceAgents {
    /// Includes the agents of nodes on which no job has run: service nodes.
    without_jobs: bool,
    /// Names of the nodes of further agents, or globs of names.
    nodes: Vec<String>,
}

impl DeviceAgents {
    /// Stands for the agents of nodes on which no job has run.
    pub const WITHOUT_JOBS: &'static str = "@without-jobs";
}

impl Default for DeviceAgents {
    fn default() -> Self {
        Self { without_jobs: true, nodes: Vec::new() }
    }
}

impl FromIterator<String> for DeviceAgents {
    fn from_iter<I: IntoIterator<Item = String>>(texts: I) -> Self {
        let (words, nodes): (Vec<_>, Vec<_>) = texts.into_iter().partition(|text| text == Self::WITHOUT_JOBS);
        Self { without_jobs: !words.is_empty(), nodes }
    }
}

/// Jobs of a name, and when they were looked up.
#[derive(Debug)]
struct Known {
    jobs: Vec<DeviceJob>,
    looked_up: Duration,
}

#[derive(Debug)]
struct Attributed {
    /// Keeps the address in use, so that it identifies the record.
    original: Arc<SeriesRecord>,
    job_key: i64,
    series: Arc<SeriesRecord>,
}

/// Answers of the store about served nodes and jobs.
#[derive(Debug, Default)]
pub(crate) struct ServedSeries {
    agents: DeviceAgents,
    /// Nodes of agents on which jobs have run.
    with_jobs: HashSet<Identifier>,
    /// Nodes without jobs, and when this was looked up.
    without_jobs: HashMap<Identifier, Duration>,
    jobs: HashMap<JobName, Known>,
    attributed: HashMap<usize, Attributed>,
    /// Size of `attributed` at which records that nobody else has are removed.
    clean_at: usize,
}

/// Series that a frame has of devices: what must be looked up, and what became of them.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    pub(crate) had_jobs: bool,
    pub(crate) names: HashSet<JobName>,
}

/// Result for a frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Enforced {
    /// A node whose values were refused.
    pub(crate) refused: Option<String>,
    /// Samples with a label of a job that they do not belong to.
    pub(crate) unattributed: u64,
}

impl ServedSeries {
    pub(crate) fn new(agents: DeviceAgents) -> Self {
        Self { agents, ..Self::default() }
    }

    /// Returns what the store must be asked about a frame.
    pub(crate) fn unknown(&self, accepted: &Accepted, now: Duration) -> Unknown {
        let node = &accepted.session.descriptor.node;
        let mut unknown = Unknown::default();
        for series in all_series(accepted) {
            let name = name_of(series);
            let depends = self.agents.without_jobs && (stated_node(series).is_some() || name.is_some());
            unknown.had_jobs |= depends && !self.knows(node, now);
            let Some(name) = name else { continue };
            let is_known = self.jobs.get(&name).is_some_and(|known| {
                let wait =
                    if known.jobs.is_empty() { limits::DEVICE_JOB_RETRY } else { limits::DEVICE_JOB_REREAD };
                now.saturating_sub(known.looked_up) < wait
            });
            if !is_known {
                unknown.names.insert(name);
            }
        }
        unknown
    }

    /// True if it is known whether jobs have run on a node: another collector may have the first one.
    fn knows(&self, node: &Identifier, now: Duration) -> bool {
        let is_recent = |at: &Duration| now.saturating_sub(*at) < limits::DEVICE_JOB_REREAD;
        self.with_jobs.contains(node) || self.without_jobs.get(node).is_some_and(is_recent)
    }

    pub(crate) fn learn_had_jobs(&mut self, node: &Identifier, had_jobs: bool, now: Duration) {
        if had_jobs {
            self.without_jobs.remove(node);
            self.with_jobs.insert(node.clone());
        } else {
            self.without_jobs.insert(node.clone(), now);
        }
    }

    pub(crate) fn learn_jobs(&mut self, found: DeviceJobs, now: Duration) {
        if self.jobs.len() > limits::DEVICE_JOBS {
            self.jobs.retain(|_, known| now.saturating_sub(known.looked_up) < limits::DEVICE_JOB_REREAD);
        }
        for (name, jobs) in found {
            self.jobs.insert(name, Known { jobs, looked_up: now });
        }
    }

    fn may_serve(&self, node: &Identifier) -> bool {
        self.agents.nodes.iter().any(|glob| matches_glob(glob, node.as_str()))
            || self.agents.without_jobs && self.without_jobs.contains_key(node)
    }

    /// Removes series about nodes that the agent may not serve, and counts their samples as lost. Gives others
    /// to the jobs that their labels name.
    pub(crate) fn enforce(&mut self, accepted: &mut Accepted) -> Enforced {
        let mut enforced = Enforced::default();
        let node = accepted.session.descriptor.node.clone();
        if self.without_jobs.contains_key(&node) && accepted.jobs().next().is_some() {
            self.learn_had_jobs(&node, true, Duration::ZERO);
        }
        if !all_series(accepted).any(|series| stated_node(series).is_some() || name_of(series).is_some()) {
            return enforced;
        }
        let may_serve = self.may_serve(&node);
        let mut lost = Vec::new();
        for blocks in [&mut accepted.samples, &mut accepted.kept, &mut accepted.quarantined] {
            let mut kept = Vec::with_capacity(blocks.len());
            for mut block in std::mem::take(blocks) {
                if !may_serve && let Some(node) = block.series.iter().find_map(|series| stated_node(series)) {
                    enforced.refused.get_or_insert_with(|| node.to_owned());
                    let is_refused = |series: &SeriesRecord| stated_node(series).is_some();
                    lost.push(loss(&block.with(is_refused), LossReason::ServedNode));
                    block = block.with(|series| !is_refused(series));
                }
                if !block.series.is_empty() {
                    enforced.unattributed += self.attribute_block(&mut block, may_serve);
                    kept.push(block);
                }
            }
            *blocks = kept;
        }
        lost.into_iter().for_each(|loss| accepted.add_loss(loss));
        accepted.histograms.retain(|histogram| may_serve || stated_node(&histogram.series).is_none());
        for histogram in &mut accepted.histograms {
            let span_us = histogram.time_us..=histogram.time_us;
            if let Some(of_job) = self.attributed(&histogram.series, &span_us, may_serve) {
                histogram.series = of_job;
            }
        }
        enforced
    }

    /// Replaces the series that belong to jobs. Returns the number of samples whose labels name another one.
    fn attribute_block(&mut self, block: &mut SampleBlock, may_serve: bool) -> u64 {
        let Some((begin_us, end_us)) = block.span_us() else { return 0 };
        let (span_us, rows) = (begin_us..=end_us, block.times_us.len() as u64);
        let mut unattributed = 0;
        for series in block.series.iter_mut().filter(|series| name_of(series).is_some()) {
            match self.attributed(series, &span_us, may_serve) {
                Some(of_job) => *series = of_job,
                None => unattributed += rows,
            }
        }
        unattributed
    }

    /// Returns the series of the job that the labels of `series` name, if it ran all the time. Every agent may
    /// state values of jobs on its own node.
    fn attributed(
        &mut self,
        series: &Arc<SeriesRecord>,
        span_us: &RangeInclusive<i64>,
        may_serve: bool,
    ) -> Option<Arc<SeriesRecord>> {
        let name = name_of(series)?;
        if !may_serve && name.node.as_ref() != Some(series.node()) {
            return None;
        }
        let job = the_job(&self.jobs.get(&name)?.jobs, &name, span_us)?;
        let address = Arc::as_ptr(series).addr();
        let known = self.attributed.get(&address);
        if let Some(known) = known.filter(|known| known.job_key == job.job_key) {
            return Some(Arc::clone(&known.series));
        }
        let of_job = Arc::new(series_of_job(series, job));
        if self.attributed.len() >= self.clean_at {
            self.attributed.retain(|_, known| Arc::strong_count(&known.original) > 1);
            self.clean_at = (2 * self.attributed.len()).max(limits::DEVICE_JOBS);
        }
        let known =
            Attributed { original: Arc::clone(series), job_key: job.job_key, series: Arc::clone(&of_job) };
        self.attributed.insert(address, known);
        Some(of_job)
    }
}

fn all_series(accepted: &Accepted) -> impl Iterator<Item = &Arc<SeriesRecord>> {
    let blocks = accepted.samples.iter().chain(&accepted.kept).chain(&accepted.quarantined);
    blocks.flat_map(|block| &block.series).filter(|series| series.job.is_none())
}

/// Returns the other node that a series is about, as its agent states it.
fn stated_node(series: &SeriesRecord) -> Option<&str> {
    if series.job.is_some() {
        return None;
    }
    served_node(series.node(), series.metric.name.as_str(), &series.labels)
}

fn name_of(series: &SeriesRecord) -> Option<JobName> {
    if series.job.is_some() { None } else { job_name(series.metric.name.as_str(), &series.labels) }
}

/// Returns the only job that ran at these times; of one on several nodes the row of the first node.
fn the_job<'a>(
    jobs: &'a [DeviceJob],
    name: &JobName,
    span_us: &RangeInclusive<i64>,
) -> Option<&'a DeviceJob> {
    let ran = |job: &&DeviceJob| {
        let margin_us = limits::DEVICE_JOB_MARGIN_US;
        job.started_us.saturating_sub(margin_us) <= *span_us.start()
            && job.ended_us.is_none_or(|ended_us| *span_us.end() <= ended_us.saturating_add(margin_us))
    };
    let is_named = |job: &&DeviceJob| {
        // The cluster of a job is not known where its scheduler's scripts do not state it.
        let is_of_cluster = name.cluster.is_none()
            || job.cluster.as_deref() == name.cluster.as_ref().map(Identifier::as_str)
            || job.cluster.is_none() && name.node.is_some();
        is_of_cluster && name.node.as_ref().is_none_or(|node| node.as_str() == job.node)
    };
    let mut found = jobs.iter().filter(is_named).filter(ran);
    let first = found.next()?;
    let (mut chosen, mut is_one) = (first, true);
    for other in found {
        is_one &= other.job_key == first.job_key;
        if other.node < chosen.node {
            chosen = other;
        }
    }
    is_one.then_some(chosen)
}

/// Series of a job on its node, which a device measures.
fn series_of_job(series: &SeriesRecord, job: &DeviceJob) -> SeriesRecord {
    let node = Identifier::try_from(job.node.as_str()).unwrap_or_else(|_| series.node().clone());
    let session = SessionRecord {
        id: series.session.id,
        descriptor: SessionDescriptor { node, ..series.session.descriptor.clone() },
    };
    let identifier = |text: &Option<String>| text.as_deref().and_then(|text| text.try_into().ok());
    let job_id = series.labels.get(polymeter_proto::series::JOB_LABEL).unwrap_or_default();
    let descriptor = JobDescriptor {
        job_id: Identifier::try_from(job_id).unwrap_or_else(|_| series.node().clone()),
        cluster: identifier(&job.cluster),
        owner_uid: job.owner_uid.and_then(|uid| u32::try_from(uid).ok()),
        owner: identifier(&job.owner),
        started_us: job.started_us,
    };
    let key = StoreId::none();
    key.assign(job.job_key);
    let job = JobRecord { session: Arc::new(session), handle: JobHandle(u32::MAX), descriptor, key };
    SeriesRecord {
        session: Arc::clone(&series.session),
        metric: Arc::clone(&series.metric),
        job: Some(Arc::new(job)),
        labels: Arc::clone(&series.labels),
        id: StoreId::none(),
    }
}
