//! Transactions: frames are gathered, committed, acknowledged, and then offered to the sinks.

use std::collections::HashSet;
use std::time::Duration;

use polymeter_proto::name::MetricName;
use polymeter_service::log::chain;
use polymeter_store::accepted::{Accepted, LossReason};
use tracing::warn;

use super::state::{Gathered, Writer};
use super::store_access::NotStored;
use crate::ingest::{Measure, MetricUnits, RefusedMetric, ServedSeries, UserSeries};
use crate::limits;
use crate::session_messages::Outgoing;

impl Writer {
    /// None if no frames are gathered.
    pub(super) fn time_to_commit(&self) -> Option<Duration> {
        if self.gathered.frames.is_empty() {
            return None;
        }
        let waited = self.clock.now().since_start.saturating_sub(self.gathered.since);
        Some(self.commit_interval().saturating_sub(waited))
    }

    /// How long frames wait for others. It is shorter while a client watches live values, which it gets after
    /// their commit, but commits take no more than a part of the time.
    fn commit_interval(&self) -> Duration {
        let usual = self.settings.commit_interval;
        if !self.links.sinks.is_watched() {
            return usual;
        }
        let shared = self.commit_duration.saturating_mul(limits::LIVE_COMMIT_DURATIONS);
        usual.min(shared.max(limits::LIVE_COMMIT_INTERVAL))
    }

    pub(super) fn is_commit_due(&self) -> bool {
        self.gathered.rows >= self.settings.commit_rows
            || self.gathered.frames.len() >= limits::COMMIT_FRAMES
            || self.time_to_commit() == Some(Duration::ZERO)
    }

    /// Learns which users' series of the frame's jobs the store has, unless they are known. Returns false if
    /// the frame cannot be stored now: its agent keeps it.
    fn learn_user_series(&mut self, accepted: &Accepted) -> bool {
        for (job, of) in self.user_series.unknown(accepted) {
            match self.persist(|store| store.user_series(&job, of.begin, of.most)) {
                Ok(stored) => self.user_series.learn(&job, of, &stored),
                Err(NotStored::GivenUp) => {
                    self.give_up(1);
                    return false;
                }
                Err(NotStored::StoreLost) => {
                    self.reset();
                    return false;
                }
                Err(NotStored::Refused(error)) => {
                    self.user_series.learn(&job, of, &[]);
                    let job = &job.descriptor.job_id;
                    warn!(error = %chain(&error), %job, "cannot read the series that users supply for a job; they are counted anew");
                }
            }
        }
        true
    }

    /// Learns whether jobs have run on the agent's node, and the jobs that the labels of its devices name.
    /// Returns false if the frame cannot be stored now: its agent keeps it.
    fn learn_served_series(&mut self, accepted: &Accepted) -> bool {
        let now = self.clock.now().since_start;
        let unknown = self.served_series.unknown(accepted, now);
        let node = accepted.session.descriptor.node.clone();
        if unknown.had_jobs {
            match self.persist(|store| store.had_jobs(&node)) {
                Ok(had_jobs) => self.served_series.learn_had_jobs(&node, had_jobs, now),
                Err(not_stored) => return self.is_refused(not_stored, "the jobs of a node of devices"),
            }
        }
        if !unknown.names.is_empty() {
            let names: Vec<_> = unknown.names.into_iter().collect();
            match self.persist(|store| store.device_jobs(&names)) {
                Ok(jobs) => self.served_series.learn_jobs(jobs, now),
                Err(not_stored) => return self.is_refused(not_stored, "the jobs that devices name"),
            }
        }
        true
    }

    /// Returns true if the frame can be stored without an answer, which the store refuses.
    fn is_refused(&mut self, not_stored: NotStored, what: &str) -> bool {
        match not_stored {
            NotStored::GivenUp => self.give_up(1),
            NotStored::StoreLost => self.reset(),
            NotStored::Refused(error) => {
                let remedy = "their values stay with the agent that polls";
                warn!(error = %chain(&error), remedy, "cannot read {what}");
                return true;
            }
        }
        false
    }

