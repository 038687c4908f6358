//! Samples of call stacks of frames, whose ids are replaced by records.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::catalogue::{STACKS_KIND, stacks_source};
use polymeter_proto::series::Identifier;
use polymeter_proto::stacks::{StackCount, StackInterval};
use polymeter_proto::wire::frame::Frame;
use polymeter_store::accepted::{LedgerLine, LossReason, LossRecord, StackBlock, StackSamples};

use super::dictionary::Dictionary;
use super::fault::Fault;

impl Dictionary {
    pub(super) fn check_stacks(&self, frame: &Frame) -> Result<(), Fault> {
        for interval in &frame.stacks {
            self.metric(interval.metric)?;
            let job = self.job(interval.job)?;
            interval.counts.iter().try_for_each(|count| self.stacks.of(count, &job).map(drop))?;
        }
        Ok(())
    }

    /// Removes the counts with unknown ids from the call stacks of a frame, and returns them as losses.
    pub(super) fn reject_unknown_stacks(&mut self, frame: &mut Frame) -> Vec<LossRecord> {
        let mut losses = Vec::new();
        for mut interval in std::mem::take(&mut frame.stacks) {
            let job = self.metric(interval.metric).and_then(|_| self.job(interval.job));
            let counts = std::mem::take(&mut interval.counts);
            let is_known =
                |count: &StackCount| job.as_ref().is_ok_and(|job| self.stacks.of(count, job).is_ok());
            let (known, unknown): (Vec<_>, Vec<_>) = counts.into_iter().partition(is_known);
            let rejected = StackInterval { counts: unknown, ..interval.clone() };
            losses.push(self.loss_of_stacks(&rejected, LossReason::UnknownId));
            if job.is_ok() {
                interval.counts = known;
                frame.stacks.push(interval);
            }
        }
        losses
    }

    /// Samples of an interval as a loss, of its job if that is known.
    pub(super) fn loss_of_stacks(&mut self, interval: &StackInterval, reason: LossReason) -> LossRecord {
        LossRecord {
            line: self.line_of_stacks(interval).ok(),
            samples: interval.samples(),
            reason,
            span_us: (interval.begin_us, interval.end_us),
        }
    }

    pub(super) fn resolve_stacks(&mut self, interval: StackInterval) -> Result<StackBlock, Fault> {
        let (line, job) = (self.line_of_stacks(&interval)?, self.job(interval.job)?);
        let metric = Arc::clone(self.metric(interval.metric)?);
        // Different ids may stand for the same stack.
        let mut samples: BTreeMap<(u32, i64), StackSamples> = BTreeMap::new();
        for count in &interval.counts {
            let stack = self.stacks.of(count, &job)?;
            let known = samples.entry((count.process, stack.id())).or_insert_with(|| StackSamples {
                process: count.process,
                stack: Arc::clone(stack),
                count: 0,
            });
            known.count = known.count.saturating_add(count.count);
        }
        Ok(StackBlock {
            line,
            job,
            metric,
            span_us: (interval.begin_us, interval.end_us),
            period_us: interval.period.as_micros(),
            samples: samples.into_values().collect(),
            lost: interval.lost,
            throttled: interval.throttled,
            cut: interval.cut,
            unresolved: interval.unresolved,
        })
    }

    fn line_of_stacks(&mut self, interval: &StackInterval) -> Result<Arc<LedgerLine>, Fault> {
        let metric = self.metric(interval.metric);
        let source = metric.map_or(STACKS_KIND, |metric| stacks_source(metric.name.as_str()));
        let source = Identifier::escaped(source.as_bytes()).ok_or(Fault::Unknown("source"))?;
        self.line(Some(interval.job), source)
    }
}
