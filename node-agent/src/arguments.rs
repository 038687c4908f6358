//! What is said to `polymeter-agent` on its command line.

use std::path::{Path, PathBuf};

use clap::Parser;

use crate::config::{self, Config, ConfigError, DEFAULT_PATH};

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

    /// The collector's endpoint, instead of the configuration's.
    #[arg(long, value_name = "ENDPOINT", value_parser = config::endpoint)]
    collector: Option<String>,

    /// The control socket, instead of the configuration's.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
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
            None => Config::default_baseline(),
        };
        if let Some(collector) = &self.collector {
            config.collector.clone_from(collector);
        }
        if let Some(socket) = &self.socket {
            config.socket = Some(socket.clone());
        }
        Ok(config)
    }
}
