//! Replaces a frame's ids by the records of a dictionary.

use std::sync::Arc;

use polymeter_proto::ledger::Event;
use polymeter_proto::wire::frame::{Block, Frame};
use polymeter_store::accepted::{Accepted, HistogramRecord, LossReason, LossRecord, SampleBlock};

use super::dictionary::Dictionary;
use super::fault::Fault;
use super::windows;

impl Dictionary {
    /// Checks that all ids of `frame` are known. The entries of its own dictionary were added before.
    pub(super) fn check(&self, frame: &Frame) -> Result<(), Fault> {
        self.session()?;
        for block in &frame.blocks {
            self.shapes.get(block.shape.0).ok_or(Fault::Unknown("shape"))?.fits(block)?;
        }
        for (shape, _) in &frame.shape_tallies {
            self.shapes.get(shape.0).ok_or(Fault::Unknown("shape"))?;
        }
        self.check_stacks(frame)?;
        let of_tallies = frame.ledger.iter().filter_map(|entry| entry.job);
        let of_events = frame.events.iter().filter_map(Event::job);
        of_tallies.chain(of_events).try_for_each(|job| self.job(job).map(drop))
    }

    /// Removes everything with unknown ids from `frame`, and returns its samples as losses.
    pub(super) fn reject_unknown(&mut self, frame: &mut Frame, received_us: i64) -> Vec<LossRecord> {
        let is_known =
            |block: &Block| self.shapes.get(block.shape.0).is_some_and(|shape| shape.fits(block).is_ok());
        let (known, unknown) = std::mem::take(&mut frame.blocks).into_iter().partition(is_known);
        let unknown: Vec<Block> = unknown;
        frame.blocks = known;
        // The next tally repeats this one.
        frame.ledger.retain(|entry| self.line(entry.job, entry.source.clone()).is_ok());
        frame.shape_tallies.retain(|(shape, _)| self.shapes.get(shape.0).is_some());
        frame.events.retain(|event| event.job().is_none_or(|job| self.jobs.contains_key(&job)));
        let mut losses = self.reject_unknown_stacks(frame);
        losses.extend(unknown.iter().map(|block| self.loss(block, LossReason::UnknownId, received_us)));
        losses
    }

    /// Samples of `block` as a loss of the source of its shape, if the shape is known. A loss without times
    /// gets the time `received_us`.
    pub(super) fn loss(&self, block: &Block, reason: LossReason, received_us: i64) -> LossRecord {
        let shape = self.shapes.get(block.shape.0);
        let times = || block.times_us.iter().copied();
        LossRecord {
            line: shape.map(|shape| Arc::clone(&shape.line)),
            samples: block.samples(),
            reason,
            span_us: times().min().zip(times().max()).unwrap_or((received_us, received_us)),
        }
    }

    /// Replaces ids by records. The entries of the frame's own dictionary were added before.
    pub(super) fn resolve(&mut self, frame: Frame, received_us: i64) -> Result<Accepted, Fault> {
        let mut accepted = Accepted::empty(Arc::clone(self.session()?), frame.sequence, received_us);
        for block in frame.blocks {
            if frame.is_kept && block.windows.is_some() {
                return Err(Fault::Contradiction("a ring holds no windows"));
            }
            let into = if frame.is_kept { &mut accepted.kept } else { &mut accepted.samples };
            self.resolve_block(block, into, &mut accepted.histograms)?;
        }
        for interval in frame.stacks {
            accepted.stacks.push(self.resolve_stacks(interval)?);
        }
        for entry in frame.ledger {
            accepted.tallies.push((self.line(entry.job, entry.source)?, entry.tally));
        }
        for (shape, tally) in frame.shape_tallies {
            let shape = self.shapes.get(shape.0).ok_or(Fault::Unknown("shape"))?;
            accepted.tallies.push((Arc::clone(&shape.line), tally));
        }
        for event in frame.events {
            match event {
                Event::PlanChange(change) => {
                    let job = change.job.map(|handle| self.job(handle)).transpose()?;
                    accepted.plan_changes.push((job, change));
                }
                Event::JobEnded { job, at_us } => accepted.job_ends.push((self.job(job)?, at_us)),
                Event::Mark(mark) => {
                    let job = mark.job.map(|handle| self.job(handle)).transpose()?;
                    accepted.marks.push((job, mark));
                }
                Event::JobFacts(reported) => {
                    accepted.job_facts.push((self.job(reported.job)?, reported.facts))
                }
                Event::JobDetails(reported) => {
                    accepted.job_details.push((self.job(reported.job)?, reported.details));
                }
                Event::Kept(kept) => accepted.kept_intervals.push((self.job(kept.job)?, kept)),
                Event::Fired(firing) => accepted.fired.push((self.job(firing.job)?, firing)),
                Event::SessionEnded { at_us } => accepted.session_end_us = Some(at_us),
                Event::JobOwner(owner) => accepted.job_owners.push((self.job(owner.job)?, owner)),
                Event::RequestRefused(refused) => {
                    accepted.refused_requests.push((self.job(refused.job)?, refused));
                }
            }
        }
        Ok(accepted)
    }

    fn resolve_block(
        &self,
        block: Block,
        into: &mut Vec<SampleBlock>,
        histograms: &mut Vec<HistogramRecord>,
    ) -> Result<(), Fault> {
        let shape = self.shapes.get(block.shape.0).ok_or(Fault::Unknown("shape"))?;
        shape.fits(&block)?;
        let line = &shape.line;
        if let Some(found) = &block.windows {
            windows::resolve(line, &shape.columns, &block, found, into);
            histograms.extend(windows::histograms(&shape.columns, &block, found));
            return Ok(());
        }
        let series: Vec<_> =
            block.columns.iter().filter_map(|column| shape.columns.get(*column).cloned()).collect();
        // A block whose columns were all absent has only times.
        if !series.is_empty() {
            let (line, times_us, values) = (Arc::clone(line), block.times_us, block.values);
            into.push(SampleBlock { line, series, times_us, values, windows: None });
        }
        Ok(())
    }
}
