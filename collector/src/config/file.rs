//! The configuration file: TOML, of which every fault is found with its line.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use polymeter_proto::period::Period;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::clock::{self, Reach, SaidClock};
use super::control::SaidControl;
use super::{Endpoint, Fault, SaidSecurity};
use crate::limits;
use polymeter_store::{StoreUrl, TimescaleMode};

const KEYS: [&str; 20] = [
    "auth",
    "authorised_agents",
    "bind_node_to_key",
    "clock",
    "commit_interval",
    "commit_rows",
    "control",
    "control_requests",
    "control_socket",
    "insecure",
    "key",
    "listen",
    "metrics",
    "munge_socket",
    "scheduler_user",
    "silent_after",
    "store",
    "timescaledb",
    "unmunge",
    "writers",
];

/// More connections than this do not make one server faster.
const WRITERS_MAX: usize = 64;

/// A transaction of more rows takes longer than agents should wait for an acknowledgement.
const COMMIT_ROWS_MAX: usize = 10_000_000;

/// What a file said.
#[derive(Debug, Default)]
pub struct Said {
    /// See [`super::Config::listen`].
    pub listen: Option<Endpoint>,
    /// See [`super::Config::store`].
    pub store: Option<StoreUrl>,
    /// See [`super::Config::timescaledb`].
    pub timescaledb: Option<TimescaleMode>,
    /// See [`super::Config::writers`].
    pub writers: Option<usize>,
    /// See [`super::Config::commit_interval`].
    pub commit_interval: Option<Duration>,
    /// See [`super::Config::commit_rows`].
    pub commit_rows: Option<usize>,
    /// See [`super::Config::silent_after`].
    pub silent_after: Option<Duration>,
    /// What is said of the times of samples.
    pub clock: SaidClock,
    /// What is said of control.
    pub control: SaidControl,
    /// What is said of keys.
    pub security: SaidSecurity,
    /// See [`super::Config::metrics`].
    pub metrics: Option<SocketAddr>,
}

/// A file's text, and the faults that are found in it.
struct Page<'a> {
    path: &'a Path,
    text: &'a str,
    faults: &'a mut Vec<Fault>,
}

/// What the file at `path` says. What is wrong in it is added to `faults`.
pub(super) fn read(path: &Path, faults: &mut Vec<Fault>) -> Said {
    match read_text(path) {
        Ok(text) => parse(path, &text, faults),
        Err(error) => {
            faults.push(Fault {
                place: path.display().to_string(),
                message: format!("cannot be read: {error}"),
            });
            Said::default()
        }
    }
}

fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(limits::CONFIG_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > limits::CONFIG_BYTES {
        return Err(std::io::Error::other(format!("it has more than {} bytes", limits::CONFIG_BYTES)));
    }
    Ok(text)
}

pub(super) fn parse(path: &Path, text: &str, faults: &mut Vec<Fault>) -> Said {
    let mut page = Page { path, text, faults };
    let mut said = Said::default();
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        page.fault(error.span().unwrap_or_default(), error.message());
    }
    for (key, value) in table.into_inner() {
        match key.get_ref().as_ref() {
            "listen" => {
                said.security.listen_place = page.place(value.span());
                said.listen = page.text(&value);
            }
            "store" => said.store = page.text(&value),
            "timescaledb" => said.timescaledb = page.text(&value),
            "commit_interval" => {
                said.commit_interval =
                    page.text(&value).map(|period: Period| Duration::from_nanos(period.as_nanos()));
            }
            "silent_after" => {
                said.silent_after = page.text(&value).map(|Reach(after)| after);
            }
            "clock" => said.clock = page.clock(&value),
            "control_requests" => said.control.requests = page.text(&value),
            "control_socket" => said.control.socket = page.text(&value),
            "auth" => said.control.auth = page.text(&value),
            "control" => {
                said.control.place = page.place(value.span());
                said.control.address = page.text(&value);
            }
            "unmunge" => said.control.unmunge = page.text(&value),
            "munge_socket" => said.control.munge_socket = page.text(&value),
            "scheduler_user" => said.control.scheduler_user = page.text(&value),
            "writers" => said.writers = page.count(&value, WRITERS_MAX),
            "commit_rows" => said.commit_rows = page.count(&value, COMMIT_ROWS_MAX),
            "key" => {
                said.security.place = page.place(value.span());
                said.security.key = page.text(&value);
            }
            "authorised_agents" => {
                said.security.place = page.place(value.span());
                said.security.authorised_agents = page.text(&value);
            }
            "bind_node_to_key" => said.security.bind_node_to_key = page.flag(&value),
            "insecure" => said.security.insecure = page.flag(&value),
            "metrics" => said.metrics = page.address(&value),
            unknown => {
                page.unknown(key.span(), unknown, "", &KEYS);
            }
        }
    }
    said.control.check(page.faults);
    said.security.check(page.faults);
    said
}

impl Page<'_> {
    fn fault(&mut self, span: Range<usize>, message: &str) {
        let place = self.place(span);
        self.faults.push(Fault { place, message: message.replace('\n', " ") });
    }

    fn place(&self, span: Range<usize>) -> String {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{}:{line}", self.path.display())
    }

    fn unknown(&mut self, span: Range<usize>, key: &str, section: &str, known: &[&str]) {
        let key = crate::log::printable(key);
        self.fault(span, &format!("`{key}` is not known{section}; known are {}", known.join(", ")));
    }

    fn clock(&mut self, value: &Spanned<DeValue<'_>>) -> SaidClock {
        let mut said = SaidClock::default();
        let Some(section) = value.get_ref().as_table() else {
            self.fault(value.span(), "a section [clock] is wanted here");
            return said;
        };
        for (key, value) in section {
            match key.get_ref().as_ref() {
                "ahead" => said.ahead = self.text(value),
                "behind" => said.behind = self.text(value),
                "beyond" => said.beyond = self.text(value),
                unknown => self.unknown(key.span(), unknown, " in [clock]", &clock::KEYS),
            }
        }
        said
    }

    fn text<T: std::str::FromStr<Err: fmt::Display>>(&mut self, value: &Spanned<DeValue<'_>>) -> Option<T> {
        let Some(text) = value.get_ref().as_str() else {
            self.fault(value.span(), "a text in quotes is wanted here");
            return None;
        };
        match text.parse() {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                self.fault(value.span(), &error.to_string());
                None
            }
        }
    }

    fn flag(&mut self, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.fault(value.span(), "true or false is wanted here");
        }
        flag
    }

    fn address(&mut self, value: &Spanned<DeValue<'_>>) -> Option<SocketAddr> {
        let address = value.get_ref().as_str().and_then(|text| text.parse().ok());
        if address.is_none() {
            self.fault(
                value.span(),
                "an address and a port in quotes are wanted here, such as \"127.0.0.1:9717\"",
            );
        }
        address
    }

    fn count(&mut self, value: &Spanned<DeValue<'_>>, max: usize) -> Option<usize> {
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|number| usize::from_str_radix(number.as_str(), number.radix()).ok());
        let number = number.filter(|number| (1..=max).contains(number));
        if number.is_none() {
            self.fault(value.span(), &format!("a whole number from 1 to {max} is wanted here"));
        }
        number
    }
}
