//! A collector's process, as users run it.

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::clock::wait_for;
use crate::process::{self, Usage};
use crate::store::Store;

/// How long a collector may take to start or to stop, in seconds.
const PATIENCE_S: u64 = 60;

/// A collector. Dropping it ends it.
#[derive(Debug)]
pub struct Collector {
    process: Child,
    endpoint: String,
    config: PathBuf,
    log: PathBuf,
}

impl Collector {
    /// Starts a collector with its default settings, and `more` lines of configuration.
    ///
    /// # Errors
    /// When the program is not there, or does not listen.
    pub fn start(scratch: &Path, listen: &str, store: &Store, more: &str) -> Result<Self, Box<dyn Error>> {
        let (config, log) = (scratch.join("collector.toml"), scratch.join("collector.log"));
        crate::job::write(&config, &format!("listen = \"{listen}\"\n{}{more}", store.configuration()))?;
        File::create(&log)?;
        let process = run(&config, &log)?;
        let mut collector = Self { process, endpoint: String::new(), config, log };
        let said = || {
            let said = collector.said();
            said.split_once("listening at ").and_then(|(_, rest)| Some(rest.split_once(',')?.0.to_owned()))
        };
        let endpoint = wait_for("the collector listens", PATIENCE_S, said);
        collector.endpoint = endpoint.map_err(|error| format!("{error}: {}", collector.said()))?;
        Ok(collector)
    }

    /// Kills it where it stands, and starts another in its place, which may not find its store.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn kill_and_start(&mut self) -> Result<(), Box<dyn Error>> {
        self.process.kill()?;
        self.process.wait()?;
        self.process = run(&self.config, &self.log)?;
        Ok(())
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What it has used.
    ///
    /// # Errors
    /// When it has gone.
    pub fn usage(&self) -> io::Result<Usage> {
        process::usage(self.process.id())
    }

    /// What it has said.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it: it commits what it took. Returns what it said.
    ///
    /// # Errors
    /// When it was not content.
    pub fn stop(mut self) -> Result<String, Box<dyn Error>> {
        let content = process::end(&mut self.process, Signal::TERM, PATIENCE_S);
        let said = self.said();
        if content { Ok(said) } else { Err(format!("the collector broke: {said}").into()) }
    }
}

fn run(config: &Path, log: &Path) -> Result<Child, Box<dyn Error>> {
    let process = Command::new(crate::agent::program("polymeter-collector")?)
        .arg("--config")
        .arg(config)
        .env_remove("JOURNAL_STREAM")
        .stdin(Stdio::null())
        .stderr(File::options().append(true).open(log)?)
        .spawn()?;
    Ok(process)
}

impl Drop for Collector {
    fn drop(&mut self) {
        // It is ours, and has nothing that is worth waiting for. After a stop it has gone, and this does nothing.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
