//! Section `[job_end]`: the command at the end of each job.

use std::path::PathBuf;

use polymeter_service::keys;
use polymeter_service::keys::Kind::{Integer, Text, Texts};
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;

use super::value_parsers::{absolute, duration_up_to, section_with};
use crate::job_end::JobEndConfig;

/// Each command has a thread, a connection to the store, and a report in memory.
const CONCURRENT_MAX: u64 = 64;

/// Ends that wait.
const QUEUE_MAX: u64 = 1_000_000;

/// For the timeout and the delay. A command that runs longer blocks those of other jobs.
const LONGEST: &str = "1h";

keys! {
    /// The keys of the section.
    pub(super) const KEYS: JobEndConfig = |config, value|

    /// The absolute path of the program, and its arguments; no shell takes part. Only root and the
    /// collector's user may be able to change the file.
    "command": Texts, Example(r#"["/usr/libexec/polymeter/slurm/admin-comment.sh"]"#)
        => program = command(&mut config.arguments, value);

    /// The time after which the command is killed with its process group, and the number of commands that run
    /// at the same time.
    "timeout": Text("reach"), Usual("60s") => timeout = value.parse(|text| duration_up_to(text, LONGEST));
    "concurrent": Integer(1, CONCURRENT_MAX), Usual("2") => concurrent = value.integer();

    /// The time between the end and the command, in whole s or min, up to 1h: for the last samples of all
    /// nodes, and the final state that the scheduler's controller reports.
    "delay": Text("reach"), Usual("30s") => delay = value.parse(|text| duration_up_to(text, LONGEST));

    /// The number of ends that may wait. The oldest of more are dropped and counted.
    "queue": Integer(1, QUEUE_MAX), Usual("10000") => queue = value.integer();

    /// The directory of the site's rules for findings, as in `polymeter report`.
    "advice": Text("path"), Usual("/etc/polymeter/advice.d") => advice = value.parse(absolute);
}

/// The section must have a command.
pub(super) fn take(value: Value<'_, '_, '_>) -> Option<JobEndConfig> {
    section_with(value, KEYS, JobEndConfig::new(""), "command", "[\"/PATH\"]")
}

fn command(arguments: &mut Vec<String>, mut value: Value<'_, '_, '_>) -> Option<PathBuf> {
    let place = value.span()?;
    let mut words = value.strings()?.into_iter().map(|(word, _)| word);
    let program = words.next().unwrap_or_default();
    arguments.extend(words);
    let has_nul = program.contains('\0') || arguments.iter().any(|word| word.contains('\0'));
    let fault = match absolute(&program) {
        Ok(path) if !has_nul => return Some(path),
        Ok(_) => "an argument contains a NUL character".to_owned(),
        Err(error) => error,
    };
    value.reporter.fault(&place, format_args!("`command` in [job_end]: {fault}"));
    None
}
