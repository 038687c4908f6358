//! The configuration file before it is resolved.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use polymeter_proto::period::Period;
use polymeter_service::document::{Fault, Faults, Reporter, Section, read_text};
use polymeter_service::log;
use polymeter_store::{ExtensionMode, StoreUrl};

use super::api::RawApi;
use super::clock::{CoarseDuration, RawClock};
use super::control::RawControl;
use super::endpoint::Endpoint;
use super::job_end::RawJobEnd;
use super::remote_write;
use super::retention::RawRetention;
use super::security::RawSecurity;
use crate::sinks::SinkUrl;
use crate::sinks::remote_write::RemoteWriteConfig;

/// The maximum number of writers; more connections do not make a server faster.
const WRITERS_MAX: u64 = 64;

/// The maximum number of samples in one commit; a larger transaction takes longer than agents should wait for
/// an acknowledgement.
const COMMIT_ROWS_MAX: u64 = 10_000_000;

/// The contents of a file. Missing keys are none.
#[derive(Debug, Default)]
pub(super) struct RawConfig {
    pub(super) listen: Option<Endpoint>,
    pub(super) store: Option<StoreUrl>,
    pub(super) timescaledb: Option<ExtensionMode>,
    pub(super) citus: Option<ExtensionMode>,
    pub(super) writers: Option<usize>,
    pub(super) commit_interval: Option<Duration>,
    pub(super) commit_rows: Option<usize>,
    pub(super) session_timeout: Option<Duration>,
    pub(super) clock: RawClock,
    pub(super) retention: RawRetention,
    pub(super) control: RawControl,
    pub(super) security: RawSecurity,
    pub(super) metrics_listen: Option<SocketAddr>,
    pub(super) sinks: Vec<SinkUrl>,
    pub(super) remote_write: Option<RemoteWriteConfig>,
    pub(super) job_end: Option<RawJobEnd>,
    pub(super) api: RawApi,
    pub(super) log_level: Option<log::Filter>,
    pub(super) log_format: Option<log::Format>,
}

/// Returns all faults of a configuration file with the contents `text`.
pub fn check(path: &Path, text: &str) -> Faults {
    RawConfig::parse(path, text).1
}

impl RawConfig {
    /// Reads the file at `path`. Its faults are added to `faults`.
    pub(super) fn read(path: &Path, faults: &mut Faults) -> Self {
        match read_text(path) {
            Ok(text) => {
                let (raw, found) = Self::parse(path, &text);
                faults.0.extend(found.0);
                if raw.store.as_ref().is_some_and(StoreUrl::has_password) {
                    faults.0.extend(exposed_password(path));
                }
                raw
            }
            Err(unreadable) => {
                faults.0.extend(unreadable.0);
                Self::default()
            }
        }
    }

    fn parse(path: &Path, text: &str) -> (Self, Faults) {
        let mut reporter = Reporter::new(path, text);
        let mut root = reporter.root();
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let reporter_ref = &mut reporter;
        let raw = Self {
            security: RawSecurity::take(&mut root, reporter_ref),
            listen: root.parse("listen", reporter_ref, str::parse),
            store: root.parse("store", reporter_ref, str::parse),
            timescaledb: root.parse("timescaledb", reporter_ref, str::parse),
            citus: root.parse("citus", reporter_ref, str::parse),
            writers: root.integer("writers", reporter_ref, 1..=WRITERS_MAX).map(count),
            commit_interval: root
                .parse("commit_interval", reporter_ref, str::parse)
                .map(|period: Period| Duration::from_nanos(period.as_nanos())),
            commit_rows: root.integer("commit_rows", reporter_ref, 1..=COMMIT_ROWS_MAX).map(count),
            session_timeout: root
                .parse("session_timeout", reporter_ref, str::parse)
                .map(|CoarseDuration(timeout)| timeout),
            clock: RawClock::take(&mut root, reporter_ref),
            retention: RawRetention::take(&mut root, reporter_ref),
            control: RawControl::take(&mut root, reporter_ref),
            metrics_listen: root.parse("metrics_listen", reporter_ref, address),
            sinks: sinks(&mut root, reporter_ref),
            remote_write: remote_write::take(&mut root, reporter_ref),
            job_end: RawJobEnd::take(&mut root, reporter_ref),
            api: RawApi::take(&mut root, reporter_ref),
            log_level: root.parse("log_level", reporter_ref, str::parse),
            log_format: root.parse("log_format", reporter_ref, str::parse),
        };
        root.finish(&mut reporter);
        let mut faults = reporter.into_faults();
        raw.control.check(&mut faults);
        raw.retention.check(&mut faults);
        raw.security.check(&mut faults);
        (raw, faults)
    }
}

/// Returns a fault if every user can read a file that contains a password.
fn exposed_password(path: &Path) -> Option<Fault> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let file = path.display();
    (mode & 0o004 != 0).then(|| {
        let message = format!("every user can read the password in `store`; run chmod o= {file}, or put the password into a file that passfile= names");
        Fault::new(file.to_string(), message)
    })
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_invalid| {
        format!("invalid address `{text}`: expected ADDRESS:PORT, such as \"127.0.0.1:9717\"")
    })
}

/// Takes the sinks. A repeated URL is a fault, since each row would be written twice.
fn sinks(root: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Vec<SinkUrl> {
    let mut sinks: Vec<SinkUrl> = Vec::new();
    for (text, span) in root.strings("sinks", reporter).unwrap_or_default() {
        match text.parse() {
            Ok(sink) if sinks.contains(&sink) => {
                reporter.fault(&span, format_args!("`sinks`: `{sink}` is listed twice"));
            }
            Ok(sink) => sinks.push(sink),
            Err(reason) => reporter.fault(&span, format_args!("`sinks`: {reason}")),
        }
    }
    sinks
}
