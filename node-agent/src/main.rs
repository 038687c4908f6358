//! `polymeter-agent`: the node agent as a daemon.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use polymeter_agent::arguments::Arguments;
use polymeter_agent::config::Config;
use polymeter_agent::delivery::spool::SpoolError;
use polymeter_agent::{Agent, StartError, check, detach, kernel, log};
use rustix::event::{Timespec, poll};
use tokio::signal::unix::{SignalKind, signal};

/// How long the end waits for the collector to acknowledge what was sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same where nobody waits for the end: everything was acknowledged a moment ago, and the last will be, too, unless the
/// collector goes just then.
const PATIENCE_IDLE: Duration = Duration::from_secs(60);

/// The same where a spool keeps what is not acknowledged: the next agent may want it soon.
const PATIENCE_SPOOL: Duration = Duration::from_secs(2);

/// How long an agent that a prolog starts waits for one that is ending to let go of the spool.
const SPOOL: Duration = Duration::from_secs(5);

/// What the exit status says.
const EXIT_FAILED: u8 = 1;
const EXIT_CONFIGURATION: u8 = 2;

fn main() -> ExitCode {
    polymeter_service::log::init("polymeter-agent");
    kernel::keep_memory_small();
    kernel::raise_descriptor_limit();
    let arguments = Arguments::parse();
    // Before the configuration is read: whether that user can, is part of the question.
    if let Some(Err(error)) = arguments.user.as_deref().map(check::become_user) {
        log::error(&error);
        return ExitCode::from(EXIT_CONFIGURATION);
    }
    let config = match arguments.load() {
        Ok(config) => config,
        Err(error) => {
            log::error(&format!("the configuration cannot be used:\n{error}"));
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    if arguments.check {
        let faults = check::faults(&config);
        if !faults.is_empty() {
            faults.iter().for_each(|fault| log::error(fault));
            return ExitCode::from(EXIT_CONFIGURATION);
        }
        log::info("the configuration is good");
        return ExitCode::SUCCESS;
    }
    let done = if arguments.detach { arguments.detach() } else { run(&arguments, config) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error(&log::chain(error.as_ref()));
            ExitCode::from(match error.downcast_ref() {
                Some(StartError::Keys(_)) => EXIT_CONFIGURATION,
                _ => EXIT_FAILED,
            })
        }
    }
}

fn run(arguments: &Arguments, config: Config) -> Result<(), Box<dyn Error>> {
    if arguments.detached {
        detach::leave(&config.root)?;
    }
    // Before the agent starts: a signal that comes while it does is not lost.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let (mut terminate, mut interrupt, mut hangup) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    drop(guard);
    let context = zmq::Context::new();
    let collector = config.collector.clone();
    let encrypted = if config.keys.is_some() { "encrypted" } else { "not encrypted" };
    let patience_idle = if config.spool.is_some() { PATIENCE_SPOOL } else { PATIENCE_IDLE };
    let agent = start(&config, &context, arguments.detached)?;
    if arguments.detached {
        detach::say_ready()?;
    }
    log::info(&format!("sampling; sending to {collector}, {encrypted}, as session {}", agent.session()));
    let patience = loop {
        let next = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => Next::End(PATIENCE),
                _ = interrupt.recv() => Next::End(PATIENCE),
                _ = hangup.recv() => Next::Reload,
                () = agent.idle() => Next::End(patience_idle),
            }
        });
        match next {
            Next::End(patience) => break patience,
            Next::Reload => reload(arguments, &agent),
        }
    };
    let stopped = agent.stop(patience);
    if !stopped.all_acknowledged && stopped.all_kept {
        log::info("what the collector did not acknowledge waits in the spool for the next start");
    } else if !stopped.all_acknowledged {
        log::warning("the collector did not acknowledge everything that was sampled before the end");
    }
    Ok(())
}

/// Starts the agent. One that a prolog starts may find the one before it ending: it waits a while for the spool.
fn start(config: &Config, context: &zmq::Context, waits: bool) -> Result<Agent, StartError> {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut left = if waits { SPOOL } else { Duration::ZERO };
    loop {
        match Agent::start(config.clone(), context) {
            Err(StartError::Spool(SpoolError::InUse(_))) if !left.is_zero() => {
                left = left.saturating_sub(PAUSE);
                // An interrupted pause is a shorter one.
                poll(&mut [], Timespec::try_from(PAUSE).ok().as_ref()).ok();
            }
            started => return started,
        }
    }
}

/// What the agent is to do next.
enum Next {
    /// Read the configuration again.
    Reload,
    /// End, and wait for so long until everything is acknowledged.
    End(Duration),
}

fn reload(arguments: &Arguments, agent: &Agent) {
    match arguments.load() {
        Ok(config) => {
            agent.reload(config);
            log::info("the configuration was read again");
        }
        Err(error) => {
            log::error(&format!(
                "the new configuration cannot be used, the old one stays in force:\n{error}"
            ));
        }
    }
}
