//! `polymeter-collector`: from the command line to the exit status.
//!
//! 0: it was told to stop, and did; 1: something broke; 2: the command line, configuration or keys are wrong; 3: an
//! endpoint, the store or a door for users cannot be opened.

use std::process::ExitCode;

use clap::Parser;
use polymeter_collector::config::Arguments;
use polymeter_collector::{Collector, Config, StartError, Totals, check, log};
use tokio::signal::unix::{SignalKind, signal};

const BROKEN: u8 = 1;
const USAGE: u8 = 2;
const UNREACHABLE: u8 = 3;

fn main() -> ExitCode {
    polymeter_service::log::init("polymeter-collector");
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Also the answer to --help and --version, which are no errors.
            let printed = error.print();
            return if error.use_stderr() || printed.is_err() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    // Before the configuration is read: whether that user can, is part of the question.
    if let Some(Err(error)) = arguments.user.as_deref().map(check::become_user) {
        log::error(error);
        return ExitCode::from(USAGE);
    }
    let config = match arguments.resolve() {
        Ok(config) => config,
        Err(faults) => {
            faults.0.iter().for_each(log::error);
            return ExitCode::from(USAGE);
        }
    };
    if arguments.check {
        return checked(&config, arguments.user.is_some());
    }
    match run(&arguments, &config) {
        Ok(totals) => {
            log::info(format_args!(
                "stopped: {} frames with {} samples stored, {} repeated, {} samples rejected, {} quarantined, {} messages refused",
                totals.frames,
                totals.samples,
                totals.repeated,
                totals.losses.in_collector(),
                totals.quarantined,
                totals.refused
            ));
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::error(log::chain(error.as_ref()));
            ExitCode::from(match error.downcast_ref() {
                Some(
                    StartError::Bind { .. }
                    | StartError::Store { .. }
                    | StartError::Control(_)
                    | StartError::Metrics { .. },
                ) => UNREACHABLE,
                Some(StartError::Keys(_)) => USAGE,
                Some(StartError::Machine(_) | StartError::Socket { .. }) | None => BROKEN,
            })
        }
    }
}

fn checked(config: &Config, as_user: bool) -> ExitCode {
    let faults = check::faults(config, as_user);
    if !faults.is_empty() {
        faults.iter().for_each(log::error);
        return ExitCode::from(USAGE);
    }
    log::info(format_args!(
        "the configuration is valid: listen at {}, store in {}",
        config.listen, config.store
    ));
    ExitCode::SUCCESS
}

fn run(arguments: &Arguments, config: &Config) -> Result<Totals, Box<dyn std::error::Error>> {
    let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before anything starts, so that no signal is lost.
    let (mut terminate, mut interrupt, mut hangup) = event_loop.block_on(async {
        let signals = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        );
        Ok::<_, std::io::Error>(signals)
    })?;
    let collector = Collector::start(config, &zmq::Context::new())?;
    log::info(format_args!(
        "listening at {}, {}, storing in {}: {}",
        collector.endpoint(),
        if config.keys.is_some() { "encrypted" } else { "not encrypted" },
        config.store,
        collector.write_mode()
    ));
    if !collector.doors().is_empty() {
        log::info(format_args!("users ask at {}", collector.doors().join(" and ")));
    }
    if let Some(address) = collector.metrics() {
        log::info(format_args!("own metrics at http://{address}/metrics"));
    }
    event_loop.block_on(async {
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => reload(arguments, &collector),
            }
        }
    });
    Ok(collector.stop()?)
}

/// Reads the configuration again. A bad one leaves the old one in force.
fn reload(arguments: &Arguments, collector: &Collector) {
    let config = match arguments.resolve() {
        Ok(config) => config,
        Err(faults) => {
            faults.0.iter().for_each(log::error);
            return log::error("cannot use the new configuration: see above; the old one stays in force");
        }
    };
    let unchanged = collector.reload(&config);
    log::info("the configuration was read again");
    if !unchanged.is_empty() {
        log::warning(format_args!(
            "cannot change while the collector runs: {}; restart it",
            unchanged.join(", ")
        ));
    }
}
