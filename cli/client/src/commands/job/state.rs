//! `polymeter job state`: reports the name, the requested resources and the final state of a job to the
//! collector, from the prolog and epilog of the scheduler's controller.

use std::path::PathBuf;
use std::process::ExitCode;

use polymeter_proto::control::StateRequest;
use polymeter_proto::text::Text;
use polymeter_service::log::Severity;

use super::details::DetailOptions;
use super::environment::{ProcessEnvironment, SchedulerEnvironment, job_id};
use super::kept_reports::KeptReports;
use super::problem::report;
use super::said::{self, Said, Unread, printable};
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
    #[arg(long, value_name = "NAME", value_parser = printable(), allow_hyphen_values = true)]
    cluster: Option<String>,

    /// The final state in the scheduler's terms: COMPLETED, TIMEOUT. Default: none, the job runs.
    #[arg(long, value_name = "STATE", value_parser = printable(), allow_hyphen_values = true)]
    state: Option<String>,

    /// The exit status of the job's script, also with the signal behind a colon.
    #[arg(long, value_name = "NUMBER", value_parser = printable(), allow_hyphen_values = true)]
    exit_code: Option<String>,

    /// The signal that ended the job's script.
    #[arg(long, value_name = "NUMBER", value_parser = printable(), allow_hyphen_values = true)]
    exit_signal: Option<String>,

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
    let (request, unread) = arguments.state.request(&ProcessEnvironment)?;
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
    // Once, though a script repeats the report until the collector knows the job.
    unread.warnings().for_each(|warning| report(Severity::Warning, warning));
    Ok(ExitCode::SUCCESS)
}

/// Exit status while reports are left.
const LEFT: u8 = 3;

impl StateDescription {
    /// Notes the fields that could not be read.
    fn request(&self, environment: &impl SchedulerEnvironment) -> Result<(StateRequest, Unread), Failure> {
        let mut said = Said { environment, unread: Unread::default() };
        let (details, cores) = self.details.details(&mut said);
        let exit = said.read(("--exit-code", self.exit_code.as_ref()), &[], said::exit_status);
        let signal = said.read(("--exit-signal", self.exit_signal.as_ref()), &[], said::number);
        let request = StateRequest {
            job: job_id(self.job.as_ref(), environment)?,
            cluster: said
                .name(("--cluster", self.cluster.as_ref()), &["SLURM_CLUSTER_NAME"])
                .map(String::from),
            state: said.name(("--state", self.state.as_ref()), &[]).map(String::from),
            exit_code: exit.map(|(code, _)| code),
            exit_signal: signal.or(exit.and_then(|(_, signal)| signal)),
            unread: said.unread.texts().map(Text::from),
            cores,
            details,
        };
        Ok((request, said.unread))
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
            exit_code: Some("0:15".to_owned()),
            ..StateDescription::default()
        };
        assert_eq!(
            state.request(&epilog).unwrap().0.to_line(),
            r#"{"verb":"state","job":"42","cluster":"lab","state":"TIMEOUT","exit_code":0,"exit_signal":15,"details":{"name":null,"display_id":null,"time_limit_s":null,"memory_bytes":null,"gpus":null,"restarts":null,"run":null,"scheduler":"slurm","node_cores":null,"node_gpus":null}}"#
        );
    }

    #[test]
    fn the_cores_of_the_whole_job_are_reported() {
        let controller = FixedEnvironment::new([("SLURM_JOB_ID", "43")]);
        let details =
            DetailOptions { tres: Some("cpu=48,mem=96G,node=3".to_owned()), ..DetailOptions::default() };
        let state = StateDescription { details, ..StateDescription::default() };
        let (request, _) = state.request(&controller).unwrap();
        let reported = StateRequest::parse(request.to_line().as_bytes()).unwrap().unwrap();
        let (_, _, facts) = reported.facts().unwrap();
        assert_eq!((facts.cores, reported.details.memory_bytes), (Some(48), Some(32 << 30)));
    }

    #[test]
    fn a_field_that_cannot_be_read_costs_no_other() {
        let some = |text: &str| Some(text.to_owned());
        let state = StateDescription {
            state: some("FAILED"),
            exit_code: some("one"),
            exit_signal: some("9"),
            ..StateDescription::default()
        };
        let epilog = FixedEnvironment::new([("SLURM_JOB_ID", "42"), ("SLURM_JOB_NAME", "R&D")]);
        let (request, unread) = state.request(&epilog).unwrap();
        assert_eq!(
            request.to_line(),
            r#"{"verb":"state","job":"42","state":"FAILED","exit_signal":9,"unread":"--exit-code one","details":{"name":"R&D","display_id":null,"time_limit_s":null,"memory_bytes":null,"gpus":null,"restarts":null,"run":null,"scheduler":"slurm","node_cores":null,"node_gpus":null}}"#
        );
        assert_eq!(unread.warnings().count(), 1);
    }
}