    /// Removes values about nodes that the agent may not serve, and says so once in a while. Gives others to
    /// the jobs that their labels name.
    fn enforce_served_series(&mut self, accepted: &mut Accepted) {
        let enforced = self.served_series.enforce(accepted);
        self.totals.unattributed += enforced.unattributed;
        let Some(served) = enforced.refused else { return };
        let node = &accepted.session.descriptor.node;
        if self.served_log.allows(node.as_str(), self.clock.now().since_start) {
            warn!(
                error = "jobs have run on its node, or `device_agents` does not name it",
                %node,
                served,
                remedy = format!("add \"{node}\" to `device_agents`, or poll from a service node"),
                "cannot store values that an agent states about another node"
            );
        }
    }

    /// Stores the units and kinds of new metrics, and learns those that the store has. Returns false if the
    /// frame cannot be stored now: its agent keeps it.
    fn learn_metric_units(&mut self, accepted: &Accepted) -> bool {
        let unknown = self.metric_units.unknown(accepted);
        if unknown.is_empty() {
            return true;
        }
        match self.persist(|store| store.define_metrics(&unknown)) {
            Ok(stored) => {
                let stored = stored.into_iter().filter_map(|(metric, unit, kind)| {
                    Some((MetricName::new(metric).ok()?, Measure { unit, kind }))
                });
                self.metric_units.learn(stored);
                true
            }
            Err(NotStored::GivenUp) => {
                self.give_up(1);
                false
            }
            Err(NotStored::StoreLost) => {
                self.reset();
                false
            }
            // The commit says why, and counts the samples.
            Err(NotStored::Refused(_)) => true,
        }
    }

    /// Removes samples that would mix units, and says so once in a while for each metric.
    fn enforce_metric_units(&mut self, accepted: &mut Accepted) {
        for RefusedMetric { metric, stored } in self.metric_units.enforce(accepted) {
            let name = metric.name.as_str();
            if !self.unit_log.allows(name, self.clock.now().since_start) {
                continue;
            }
            let (unit, kind) = (metric.unit.as_str(), metric.kind.as_str());
            warn!(
                error = %format!("the store has it as a {} in {}, and the node sends a {kind} in {unit}", stored.kind, stored.unit),
                metric = name,
                node = %accepted.session.descriptor.node,
                "cannot store samples of a metric; give its nodes the same kernel and agent, or sample another event"
            );
        }
    }

    pub(super) fn gather(&mut self, mut accepted: Accepted) {
        if !self.learn_metric_units(&accepted) {
            return;
        }
        self.enforce_metric_units(&mut accepted);
        if !self.learn_user_series(&accepted) {
            return;
        }
        self.user_series.enforce(&mut accepted);
        if !self.learn_served_series(&accepted) {
            return;
        }
        self.enforce_served_series(&mut accepted);
        accepted.clock_offset_us = self.links.clock_offsets.stored_us(accepted.session.id);
        if self.gathered.frames.is_empty() {
            self.gathered.since = self.clock.now().since_start;
        }
        if accepted.out_of_range.is_some() {
            self.links.clock_skew.report(&accepted, self.settings.clock, self.clock.now().since_start);
        }
        self.gathered.rows += accepted.rows() + accepted.rows_quarantined();
        self.gathered.frames.push(accepted);
    }

    pub(super) fn commit(&mut self) {
        let frames = std::mem::take(&mut self.gathered).frames;
        if frames.is_empty() {
            return;
        }
        match self.store_all(&frames) {
            // Only after the commit, so that no sink ever has a row that the store lacks.
            Ok(()) => {
                self.links.firings.offer(&frames);
                self.links.sinks.offer(frames, self.clock.now().since_start);
            }
            Err(NotStored::Refused(_)) => self.commit_one_by_one(frames),
            Err(NotStored::GivenUp) => self.give_up(frames.len()),
            Err(NotStored::StoreLost) => self.reset(),
        }
    }

