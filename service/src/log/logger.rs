//! Subscriber that writes log lines, and its settings.

use std::io::Write;
use std::sync::{PoisonError, RwLock};

use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::{Event, Metadata, Subscriber};

use super::filter::{FILTER_VARIABLE, Filter, InvalidFilter};
use super::format::{Format, Record, word};
use super::syslog::{self, Severity};
use crate::clock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// Lines with the program's name and the level before each line.
    Stderr,
    /// Stderr, read by the journal, with the priority before each line: sd-daemon(3).
    Journal,
    /// Syslog.
    Syslog,
}

#[derive(Debug)]
struct Output {
    filter: Filter,
    format: Format,
    destination: Destination,
}

/// None before [`init`].
static OUTPUT: RwLock<Option<Output>> = RwLock::new(None);

/// Takes the filter from `POLYMETER_LOG`, or else logs `info` and above. A second call changes nothing.
pub fn init(program: &'static str) {
    let filter = filter_of_environment();
    let usual = filter.as_ref().ok().and_then(Clone::clone).unwrap_or_default();
    let destination = if stderr_is_journal() { Destination::Journal } else { Destination::Stderr };
    let output = Output { filter: usual, format: Format::Text, destination };
    OUTPUT.write().unwrap_or_else(PoisonError::into_inner).get_or_insert(output);
    if tracing::subscriber::set_global_default(Logger { program }).is_ok()
        && let Err(error) = filter
    {
        tracing::warn!(%error, "cannot use {FILTER_VARIABLE}");
    }
}

/// Sets filter and format, at the start or while the program runs.
pub fn configure(filter: Filter, format: Format) {
    change(|output| (output.filter, output.format) = (filter, format));
}

/// Sends all further messages to syslog instead of stderr.
pub fn use_syslog() {
    change(|output| output.destination = Destination::Syslog);
}

fn change(change: impl FnOnce(&mut Output)) {
    if let Some(output) = OUTPUT.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
        change(output);
    }
    tracing::callsite::rebuild_interest_cache();
}

/// Parses `POLYMETER_LOG`, if it is set.
pub fn filter_of_environment() -> Result<Option<Filter>, InvalidFilter> {
    let text = std::env::var(FILTER_VARIABLE).ok().filter(|text| !text.is_empty());
    text.map(|text| text.parse()).transpose()
}

/// Prefers the command line's filter, then that of `POLYMETER_LOG`, then the configuration's.
pub fn resolve_filter(command_line: Option<&Filter>, configuration: Filter) -> Filter {
    command_line.cloned().or_else(|| filter_of_environment().ok().flatten()).unwrap_or(configuration)
}

/// Tells whether stderr is connected to the journal: `JOURNAL_STREAM` contains the device and inode of its
/// socket, see systemd.exec(5). A program that inherits the variable may have another stderr.
fn stderr_is_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

#[derive(Debug)]
struct Logger {
    program: &'static str,
}

impl Subscriber for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let output = OUTPUT.read().unwrap_or_else(PoisonError::into_inner);
        metadata.is_event() && output.as_ref().is_some_and(|output| output.filter.enables(metadata))
    }

    fn event(&self, event: &Event<'_>) {
        let mut record = Record::default();
        event.record(&mut record);
        let metadata = event.metadata();
        let (format, destination) = match OUTPUT.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(output) => (output.format, output.destination),
            None => return,
        };
        let level = *metadata.level();
        let text = match format {
            Format::Text => record.to_text(),
            Format::Json => record.to_json(self.program, level, metadata.target(), clock::realtime_us()),
        };
        let severity = Severity::from(level);
        let line = match (destination, format) {
            (Destination::Syslog, _) => return syslog::send(self.program, severity, &text),
            (Destination::Journal, _) => format!("<{}>{text}\n", severity as u8),
            (Destination::Stderr, Format::Text) => format!("{}: {}: {text}\n", self.program, word(level)),
            (Destination::Stderr, Format::Json) => format!("{text}\n"),
        };
        // If stderr is closed, the line is lost.
        std::io::stderr().lock().write_all(line.as_bytes()).ok();
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
