//! `polymeter-collector`: the main program, from the command line to the exit status.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use polymeter_collector::config::CollectorArguments;
use polymeter_collector::watchdog::Watchdog;
use polymeter_collector::{Collector, CollectorConfig, CollectorStartError, Totals, check};
use polymeter_proto::units::counted;
use polymeter_service::check::become_user;
use polymeter_service::document::Faults;
use polymeter_service::{file_size, log, service_manager};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

const EXIT_FAILED: u8 = 1;

/// Exit status of an invalid command line, configuration or keys.
const EXIT_CONFIGURATION: u8 = 2;

const EXIT_UNAVAILABLE: u8 = 3;

fn main() -> ExitCode {
    log::init("polymeter-collector");
    let arguments = match CollectorArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // This includes --help and --version, which are no errors.
            let printed = error.print();
            return if error.use_stderr() || printed.is_err() {
                ExitCode::from(EXIT_CONFIGURATION)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    // The user changes before the configuration is read: the check includes that the user can read it.
    if let Some(Err(error)) = arguments.user.as_deref().map(become_user) {
        error!("{error}");
        return ExitCode::from(EXIT_CONFIGURATION);
    }
    let config = match arguments.resolve() {
        Ok(config) => config,
        Err(faults) => {
            report(&faults);
            return ExitCode::from(EXIT_CONFIGURATION);
        }
    };
    log::configure(config.log_level.clone(), config.log_format);
    if arguments.check {
        return check_configuration(&config, &arguments);
    }
    match run(&arguments, &config) {
        Ok(totals) => {
            info!(
                "stopped: {} with {} stored, {} repeated, {} rejected, {} quarantined, {} refused",
                counted(totals.frames, "frame"),
                counted(totals.samples, "sample"),
                totals.repeated,
                counted(totals.losses.in_collector(), "sample"),
                totals.quarantined,
                counted(totals.refused, "message")
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            error!("{}", log::chain(error.as_ref()));
            exit_code(error.as_ref())
        }
    }
}

fn exit_code(error: &(dyn Error + 'static)) -> ExitCode {
    ExitCode::from(match error.downcast_ref() {
        Some(
            CollectorStartError::Bind { .. }
            | CollectorStartError::Store { .. }
            | CollectorStartError::Control(_)
            | CollectorStartError::Api(_)
            | CollectorStartError::Metrics { .. }
            | CollectorStartError::Federation { .. },
        ) => EXIT_UNAVAILABLE,
        Some(CollectorStartError::Keys(_)) => EXIT_CONFIGURATION,
        Some(
            CollectorStartError::Thread(_)
            | CollectorStartError::Socket { .. }
            | CollectorStartError::Descriptors(_),
        )
        | None => EXIT_FAILED,
    })
}

fn report(faults: &Faults) {
    faults.0.iter().for_each(|fault| error!("{fault}"));
}

fn check_configuration(config: &CollectorConfig, arguments: &CollectorArguments) -> ExitCode {
    let faults = check::faults(config, arguments.user.is_some(), arguments.connect);
    if faults.is_empty() {
        info!("the configuration is valid: listen at {}, store in {}", config.listen, config.store);
        if arguments.connect {
            info!("the store answers and can be used");
        }
        return ExitCode::SUCCESS;
    }
    faults.iter().for_each(|fault| error!("{fault}"));
    ExitCode::from(EXIT_CONFIGURATION)
}

fn run(arguments: &CollectorArguments, config: &CollectorConfig) -> Result<Totals, Box<dyn Error>> {
    let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Signals are caught before anything starts, so that none is lost.
    let (mut terminate, mut interrupt, mut hangup) = event_loop.block_on(async {
        let signals = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        );
        drop(signal(SignalKind::from_raw(file_size::SIGNAL))?);
        Ok::<_, std::io::Error>(signals)
    })?;
    let collector = Collector::start(config, &zmq::Context::new())?;
    info!(
        "listening at {}, {}, storing in {}: {}{}",
        collector.endpoint(),
        if config.keys.is_some() { "encrypted" } else { "not encrypted" },
        config.store,
        collector.write_mode(),
        config.retention.map_or_else(String::new, |retention| format!("; keeping {retention}, jobs forever"))
    );
    if !collector.control_endpoints().is_empty() {
        info!("listening for users at {}", collector.control_endpoints().join(" and "));
    }
    if let Some(address) = collector.api() {
        info!("serving the HTTP API at {address}");
    }
    if let Some(address) = collector.metrics() {
        info!("serving metrics at http://{address}/metrics");
    }
    if let Some(address) = collector.federation() {
        info!("serving the newest values at {address}, path /federate");
    }
    let status = format!("listening at {}", collector.endpoint());
    service_manager::ready(&status);
    event_loop.block_on(async {
        let mut watchdog = Watchdog::start();
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => {
                    service_manager::reloading();
                    reload(arguments, &collector);
                    service_manager::ready(&status);
                }
                () = watchdog.tick() => watchdog.watch(&collector),
            }
        }
    });
    service_manager::stopping();
    Ok(collector.stop()?)
}

/// An invalid one is ignored.
fn reload(arguments: &CollectorArguments, collector: &Collector) {
    let config = match arguments.resolve() {
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
    log::configure(config.log_level.clone(), config.log_format);
    let unchanged = collector.reload(&config);
    info!("reloaded the configuration");
    if !unchanged.is_empty() {
        warn!(
            error = %format_args!("{} cannot change while the collector runs", unchanged.join(", ")),
            remedy = "restart the collector",
            "cannot apply the new configuration completely"
        );
    }
}
