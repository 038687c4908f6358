//! Settings of the command.

use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_analysis::advice;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEndConfig {
    /// Absolute path.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub timeout: Duration,
    pub concurrent: usize,
    /// Ends that wait; the oldest of more are dropped.
    pub queue: u64,
    /// Time between the end and the command: for the last samples of all nodes, and the final state.
    pub delay: Duration,
    pub advice: PathBuf,
}

impl JobEndConfig {
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
