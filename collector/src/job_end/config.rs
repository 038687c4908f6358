//! The settings of the command.

use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_analysis::advice;

/// The command that runs at the end of each job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEndConfig {
    /// The absolute path of the program.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The time after which the command is killed.
    pub timeout: Duration,
    /// The number of commands that run at the same time.
    pub concurrent: usize,
    /// The number of ends that wait; the oldest of more are dropped.
    pub queue: u64,
    /// The time between the end and the command: for the last samples of all nodes, and the final state.
    pub delay: Duration,
    /// The directory of the site's rules for findings.
    pub advice: PathBuf,
}

impl JobEndConfig {
    /// Returns the usual settings for a command.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            timeout: Duration::from_secs(60),
            concurrent: 2,
            queue: 10_000,
            delay: Duration::from_secs(30),
            advice: Path::new(advice::DIRECTORY).to_owned(),
        }
    }
}
