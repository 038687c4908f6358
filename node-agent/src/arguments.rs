//! Command line of `polymeter-agent`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::Parser;
use polymeter_service::document::Faults;
use polymeter_service::log;

use crate::config::{self, AgentConfig, DEFAULT_PATH};
use crate::detach;

/// Polymeter's node agent: samples the metrics of every job on this node, each at its own period, and sends
/// them to a collector.
#[derive(Debug, Parser)]
#[command(name = "polymeter-agent", version)]
#[command(
    after_help = "Exit status: 0 stopped as requested, 1 failed, 2 invalid command line, configuration or keys.\n\
    Signals: SIGHUP reloads the configuration; SIGTERM and SIGINT stop the agent."
)]
pub struct AgentArguments {
    /// The configuration file [default: /etc/polymeter/agent.toml if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration, report all faults, and exit.
    #[arg(long)]
    pub check: bool,

    /// With --check: also test, as this user, whether the keys can be read and the directories be written.
    #[arg(long, value_name = "NAME", requires = "check")]
    pub user: Option<String>,

    /// A collector's endpoint; overrides `collector`. Repeat the option for several.
    #[arg(long = "collector", value_name = "ENDPOINT", value_parser = config::endpoint)]
    collectors: Vec<String>,

    /// The path of the control socket; overrides `control_socket`.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Run in the background, in a session of its own; return when the agent is ready. It then logs to
    /// syslog.
    #[arg(long)]
    pub detach: bool,

    /// Be the agent that --detach starts.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub detached: bool,

    /// Exit when there has been no job for a few seconds and the collector has acknowledged all data.
    #[arg(long)]
    exit_when_idle: bool,

    /// The events to log: off, error, warn, info, debug or trace, also per module
    /// (info,polymeter_agent::delivery=debug); overrides `log_level` and the variable POLYMETER_LOG.
    #[arg(long, value_name = "FILTER")]
    log: Option<log::Filter>,

    /// The form of log lines, text or json; overrides `log_format`.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<log::Format>,
}

impl AgentArguments {
    /// Loads the configuration and applies the options that override it. The error holds all faults.
    pub fn load(&self) -> Result<AgentConfig, Faults> {
        let mut config = match &self.config {
            Some(path) => AgentConfig::load(path)?,
            None if Path::new(DEFAULT_PATH).exists() => AgentConfig::load(Path::new(DEFAULT_PATH))?,
            None => AgentConfig::standard(),
        };
        if !self.collectors.is_empty() {
            config.collectors.clone_from(&self.collectors);
        }
        if let Some(socket) = &self.socket {
            config.control_socket = Some(socket.clone());
        }
        config.exit_when_idle = self.exit_when_idle;
        config.log_level = log::resolve_filter(self.log.as_ref(), config.log_level);
        config.log_format = self.log_format.unwrap_or(config.log_format);
        Ok(config)
    }

    /// Starts the agent as another process, which outlives this one.
    pub fn detach(&self) -> io::Result<()> {
        let arguments = std::env::args_os()
            .skip(1)
            .map(|argument| if argument == "--detach" { OsString::from("--detached") } else { argument });
        detach::start(arguments)
    }
}
