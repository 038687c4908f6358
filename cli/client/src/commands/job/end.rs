//! `polymeter job end`: announces the end of a job to this node's agent, from an epilog.

use std::path::PathBuf;
use std::process::ExitCode;

use polymeter_proto::control::{Answer, EndRequest, Request};
use polymeter_proto::text::Text;
use polymeter_service::log::Severity;

use super::agent_start;
use super::environment::{ProcessEnvironment, SchedulerEnvironment, job_id};
use super::problem::report;
use super::said::{self, Said, Unread, printable};
use crate::connection::agent::{SOCKET, unexpected};
use crate::failure::Failure;

/// Signal with which Slurm reports that a job ran out of memory (its SIG_OOM, 253, without the bit of a core
/// dump), and Slurm's name of that state.
const OUT_OF_MEMORY: (u32, &str) = (125, "OUT_OF_MEMORY");

#[derive(Debug, clap::Args)]
pub(crate) struct EndArguments {
    #[command(flatten)]
    end: EndDescription,

    /// The agent's control socket.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,

    /// Exit with a status other than 0 when something fails. Default: failures are only reported, on stderr
    /// and to syslog.
    #[arg(long)]
    strict: bool,
}

impl EndArguments {
    pub(super) const fn is_strict(&self) -> bool {
        self.strict
    }
}

/// Options that describe the end of a job. Their defaults are variables of Slurm's epilog.
#[derive(Debug, Clone, Default, clap::Args)]
struct EndDescription {
    /// The job's id. Default: SLURM_JOB_ID or OAR_JOB_ID.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// The final state in the scheduler's terms. Default: OUT_OF_MEMORY if SLURM_JOB_EXIT_CODE2 indicates it.
    #[arg(long, value_name = "STATE", value_parser = printable(), allow_hyphen_values = true)]
    state: Option<String>,

    /// The exit status of the job's script. Default: that in SLURM_JOB_EXIT_CODE2.
    #[arg(long, value_name = "NUMBER", value_parser = printable(), allow_hyphen_values = true)]
    exit_code: Option<String>,

    /// The signal that ended the job's script. Default: that in SLURM_JOB_EXIT_CODE2.
    #[arg(long, value_name = "NUMBER", value_parser = printable(), allow_hyphen_values = true)]
    exit_signal: Option<String>,
}

pub(super) fn execute(arguments: &EndArguments) -> Result<ExitCode, Failure> {
    let (end, unread) = arguments.end.end(&ProcessEnvironment)?;
    unread.warnings().for_each(|warning| report(Severity::Warning, warning));
    let answer = agent_start::ask_running(&arguments.socket, &Request::End(end))?;
    if matches!(answer, Answer::Done {}) { Ok(ExitCode::SUCCESS) } else { Err(unexpected(answer)) }
}

impl EndDescription {
    /// Notes the fields that could not be read.
    fn end(&self, environment: &impl SchedulerEnvironment) -> Result<(EndRequest, Unread), Failure> {
        let status = environment.get("SLURM_JOB_EXIT_CODE2");
        let (code, signal) = status.as_deref().and_then(|status| status.split_once(':')).unzip();
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
        // slurmd also reports 0:0 for a job that was cancelled or reached its time limit.
        let is_known = (number(code), number(signal)) != (Some(0), Some(0));
        let (code, signal) = (number(code).filter(|_| is_known), number(signal).filter(|_| is_known));
        let mut said = Said { environment, unread: Unread::default() };
        let exit = said.read(("--exit-code", self.exit_code.as_ref()), &[], said::exit_status);
        let exit_signal = said.read(("--exit-signal", self.exit_signal.as_ref()), &[], said::number);
        let exit_code = exit.map(|(code, _)| code).or(code);
        let exit_signal = exit_signal.or(exit.and_then(|(_, signal)| signal)).or(signal);
        let out_of_memory = (exit_signal == Some(OUT_OF_MEMORY.0)).then(|| OUT_OF_MEMORY.1.to_owned());
        let state = said.name(("--state", self.state.as_ref()), &[]).map(String::from);
        let request = EndRequest {
            job: job_id(self.job.as_ref(), environment)?,
            state: state.or(out_of_memory),
            exit_code,
            exit_signal,
            unread: said.unread.texts().map(Text::from),
        };
        Ok((request, said.unread))
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::fixed::FixedEnvironment;
    use super::*;

    #[test]
    fn slurms_exit_code_is_used_unless_it_is_success() {
        let end = |status: &'static str| {
            let epilog = FixedEnvironment::new([("SLURM_JOB_ID", "42"), ("SLURM_JOB_EXIT_CODE2", status)]);
            let (end, _) = EndDescription::default().end(&epilog).unwrap();
            (end.state, end.exit_code, end.exit_signal)
        };
        assert_eq!(end("0:0"), (None, None, None), "cancelled, timed out, or completed: unknown");
        assert_eq!(end("3:0"), (None, Some(3), Some(0)));
        assert_eq!(end("0:9"), (None, Some(0), Some(9)));
        assert_eq!(end("0:125"), (Some("OUT_OF_MEMORY".to_owned()), Some(0), Some(125)));
        assert_eq!(end("3:0:1"), (None, Some(3), None));
    }

    #[test]
    fn options_override_slurms_exit_code() {
        let options = EndDescription {
            state: Some("COMPLETED".to_owned()),
            exit_code: Some("0".to_owned()),
            ..EndDescription::default()
        };
        let epilog = FixedEnvironment::new([("SLURM_JOB_ID", "42"), ("SLURM_JOB_EXIT_CODE2", "0:0")]);
        assert_eq!(options.end(&epilog).unwrap().0.exit_code, Some(0));
        let options = EndDescription { exit_code: Some("?".to_owned()), ..options };
        let (end, _) = options.end(&epilog).unwrap();
        assert_eq!((end.state.as_deref(), end.exit_code), (Some("COMPLETED"), None));
        assert_eq!(end.unread.unwrap().as_str(), "--exit-code ?");
    }
}
