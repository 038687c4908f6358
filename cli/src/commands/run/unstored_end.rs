//! End of a command whose samples could not all be stored: the report has what this process knows of it.

use polymeter_analysis::command_totals::CommandTotals;
use polymeter_analysis::model::{LossReport, Report};
use polymeter_proto::ledger::JobFacts;
use polymeter_proto::units;
use polymeter_store::reader::JobRow;

#[derive(Debug, Clone)]
pub(super) struct CommandEnd {
    pub(super) at_us: i64,
    pub(super) facts: JobFacts,
    pub(super) totals: CommandTotals,
}

impl CommandEnd {
    /// Ends a job that the store believes to run.
    pub(super) fn add_to_job(&self, job: &mut JobRow) {
        job.ended_ns = Some(self.at_us.saturating_mul(1000));
        job.state = self.facts.state.as_ref().map(ToString::to_string);
        job.exit_code = self.facts.exit_code.map(i64::from);
        job.exit_signal = self.facts.exit_signal.map(i64::from);
    }

    /// Adds the totals, and the time of which nothing is stored, to its report.
    pub(super) fn add_to(&self, report: &mut Report) {
        self.totals.add_unsampled(report);
        let stored = report.series.iter().map(|series| series.last_us);
        let first_us = stored.max().unwrap_or(report.started_us);
        let started_us = report.started_us;
        let since_start =
            |us: i64| units::seconds_between(0, us.saturating_sub(started_us).saturating_mul(1000));
        let node = report.nodes.first().cloned().unwrap_or_default();
        report.losses.push(LossReport {
            node,
            source: None,
            samples: 0,
            reason: LossReport::UNKNOWN.to_owned(),
            first_s: since_start(first_us),
            last_s: since_start(self.at_us),
            first_us,
            last_us: self.at_us,
        });
    }
}
