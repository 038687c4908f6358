//! `polymeter job start` and `job end`: what a scheduler's prolog and epilog say. They never fail a job, and say nothing on
//! stdout, which some schedulers take for commands.

mod agent;
mod said;
mod wishes;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use polymeter_agent::control::{Answer, Verb};
use polymeter_agent::log::{Priority, syslog};

use crate::control::{Collector, Endpoint, SOCKET, refused};
use crate::failure::Failure;
use crate::terminal;
use agent::Starting;
use said::{Process, Told, ToldEnd, ToldState};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say that a job starts on this node, and start an agent if none runs: for a prolog.
    Start(Box<StartArguments>),
    /// Say that a job has ended on this node: for an epilog.
    End(EndArguments),
    /// Tell the collector how a job ended: for the epilog of the scheduler's controller.
    State(StateArguments),
}

#[derive(Debug, clap::Args)]
struct Manner {
    /// The agent's control socket.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,

    /// Exit with a status other than 0 when something is wrong. Without this it is only reported, on stderr and to
    /// syslog.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, clap::Args)]
struct StartArguments {
    #[command(flatten)]
    told: Told,

    #[command(flatten)]
    starting: Starting,

    #[command(flatten)]
    manner: Manner,
}

#[derive(Debug, clap::Args)]
struct EndArguments {
    #[command(flatten)]
    told: ToldEnd,

    #[command(flatten)]
    manner: Manner,
}

#[derive(Debug, clap::Args)]
struct StateArguments {
    #[command(flatten)]
    told: ToldState,

    /// The collector: tcp://HOST:PORT, or its socket. Without it that of POLYMETER_COLLECTOR or /etc/polymeter/client.toml.
    #[arg(long, value_name = "COLLECTOR")]
    collector: Option<Endpoint>,

    /// The socket of munged, where it is not the usual one.
    #[arg(long, value_name = "PATH")]
    munge_socket: Option<PathBuf>,

    /// Exit with a status other than 0 when something is wrong. Without this it is only reported, on stderr and to
    /// syslog.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let (done, strict) = match &arguments.what {
        What::Start(arguments) => (start(arguments), arguments.manner.strict),
        What::End(arguments) => (end(arguments), arguments.manner.strict),
        What::State(arguments) => (state(arguments), arguments.strict),
    };
    match done {
        Ok(Done::Whole) => ExitCode::SUCCESS,
        Ok(Done::Refused) if strict => ExitCode::from(REFUSED),
        Ok(Done::Refused) => ExitCode::SUCCESS,
        Err(failure) => {
            report(Priority::Error, &failure.to_string());
            if strict { failure.exit_code() } else { ExitCode::SUCCESS }
        }
    }
}

/// How far something was done.
enum Done {
    /// All of it.
    Whole,
    /// But for what the job's owner requested, which was reported.
    Refused,
}

/// The exit status of a refusal, as of every command.
const REFUSED: u8 = 1;

/// What is typed wrong fails no job either: whether the arguments `typed` are those of a script that is to be spared.
pub(crate) fn spares(mut typed: impl Iterator<Item = OsString>) -> bool {
    typed.nth(1).is_some_and(|verb| verb == "job") && !typed.any(|argument| argument == "--strict")
}

/// Says what is wrong, where an administrator looks for it.
pub(crate) fn report(priority: Priority, message: &str) {
    terminal::complain(&format!("polymeter: {message}\n"));
    syslog("polymeter", priority, message);
}

fn start(arguments: &StartArguments) -> Result<Done, Failure> {
    let (start, left_out) = arguments.told.start(&Process)?;
    left_out.iter().for_each(|why| report(Priority::Warning, why));
    let job = start.job.clone();
    let answer =
        agent::ask_any(&arguments.manner.socket, &Verb::Start(Box::new(start)), &arguments.starting)?;
    let Answer::Started { refused: refusal, .. } = answer else { return Err(refused(answer)) };
    let Some(refusal) = refusal else { return Ok(Done::Whole) };
    let message = format!("cannot grant the request of the owner of job {job}: {}", refusal.message);
    report(Priority::Warning, &message);
    Ok(Done::Refused)
}

fn end(arguments: &EndArguments) -> Result<Done, Failure> {
    let end = arguments.told.end(&Process)?;
    let answer = agent::ask_running(&arguments.manner.socket, &Verb::End(end))?;
    if matches!(answer, Answer::Done {}) { Ok(Done::Whole) } else { Err(refused(answer)) }
}

fn state(arguments: &StateArguments) -> Result<Done, Failure> {
    let line = arguments.told.line(&Process)?;
    let collector = Collector::find(arguments.collector.as_ref(), arguments.munge_socket.as_ref())?;
    let nowhere = "cannot tell the state of a job: no collector is known; name one with --collector";
    collector.ok_or_else(|| Failure::Nobody(nowhere.to_owned()))?.tell(&line).map(|()| Done::Whole)
}
