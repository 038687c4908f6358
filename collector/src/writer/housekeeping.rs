//! Periodic work of a writer: silent sessions, outcomes of jobs, memory, and the time of the next task.

use std::cell::Cell;
use std::time::Duration;

use polymeter_service::clock::Now;
use polymeter_service::log::chain;
use polymeter_store::accepted::StoredOutcome;
use tracing::{debug, error, info, warn};

use super::state::Writer;
use super::store_access::NotStored;
use crate::control::node_outcome::OutcomeReport;
use crate::ingest::micros;
use crate::{allocator, limits};

/// Part of the time of silence by which the clock of the database may be set ahead unnoticed.
const SILENCE_STEP_PART: i64 = 10;

/// How far the clock of the database was set ahead between two readings.
fn stepped_us(before: Now, now: Now) -> i64 {
    let elapsed_us = micros(now.since_start.saturating_sub(before.since_start));
    now.wall_us.saturating_sub(before.wall_us).saturating_sub(elapsed_us)
}

impl Writer {
    /// The scheduler reports the outcome of a job again if the store does not have the job yet.
    pub(super) fn store_outcomes(&mut self) {
        while let Some(OutcomeReport { outcome, reply }) =
            self.links.outcomes.as_ref().and_then(|outcomes| outcomes.try_recv().ok())
        {
            if self.given_up {
                continue;
            }
            let stored = self.persist(|store| store.store_outcome(&outcome));
            // The reporter may have timed out; it then reports again.
            reply.send(stored.unwrap_or(StoredOutcome::UnknownJob)).ok();
        }
    }

    /// Periodically stores and logs the offsets of clocks that have become large, or changed. One writer does
    /// so for all.
    pub(super) fn store_clock_offsets(&mut self) {
        let now = self.clock.now().since_start;
        let is_due = now.saturating_sub(self.offsets_at) >= limits::CLOCK_TICK;
        if !is_due || self.next_silence_check.is_none() || self.given_up {
            return;
        }
        self.offsets_at = now;
        let changes = self.links.clock_offsets.changes();
        if changes.is_empty() {
            return;
        }
        let stored = match self.persist(|store| store.set_clock_offsets(&changes)) {
            Ok(stored) => stored,
            Err(NotStored::StoreLost) => return self.reset(),
            Err(NotStored::GivenUp | NotStored::Refused(_)) => return,
        };
        // A session without a stored frame is not in the store yet.
        for (session, offset_us) in changes.into_iter().filter(|(session, _)| stored.contains(session)) {
            let node = self.links.clock_offsets.set_stored(session, offset_us);
            match offset_us {
                Some(offset_us) => warn!(
                    node,
                    ahead_s = offset_us / 1_000_000,
                    remedy = "set the clock of the node, or of this machine if all nodes are affected, and restart \
                        the node's polymeter-agent; until then the times of its jobs are corrected",
                    "the clocks of a node and of the collector differ"
                ),
                None => info!(node, "the clocks of a node and of the collector agree again"),
            }
        }
    }

    /// Periodically removes sessions that sent nothing that can be stored, and releases memory.
    pub(super) fn clean_up(&mut self) {
        let now = self.clock.now();
        if now.since_start.saturating_sub(self.cleaned_at) < limits::CLEAN_UP_INTERVAL {
            return;
        }
        self.cleaned_at = now.since_start;
        self.ingest.forget_silent_unproven(now);
        self.freed_bytes += self.ingest.take_freed();
        self.links.queue.tidy(now.since_start);
        if self.freed_bytes >= limits::TRIM_BYTES {
            allocator::trim();
            self.freed_bytes = 0;
        }
    }

