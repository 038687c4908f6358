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

use crate::control::{SOCKET, refused};
use crate::failure::Failure;
use crate::terminal;
use agent::Starting;
use said::{Process, Told, ToldEnd};

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

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let (done, manner) = match &arguments.what {
        What::Start(arguments) => (start(arguments), &arguments.manner),
        What::End(arguments) => (end(arguments), &arguments.manner),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(Priority::Error, &failure.to_string());
            if manner.strict { failure.exit_code() } else { ExitCode::SUCCESS }
        }
    }
}

/// What is typed wrong fails no job either: whether the arguments `typed` are those of a script that is to be spared.
pub(crate) fn spares(mut typed: impl Iterator<Item = OsString>) -> bool {
    typed.nth(1).is_some_and(|verb| verb == "job") && !typed.any(|argument| argument == "--strict")
}

/// Says what is wrong, where an administrator looks for it.
pub(crate) fn report(priority: Priority, message: &str) {
    terminal::complain(&format!("polymeter: {message}\n"));
    syslog("polymeter", priority, message);
}

fn start(arguments: &StartArguments) -> Result<(), Failure> {
    let (start, wrong) = arguments.told.start(&Process)?;
    let job = start.job.clone();
    let answer =
        agent::ask_any(&arguments.manner.socket, &Verb::Start(Box::new(start)), &arguments.starting)?;
    let Answer::Started { refused: refusal, .. } = answer else { return Err(refused(answer)) };
    for wrong in wrong.into_iter().chain(refusal.map(|refusal| refusal.message)) {
        report(Priority::Warning, &format!("what the owner of job {job} wished is not granted: {wrong}"));
    }
    Ok(())
}

fn end(arguments: &EndArguments) -> Result<(), Failure> {
    let end = arguments.told.end(&Process)?;
    let answer = agent::ask_running(&arguments.manner.socket, &Verb::End(end))?;
    if matches!(answer, Answer::Done {}) { Ok(()) } else { Err(refused(answer)) }
}
