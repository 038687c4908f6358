//! A collector's process, as users run it.

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::wait_for;
use crate::process::{self, KilledOnDrop, Usage};
use crate::store::Store;

const PATIENCE_S: u64 = 60;

/// A running collector. Dropping it kills the process.
#[derive(Debug)]
pub struct Collector {
    process: KilledOnDrop,
    endpoint: String,
    config: PathBuf,
    log: PathBuf,
}

impl Collector {
    /// Starts a collector with its default settings and the additional configuration lines `more`.
    pub fn start(scratch: &Path, listen: &str, store: &Store, more: &str) -> Result<Self, Box<dyn Error>> {
        let (config, log) = (scratch.join("collector.toml"), scratch.join("collector.log"));
        crate::job::write(&config, &format!("listen = \"{listen}\"\n{}{more}", store.configuration()))?;
        File::create(&log)?;
        let process = run(&config, &log)?;
        let mut collector = Self { process, endpoint: String::new(), config, log };
        let endpoint = wait_for("the collector listens", PATIENCE_S, || {
            let log = collector.log();
            log.split_once("listening at ").and_then(|(_, rest)| Some(rest.split_once(',')?.0.to_owned()))
        });
        collector.endpoint = endpoint.map_err(|error| format!("{error}: {}", collector.log()))?;
        Ok(collector)
    }

    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    /// Starts a process with the same configuration after a kill.
    pub fn start_again(&mut self) -> Result<(), Box<dyn Error>> {
        self.process = run(&self.config, &self.log)?;
        Ok(())
    }

    /// Starts it again after a kill, and waits until it listens: a collector that finds no database ends, and
    /// here no service manager starts it again.
    pub fn recover(&mut self) -> Result<(), Box<dyn Error>> {
        let starts = |log: &str| log.matches("listening at ").count();
        let before = starts(&self.log());
        self.start_again()?;
        let is_up = || (starts(&self.log()) > before).then_some(());
        wait_for("the collector listens again", PATIENCE_S, is_up)
    }

    pub fn signal(&self, signal: Signal) -> Result<(), Box<dyn Error>> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?).ok_or("the process has no id")?;
        Ok(kill_process(pid, signal)?)
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn usage(&self) -> io::Result<Usage> {
        process::usage(self.process.id())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops the collector, which commits all received samples. Returns its log. Fails if the exit status is
    /// not 0.
    pub fn stop(mut self) -> Result<String, Box<dyn Error>> {
        let content = process::end(&mut self.process, Signal::TERM, PATIENCE_S);
        let log = self.log();
        if content { Ok(log) } else { Err(format!("the collector failed: {log}").into()) }
    }
}

fn run(config: &Path, log: &Path) -> Result<KilledOnDrop, Box<dyn Error>> {
    let process = Command::new(crate::agent::program("polymeter-collector")?)
        .arg("--config")
        .arg(config)
        .env_remove("JOURNAL_STREAM")
        .stdin(Stdio::null())
        .stderr(File::options().append(true).open(log)?)
        .spawn()?;
    Ok(KilledOnDrop(process))
}
