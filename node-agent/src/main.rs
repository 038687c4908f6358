//! `polymeter-agent`: the node agent as a daemon.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use polymeter_agent::config::{Config, ConfigError, DEFAULT_PATH};
use polymeter_agent::keys::KeyFiles;
use polymeter_agent::{Agent, StartError, detach, kernel, log};
use tokio::signal::unix::{SignalKind, signal};

/// How long the end waits for the collector to acknowledge what was sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same where nobody waits for the end: everything was acknowledged a moment ago, and the last will be, too, unless the
/// collector goes just then.
const PATIENCE_IDLE: Duration = Duration::from_secs(60);

/// What the exit status says.
const EXIT_FAILED: u8 = 1;
const EXIT_CONFIGURATION: u8 = 2;

/// Polymeter's node agent: samples the metrics of every job on this node, each at its own period, and pushes them to a
/// collector.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// The configuration; without it, /etc/polymeter/agent.toml where that exists, else the defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration, say everything that is wrong with it, and end.
    #[arg(long)]
    check: bool,

    /// The collector's endpoint, instead of the configuration's.
    #[arg(long, value_name = "ENDPOINT", value_parser = polymeter_agent::config::endpoint)]
    collector: Option<String>,

    /// The control socket, instead of the configuration's.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Run on in the background, in a session of its own, and return when the agent is ready. Messages go to syslog then.
    #[arg(long)]
    detach: bool,

    /// Be what --detach has started.
    #[arg(long, hide = true, conflicts_with = "detach")]
    detached: bool,

    /// End when no job has been there for a few seconds and the collector has acknowledged everything.
    #[arg(long)]
    exit_when_idle: bool,
}

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

impl Arguments {
    fn load(&self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::load(path)?,
            None if Path::new(DEFAULT_PATH).exists() => Config::load(Path::new(DEFAULT_PATH))?,
            None => Config::default_baseline(),
        };
        if let Some(collector) = &self.collector {
            config.collector.clone_from(collector);
        }
        if let Some(socket) = &self.socket {
            config.socket = Some(socket.clone());
        }
        config.exit_when_idle = self.exit_when_idle;
        Ok(config)
    }

    /// Has another process be the agent.
    fn detach(&self) -> Result<(), Box<dyn Error>> {
        let told = std::env::args_os()
            .skip(1)
            .map(|argument| if argument == "--detach" { OsString::from("--detached") } else { argument });
        Ok(detach::start(told)?)
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
    let agent = Agent::start(config, &context)?;
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
                () = agent.idle() => Next::End(PATIENCE_IDLE),
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
