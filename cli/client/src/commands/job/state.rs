//! `polymeter job state`: reports the name, the requested resources and the final state of a job to the
//! collector, from the prolog and epilog of the scheduler's controller.

use std::path::PathBuf;
use std::process::ExitCode;

use polymeter_proto::control::StateRequest;
use polymeter_service::log::Severity;

use super::details::DetailOptions;
use super::environment::{ProcessEnvironment, SchedulerEnvironment, job_id};
use super::kept_reports::KeptReports;
use super::problem::report;
use crate::connection::collector::Collector;
use crate::connection::configuration::CollectorEndpoint;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct StateArguments {
    #[command(flatten)]
    state: StateDescription,

    /// The collector: tcp://HOST:PORT, or its socket. Default: that of POLYMETER_COLLECTOR or
    /// /etc/polymeter/client.toml.
    #[arg(long, value_name = "COLLECTOR")]
    collector: Option<CollectorEndpoint>,

    /// The socket of munged, if it is not munge's default.
    #[arg(long, value_name = "PATH")]
    munge_socket: Option<PathBuf>,

    /// Keep the report in this directory if no collector takes it, and deliver those that were kept there.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Only deliver the reports that were kept. The exit status is 3 while some are left.
    #[arg(long, requires = "keep")]
    deliver: bool,

    /// Exit with a status other than 0 when something fails. Default: failures are only reported, on stderr
    /// and to syslog.
    #[arg(long)]
    strict: bool,
}

impl StateArguments {
    pub(super) const fn is_strict(&self) -> bool {
        self.strict
    }
}

/// Options that describe the final state of a job, as the scheduler's controller knows it.
#[derive(Debug, Clone, Default, clap::Args)]
struct StateDescription {
    /// The job's id. Default: SLURM_JOB_ID or OAR_JOB_ID.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// The cluster. Default: SLURM_CLUSTER_NAME, or any.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// The final state in the scheduler's terms: COMPLETED, TIMEOUT. Default: none, the job runs.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,

    /// The exit status of the job's script.
    #[arg(long, value_name = "NUMBER")]
    exit_code: Option<u32>,

    /// The signal that ended the job's script.
    #[arg(long, value_name = "NUMBER")]
    exit_signal: Option<u32>,

    #[command(flatten)]
    details: DetailOptions,
}

pub(super) fn execute(arguments: &StateArguments) -> Result<ExitCode, Failure> {
    let kept = arguments.keep.as_deref().map(KeptReports::open).transpose()?;
    let collector = Collector::find(arguments.collector.as_ref(), arguments.munge_socket.as_deref())?;
    let collector = collector.ok_or_else(|| {
        Failure::NotRunning(
            "cannot report the state of the job: no collector is configured; name one with --collector"
                .to_owned(),
        )
    })?;
    if let Some(kept) = kept.as_ref().filter(|_| arguments.deliver) {
        return Ok(ExitCode::from(if kept.deliver(&collector)? == 0 { 0 } else { LEFT }));
    }
    let (request, ignored) = arguments.state.request(&ProcessEnvironment)?;
    ignored.iter().for_each(|warning| report(Severity::Warning, warning));
    let line = request.to_line();
    match (collector.send(&line), kept) {
        (Ok(()), None) => {}
        (Ok(()), Some(kept)) => {
            kept.deliver(&collector)?;
        }
        (Err(failure), None) => return Err(failure),
        (Err(failure), Some(kept)) => {
            kept.keep(&line)?;
            report(Severity::Warning, &format!("the report of job {} is kept: {failure}", request.job));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The exit status while reports are left.
const LEFT: u8 = 3;

impl StateDescription {
    /// Returns the report, and a warning for each variable that is ignored.
    fn request(
        &self,
        environment: &impl SchedulerEnvironment,
    ) -> Result<(StateRequest, Vec<String>), Failure> {
        let (details, ignored) = self.details.details(environment)?;
        let request = StateRequest {
            job: job_id(self.job.as_ref(), environment)?,
            cluster: self.cluster.clone().or_else(|| environment.get("SLURM_CLUSTER_NAME")),
            state: self.state.clone(),
            exit_code: self.exit_code,
            exit_signal: self.exit_signal,
            details,
        };
        Ok((request, ignored))
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::fixed::FixedEnvironment;
    use super::*;

    #[test]
    fn the_state_is_reported_with_the_schedulers_names() {
        let epilog = FixedEnvironment::new([("SLURM_JOB_ID", "42"), ("SLURM_CLUSTER_NAME", "lab")]);
        let state = StateDescription {
            state: Some("TIMEOUT".to_owned()),
            exit_code: Some(0),
            exit_signal: Some(15),
            ..StateDescription::default()
        };
        assert_eq!(
            state.request(&epilog).unwrap().0.to_line(),
            r#"{"verb":"state","job":"42","cluster":"lab","state":"TIMEOUT","exit_code":0,"exit_signal":15}"#
        );
    }
}
