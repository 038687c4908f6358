//! What is said to `polymeter-agent` on its command line.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::config::{self, Config, ConfigError, DEFAULT_PATH};
use crate::detach;

/// Polymeter's node agent: samples the metrics of every job on this node, each at its own period, and pushes them to a
/// collector.
#[derive(Debug, Parser)]
#[command(name = "polymeter-agent", version)]
pub struct Arguments {
    /// The configuration; without it, /etc/polymeter/agent.toml where that exists, else the defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration, say everything that is wrong with it, and end.
    #[arg(long)]
    pub check: bool,

    /// With --check: as this user, whether it can read the keys and write where it must.
    #[arg(long, value_name = "NAME", requires = "check")]
    pub user: Option<String>,

    /// The collector's endpoint, instead of the configuration's.
    #[arg(long, value_name = "ENDPOINT", value_parser = config::endpoint)]
    collector: Option<String>,

    /// The control socket, instead of the configuration's.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Run on in the background, in a session of its own, and return when the agent is ready. Messages go to syslog then.
    #[arg(long)]
    pub detach: bool,

    /// Be what --detach has started.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub detached: bool,

    /// End when no job has been there for a few seconds and the collector has acknowledged everything.
    #[arg(long)]
    exit_when_idle: bool,
}

impl Arguments {
    /// What is meant: the configuration, with what was said instead of parts of it.
    ///
    /// # Errors
    /// When the configuration cannot be read or has faults; all of them are told.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::load(path)?,
            None if Path::new(DEFAULT_PATH).exists() => Config::load(Path::new(DEFAULT_PATH))?,
            None => Config::standard(),
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
    ///
    /// # Errors
    /// When it cannot be started, or ends before it is ready.
    pub fn detach(&self) -> Result<(), Box<dyn Error>> {
        let told = std::env::args_os()
            .skip(1)
            .map(|argument| if argument == "--detach" { OsString::from("--detached") } else { argument });
        Ok(detach::start(told)?)
    }
}