    pub(super) fn next_wake(&self) -> Option<Duration> {
        let now = self.clock.now().since_start;
        let until_silence_check = self.next_silence_check.map(|check| check.saturating_sub(now));
        let until_outcomes = self.links.outcomes.is_some().then_some(limits::OUTCOMES_INTERVAL);
        let until_offsets = self.next_silence_check.is_some().then_some(limits::CLOCK_TICK);
        let is_unclean = self.ingest.has_unproven() || self.freed_bytes >= limits::TRIM_BYTES;
        let until_clean_up = is_unclean.then_some(limits::CLEAN_UP_INTERVAL);
        self.time_to_commit()
            .into_iter()
            .chain(until_silence_check)
            .chain(until_outcomes)
            .chain(until_offsets)
            .chain(until_clean_up)
            .min()
    }

    /// Periodically ends the sessions that have been silent for too long, by the clock of the database: that
    /// of one of several collectors may be wrong. Those with a successor end earlier.
    pub(super) fn end_silent_sessions(&mut self) {
        let since_start = self.clock.now().since_start;
        if self.next_silence_check.is_none_or(|check| since_start < check) {
            return;
        }
        let session_timeout = self.settings.session_timeout;
        self.next_silence_check = Some(since_start + session_timeout.min(limits::SILENCE_CHECK_INTERVAL));
        if self.store.is_none() {
            return self.reconnect_while_idle(since_start + session_timeout);
        }
        let (clock, checked) = (self.clock, self.silence_checked);
        let counts = since_start >= self.silence_counts_from;
        let read = Cell::new(checked);
        let ended = self.attempt(|store| {
            let now = Now { wall_us: store.now_us()?, ..clock.now() };
            read.set(Some(now));
            store.end_superseded(now.wall_us.saturating_sub(limits::AGENT_SILENCE_US), now.wall_us)?;
            let step_max_us = micros(session_timeout) / SILENCE_STEP_PART;
            if checked.is_none_or(|checked| stepped_us(checked, now) > step_max_us) {
                return Ok(None);
            }
            if !counts {
                return Ok(Some(Vec::new()));
            }
            store.end_silent(now.wall_us.saturating_sub(micros(session_timeout)), now.wall_us).map(Some)
        });
        self.silence_checked = read.get();
        match ended {
            Ok(Some(lost_jobs)) => self.links.sinks.report_lost(lost_jobs, since_start),
            Ok(None) => {
                // By the new time all agents look silent, until each of them has sent again. At the start
                // they may not have reached this collector yet.
                self.silence_counts_from = since_start + session_timeout;
                if checked.is_some() {
                    warn!(
                        remedy =
                            "none is needed: silent agents are looked for when all have had time to send",
                        "the clock of the database was set ahead"
                    );
                }
            }
            Err(error) if error.is_loss() => {
                error!("{}", chain(&error));
                self.reset();
            }
            Err(error) => {
                warn!(error = %chain(&error), remedy = "retrying automatically", "cannot end sessions of agents that stopped sending");
            }
        }
    }

    /// Tries once to open a store whose connection was lost while no frames arrived. Since then nothing could
    /// be stored, and agents look silent that are not: if the store is back, silence counts from
    /// `counts_from`.
    fn reconnect_while_idle(&mut self, counts_from: Duration) {
        match self.attempt(|_| Ok(())) {
            Ok(()) => {
                self.silence_counts_from = counts_from;
                info!("the store is available again; no frames arrived while it was not");
            }
            Err(error) if error.is_loss() => {
                error!("{}", chain(&error));
                self.reset();
            }
            Err(error) => debug!(error = %chain(&error), "the store is still not available"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall_s: i64, elapsed_s: u64) -> Now {
        Now { wall_us: wall_s * 1_000_000, since_start: Duration::from_secs(elapsed_s) }
    }

    #[test]
    fn a_clock_that_is_set_ahead_is_noticed_and_elapsed_time_is_not() {
        assert_eq!(stepped_us(at(1000, 5), at(1030, 35)), 0);
        assert_eq!(stepped_us(at(1000, 5), at(1030 + 8_640_000, 35)), 8_640_000 * 1_000_000);
        assert!(stepped_us(at(1000, 5), at(900, 35)) < 0, "set back");
    }
}