    /// Discards all cached state of a store that is gone, including ids. Agents keep frames that were not
    /// acknowledged, and report the others as acknowledged: those count as lost if the store does not have
    /// them.
    pub(super) fn reset(&mut self) {
        self.gathered = Gathered::default();
        self.ingest.forget_all();
        self.user_series = UserSeries::default();
        self.served_series = ServedSeries::new(self.config.device_agents.clone());
        self.metric_units = MetricUnits::default();
    }

    /// Commits each frame separately, so that one that the store refuses does not block the others; it is
    /// stored as a loss. If even that is refused, no later frame of the session may be stored: the session
    /// restarts after its last stored frame.
    fn commit_one_by_one(&mut self, frames: Vec<Accepted>) {
        let mut stuck = HashSet::new();
        let mut stored = Vec::new();
        for frame in frames {
            let session = frame.session.id;
            if self.given_up {
                self.totals.given_up += 1;
                continue;
            }
            if stuck.contains(&session) {
                continue;
            }
            match self.commit_alone(frame) {
                Ok(Some(frame)) => stored.push(frame),
                Ok(None) => {
                    stuck.insert(session);
                    self.ingest.forget(session);
                }
                Err(NotStored::StoreLost) => {
                    // The other frames have ids of the store that is gone.
                    self.reset();
                    break;
                }
                Err(NotStored::GivenUp | NotStored::Refused(_)) => self.give_up(1),
            }
        }
        self.links.firings.offer(&stored);
        self.links.sinks.offer(stored, self.clock.now().since_start);
    }

    /// Stores a frame, else its events and its samples as a loss, else a loss without its source. Returns the
    /// one that was stored; none if the store refuses all of them.
    fn commit_alone(&mut self, frame: Accepted) -> Result<Option<Accepted>, NotStored> {
        let as_loss = frame.as_loss(LossReason::StoreRefused);
        let unattributed = frame.as_unattributed_loss(LossReason::StoreRefused);
        let events = frame.events();
        for attempt in [frame, as_loss, unattributed] {
            match self.store_all(std::slice::from_ref(&attempt)) {
                Ok(()) => {
                    let lost = events.saturating_sub(attempt.events());
                    if lost > 0 {
                        self.totals.lost_events += lost as u64;
                        warn!(
                            error = "the store refuses their frame; the warning before this one states why",
                            session = %attempt.session.id,
                            frame = attempt.sequence,
                            events = lost,
                            "cannot store marks, changes of plan or facts of jobs"
                        );
                    }
                    return Ok(Some(attempt));
                }
                Err(NotStored::Refused(error)) => warn!(
                    error = %chain(&error),
                    session = %attempt.session.id,
                    frame = attempt.sequence,
                    "cannot store a frame"
                ),
                Err(not_stored) => return Err(not_stored),
            }
        }
        Ok(None)
    }

    /// The time for a shutdown has expired: the agents keep the frames.
    fn give_up(&mut self, frames: usize) {
        self.given_up = true;
        self.totals.given_up += frames as u64;
    }

    fn store_all(&mut self, frames: &[Accepted]) -> Result<(), NotStored> {
        let begun = self.clock.now().since_start;
        let committed = self.persist(|store| store.commit(frames))?;
        let duration = self.clock.now().since_start.saturating_sub(begun);
        self.commit_duration = duration;
        self.links.metrics.committed(duration);
        self.links.directory.heard(frames);
        self.totals.frames += frames.len() as u64 - committed.repeated;
        self.totals.samples += committed.rows;
        self.totals.quarantined += committed.quarantined;
        self.totals.repeated += committed.repeated;
        frames.iter().flat_map(|frame| &frame.losses).for_each(|loss| self.totals.losses.count(loss));
        for (session, through) in committed.through {
            if let Some((peer, ack)) = self.ingest.committed(session, through) {
                self.links.outgoing.send(Outgoing::Message(peer, ack));
            }
        }
        Ok(())
    }
}
