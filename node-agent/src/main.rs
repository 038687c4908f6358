//! `polymeter-agent`: the node agent as a daemon.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use polymeter_agent::arguments::Arguments;
use polymeter_agent::config::Config;
use polymeter_agent::keys::KeyFiles;
use polymeter_agent::{Agent, StartError, kernel, log};
use tokio::signal::unix::{SignalKind, signal};

/// How long the end waits for the collector to acknowledge what was sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the exit status says.
const EXIT_FAILED: u8 = 1;
const EXIT_CONFIGURATION: u8 = 2;

fn main() -> ExitCode {
    kernel::keep_memory_small();
    kernel::raise_descriptor_limit();
    let arguments = Arguments::parse();
    let config = match arguments.load() {
        Ok(config) => config,
        Err(error) => {
            log::error(&format!("the configuration cannot be used:\n{error}"));
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    if arguments.check {
        if let Some(Err(error)) = config.keys.as_ref().map(KeyFiles::read) {
            log::error(&format!("the keys cannot be used: {error}"));
            return ExitCode::from(EXIT_CONFIGURATION);
        }
        log::info("the configuration is good");
        return ExitCode::SUCCESS;
    }
    match run(&arguments, config) {
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

fn run(arguments: &Arguments, config: Config) -> Result<(), Box<dyn std::error::Error>> {
    // Before the agent starts: a signal that comes while it does is not lost.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let (mut terminate, mut interrupt, mut hangup) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    drop(guard);
    let context = zmq::Context::new();
    let collector = config.collector.clone();
    let encrypted = if config.keys.is_some() { "encrypted" } else { "not encrypted" };
    let agent = Agent::start(config, &context)?;
    log::info(&format!("sampling; sending to {collector}, {encrypted}, as session {}", agent.session()));
    loop {
        let reload = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => false,
                _ = interrupt.recv() => false,
                _ = hangup.recv() => true,
            }
        });
        if !reload {
            break;
        }
        match arguments.load() {
            Ok(config) => {
                agent.reload(config);
                log::info("the configuration was read again");
            }
            Err(error) => log::error(&format!(
                "the new configuration cannot be used, the old one stays in force:\n{error}"
            )),
        }
    }
    let stopped = agent.stop(PATIENCE);
    if !stopped.all_acknowledged && stopped.all_kept {
        log::info("what the collector did not acknowledge waits in the spool for the next start");
    } else if !stopped.all_acknowledged {
        log::warning("the collector did not acknowledge everything that was sampled before the end");
    }
    Ok(())
}
