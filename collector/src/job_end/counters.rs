//! Metrics of the command.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::Metrics;

type Label = [(&'static str, &'static str); 1];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunResult {
    /// Exit status 0.
    Succeeded,
    /// The command could not run, or ended with another status.
    Failed,
    TimedOut,
}

impl RunResult {
    const ALL: [Self; 3] = [Self::Succeeded, Self::Failed, Self::TimedOut];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    commands: Family<Label, Counter>,
    pub(super) dropped: Counter,
    /// Ends in the queue, and those whose command runs.
    pub(super) queued: Gauge,
    /// Ends whose report is gathered or whose command runs.
    pub(super) running: Gauge,
}

impl Counters {
    pub(super) fn register(metrics: &Metrics) -> Self {
        let counters = Self::default();
        for result in RunResult::ALL {
            drop(counters.commands.get_or_create(&[("result", result.as_str())]));
        }
        let help = "Commands that ran at the end of a job, by result";
        metrics.register("job_end_commands", help, counters.commands.clone());
        let help = "Ends of jobs without a command, since too many waited or they were too old";
        metrics.register("job_end_dropped", help, counters.dropped.clone());
        let help = "Ends of jobs whose command has not ended, of all collectors of the store";
        metrics.register("job_end_queued", help, counters.queued.clone());
        let help = "Ends of jobs whose report is gathered or whose command runs";
        metrics.register("job_end_running", help, counters.running.clone());
        counters
    }

    pub(super) fn count(&self, result: RunResult) {
        self.commands.get_or_create(&[("result", result.as_str())]).inc();
    }
}
