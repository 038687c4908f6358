//! `polymeter-agent`: the node agent as a daemon.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use polymeter_agent::arguments::AgentArguments;
use polymeter_agent::config::AgentConfig;
use polymeter_agent::watchdog::Watchdog;
use polymeter_agent::{Agent, AgentStartError, Stopped, check, clock, detach, file_pages, kernel};
use polymeter_service::check::become_user;
use polymeter_service::document::Faults;
use polymeter_service::keys::Changes;
use polymeter_service::spool::SpoolError;
use polymeter_service::{file_size, log, service_manager};
use rustix::event::{Timespec, poll};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

/// Longest wait of a stopping agent for the collector's acknowledgements.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Wait of an agent that exits when idle: everything was acknowledged just before, and no user waits.
const STOP_TIMEOUT_IDLE: Duration = Duration::from_secs(60);

/// Wait with a spool, which keeps the rest: the next agent may need it soon.
const STOP_TIMEOUT_SPOOL: Duration = Duration::from_secs(2);

/// How long a detached agent waits for the spool while the previous agent is stopping.
const SPOOL_TIMEOUT: Duration = Duration::from_secs(5);

const EXIT_FAILED: u8 = 1;

/// Exit status: the command line, the configuration or the keys are invalid.
const EXIT_CONFIGURATION: u8 = 2;

fn main() -> ExitCode {
    log::init("polymeter-agent");
    kernel::keep_memory_small();
    file_pages::note_mappings();
    kernel::raise_descriptor_limit();
    let arguments = AgentArguments::parse();
    // Before the configuration is read, because the check includes that user's right to read it.
    if let Some(Err(error)) = arguments.user.as_deref().map(become_user) {
        error!("{error}");
        return ExitCode::from(EXIT_CONFIGURATION);
    }
    let config = match arguments.load() {
        Ok(config) => config,
        Err(faults) => {
            report(&faults);
            error!(remedy = "correct the errors listed above", "cannot use the configuration");
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    log::configure(config.log_level.clone(), config.log_format);
    if arguments.check {
        return check_configuration(&config);
    }
    let result =
        if arguments.detach { arguments.detach().map_err(Into::into) } else { run(&arguments, config) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{}", log::chain(error.as_ref()));
            ExitCode::from(match error.downcast_ref() {
                Some(AgentStartError::Keys(_)) => EXIT_CONFIGURATION,
                _ => EXIT_FAILED,
            })
        }
    }
}

fn report(faults: &Faults) {
    faults.0.iter().for_each(|fault| error!("{fault}"));
}

fn check_configuration(config: &AgentConfig) -> ExitCode {
    let faults = check::faults(config);
    if faults.is_empty() {
        info!("the configuration is valid");
        return ExitCode::SUCCESS;
    }
    faults.iter().for_each(|fault| error!("{fault}"));
    ExitCode::from(EXIT_CONFIGURATION)
}

fn run(arguments: &AgentArguments, mut config: AgentConfig) -> Result<(), Box<dyn Error>> {
    if arguments.detached {
        detach::leave(&config.root)?;
    }
    // Before the agent starts, so that no signal is lost.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let guard = runtime.enter();
    let (mut terminate, mut interrupt, mut hangup) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    drop(signal(SignalKind::from_raw(file_size::SIGNAL))?);
    drop(guard);
    let context = zmq::Context::new();
    let collectors = config.collectors.join(", ");
    let encryption = if config.keys.is_some() { "encrypted" } else { "not encrypted" };
    let idle_timeout = if config.spool.is_some() { STOP_TIMEOUT_SPOOL } else { STOP_TIMEOUT_IDLE };
    let mut watchdog = Watchdog::start(&runtime);
    let mut agent = start(&config, &context, arguments.detached)?;
    if arguments.detached {
        detach::report_ready()?;
    }
    loop {
        let status =
            format!("sampling; sending to {collectors}, {encryption}, as session {}", agent.session());
        info!("{status}");
        service_manager::ready(&status);
        let timeout = loop {
            let next = runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => Next::Stop(STOP_TIMEOUT),
                    _ = interrupt.recv() => Next::Stop(STOP_TIMEOUT),
                    _ = hangup.recv() => Next::Reload,
                    () = agent.idle() => Next::Ended,
                    () = watchdog.tick() => Next::Watch,
                }
            });
            match next {
                Next::Stop(timeout) => break Some(timeout),
                Next::Ended => break None,
                Next::Reload => {
                    service_manager::reloading();
                    reload(arguments, &agent, &mut config);
                    service_manager::ready(&status);
                }
                Next::Watch => watchdog.watch(&agent),
            }
        };
        // The clock may have been set again since: without the option no agent ends by itself for good.
        let begins_anew = timeout.is_none() && (clock::was_set() || !config.exit_when_idle);
        if !begins_anew {
            service_manager::stopping();
        }
        report_stop(agent.stop(timeout.unwrap_or(idle_timeout)));
        if !begins_anew {
            return Ok(());
        }
        info!("the clock of this node was set: a new session dates by it");
        clock::date_anew();
        agent = start(&config, &context, true)?;
    }
}

/// Logs what became of the samples that the collector had not acknowledged.
fn report_stop(stopped: Stopped) {
    if !stopped.all_acknowledged && stopped.all_kept {
        info!("unacknowledged samples wait in the spool for the next start");
    } else if !stopped.all_acknowledged {
        warn!(
            error = "the collector did not acknowledge all of them before the agent stopped; configure a `spool` to keep them",
            "cannot deliver all samples"
        );
    }
}

/// Starts the agent. If `waits_for_spool`, the previous agent may still be stopping, and the start waits for
/// its spool.
fn start(
    config: &AgentConfig,
    context: &zmq::Context,
    waits_for_spool: bool,
) -> Result<Agent, AgentStartError> {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut left = if waits_for_spool { SPOOL_TIMEOUT } else { Duration::ZERO };
    loop {
        match Agent::start(config.clone(), context) {
            Err(AgentStartError::Spool(SpoolError::InUse { .. })) if !left.is_zero() => {
                left = left.saturating_sub(PAUSE);
                // An interrupted pause is a shorter one.
                poll(&mut [], Timespec::try_from(PAUSE).ok().as_ref()).ok();
            }
            started => return started,
        }
    }
}

enum Next {
    Reload,
    /// Tell the service manager's watchdog if the agent is alive.
    Watch,
    Stop(Duration),
    Ended,
}

/// Reloads the configuration, of which `running` is in force. An invalid one is ignored.
fn reload(arguments: &AgentArguments, agent: &Agent, running: &mut AgentConfig) {
    let config = match arguments.load() {
        Ok(config) => config,
        Err(faults) => {
            report(&faults);
            error!(
                error = "the new configuration has errors",
                remedy = "the previous configuration remains in force",
                "cannot reload the configuration"
            );
            return;
        }
    };
    let Changes { at_once, at_restart } = running.update(&config);
    log::configure(running.log_level.clone(), running.log_format);
    agent.reload(running.clone());
    let changed = if at_once.is_empty() { "nothing".to_owned() } else { at_once.join(", ") };
    info!(changed, "reloaded the configuration");
    if !at_restart.is_empty() {
        warn!(
            error = %format_args!("{} cannot change while the agent runs", at_restart.join(", ")),
            remedy = "restart the agent",
            "cannot apply the new configuration completely"
        );
    }
}
