//! The section `[job_end]`: the command at the end of each job.

use std::path::PathBuf;
use std::time::Duration;

use polymeter_service::document::{Reporter, Section};

use super::values::{absolute, duration_up_to};
use crate::job_end::JobEndConfig;

/// The maximum number of commands that run at the same time: each has a thread, a connection to the store,
/// and a report in memory.
const CONCURRENT_MAX: u64 = 64;

/// The maximum number of ends that wait.
const QUEUE_MAX: u64 = 1_000_000;

/// The longest timeout and delay. A command that runs longer blocks those of other jobs.
const LONGEST: &str = "1h";

/// The raw section.
#[derive(Debug, Default)]
pub(super) struct RawJobEnd {
    command: Option<Vec<String>>,
    timeout: Option<Duration>,
    concurrent: Option<u64>,
    queue: Option<u64>,
    delay: Option<Duration>,
    advice: Option<PathBuf>,
}

impl RawJobEnd {
    /// Takes the section out of the document.
    pub(super) fn take(root: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Option<Self> {
        let place = root.span("job_end");
        let mut section = root.section("job_end", reporter)?;
        let raw = Self {
            command: command(&mut section, reporter),
            timeout: section.parse("timeout", reporter, |text| duration_up_to(text, LONGEST)),
            concurrent: section.integer("concurrent", reporter, 1..=CONCURRENT_MAX),
            queue: section.integer("queue", reporter, 1..=QUEUE_MAX),
            delay: section.parse("delay", reporter, |text| duration_up_to(text, LONGEST)),
            advice: section.parse("advice", reporter, absolute),
        };
        if let (None, Some(place)) = (&raw.command, &place) {
            reporter.fault(
                place,
                format_args!(
                    "[job_end]: missing `command`; remove the section, or set command = [\"/PATH\"]"
                ),
            );
        }
        section.finish(reporter);
        Some(raw)
    }

    /// Returns the settings; none if the command is missing.
    pub(super) fn resolve(self) -> Option<JobEndConfig> {
        let mut words = self.command?.into_iter();
        let usual = JobEndConfig::new(words.next()?);
        Some(JobEndConfig {
            arguments: words.collect(),
            timeout: self.timeout.unwrap_or(usual.timeout),
            concurrent: self
                .concurrent
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or(usual.concurrent),
            queue: self.queue.unwrap_or(usual.queue),
            delay: self.delay.unwrap_or(usual.delay),
            advice: self.advice.unwrap_or(usual.advice),
            ..usual
        })
    }
}

/// Takes the program and its arguments.
fn command(section: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Option<Vec<String>> {
    let place = section.span("command");
    let words: Vec<String> =
        section.strings("command", reporter)?.into_iter().map(|(word, _)| word).collect();
    let place = place?;
    let program = words.first().map(String::as_str).unwrap_or_default();
    if let Err(message) = absolute(program) {
        reporter.fault(&place, format_args!("`command` in [job_end]: {message}"));
    } else if words.iter().any(|word| word.contains('\0')) {
        reporter.fault(&place, format_args!("`command` in [job_end]: an argument contains a NUL character"));
    }
    Some(words)
}
