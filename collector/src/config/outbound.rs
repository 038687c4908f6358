//! Keys of the sinks that send to another database, which all of their sections have.

use std::path::PathBuf;

use polymeter_service::keys::Kind::{Integer, Text, Texts};
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::{Doc, Setting, Value, docs};
use polymeter_service::{byte_size, keys};

use super::value_parsers::{absolute, duration_up_to, section_with};
use crate::sinks::outbound::{Credentials, OutboundConfig, Protocol, ReceiverUrl, SHARDS_MAX};

/// Samples in a request: its body has some 20 bytes for each, and the labels.
const BATCH_SAMPLES_MAX: u64 = 50_000;

/// Longest time for which samples wait or are kept, and the longest timeout.
pub(super) const LONGEST: &str = "10min";

const SPOOL_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=16 << 40;

/// Labels that each series gets.
const LABELS_MAX: usize = 16;

keys! {
    /// They follow the keys of the section, which end with `spool`.
    const SHARED: OutboundConfig = |config, value|

    "spool_bytes": Text("size"), Usual("8GiB")
        => spool_bytes = value.parse(|text| byte_size::parse(text, SPOOL_BYTES));

    /// The samples that are sent: globs of metrics, of the ids of jobs, and of nodes. jobs = [] leaves the
    /// series of nodes.
    "metrics": Texts, Usual("[\"*\"]") => metrics = value.list(str::parse);
    "jobs": Texts, Usual("[\"*\"]") => jobs = value.list(str::parse);
    "nodes": Texts, Usual("[\"*\"]") => nodes = value.list(str::parse);

    /// Labels that each series gets.
    "labels": Texts, Example("[\"site=here\"]") => labels = labels(value);

    /// The root certificates for https; without the key those of the operating system count.
    "ca_file": Text("path"), Example("/etc/polymeter/ca.pem")
        => ca_file = ca_file(&config.url, value).map(Some);

    /// Further headers, and a file with such that are secrets, one in each line.
    "headers": Texts, Example("[\"X-Scope-OrgID: hpc\"]") => headers = value.list(str::parse);
    "headers_file": Text("path"), Example("/etc/polymeter/receiver.headers")
        => headers_file = value.parse(absolute).map(Some);

    /// The number of connections, each with a part of the series; the most samples of a request, and the
    /// longest time, in whole s or min, for which they wait for others; the timeout of a request.
    "shards": Integer(1, SHARDS_MAX as u64), Usual("4") => shards = value.integer();
    "batch_samples": Integer(1, BATCH_SAMPLES_MAX), Usual("2000") => batch_samples = value.integer();
    "batch_wait": Text("reach"), Usual("5s")
        => batch_wait = value.parse(|text| duration_up_to(text, LONGEST));
    "timeout": Text("reach"), Usual("30s") => timeout = value.parse(|text| duration_up_to(text, LONGEST));
}

pub(super) fn all_docs(own: &'static [Setting<OutboundConfig>]) -> Vec<&'static Doc> {
    docs(own.iter().chain(SHARED))
}

/// The section must have a URL, for instance `example`.
pub(super) fn take(
    value: Value<'_, '_, '_>,
    own: &'static [Setting<OutboundConfig>],
    protocol: &'static Protocol,
    example: &str,
) -> Option<OutboundConfig> {
    // A receiver in place of one that is missing or invalid, so that the other keys are checked, too.
    let any: ReceiverUrl = "http://localhost/".parse().ok()?;
    section_with(value, own.iter().chain(SHARED), OutboundConfig::new(protocol, any), "url", example)
}

fn ca_file(url: &ReceiverUrl, value: Value<'_, '_, '_>) -> Option<PathBuf> {
    if let Some(place) = value.span().filter(|_| !url.is_tls()) {
        value.reporter.fault(&place, "`ca_file`: requires a `url` that begins with https");
    }
    value.parse(absolute)
}

/// Their names must differ.
fn labels(mut value: Value<'_, '_, '_>) -> Option<Vec<(String, String)>> {
    let mut labels: Vec<(String, String)> = Vec::new();
    for (text, span) in value.strings()? {
        let reporter = &mut *value.reporter;
        match label(&text) {
            Ok((name, _)) if labels.iter().any(|(known, _)| *known == name) => {
                reporter.fault(&span, format_args!("`labels`: `{name}` is listed twice"));
            }
            Ok(_) if labels.len() >= LABELS_MAX => {
                reporter.fault(&span, format_args!("`labels`: there are more than {LABELS_MAX}"));
            }
            Ok(label) => labels.push(label),
            Err(reason) => reporter.fault(&span, format_args!("`labels`: {reason}")),
        }
    }
    Some(labels)
}

/// Takes a name and the file with its password, or the file with a token that `scheme` announces.
pub(super) fn credentials(
    Value { section, reporter, .. }: Value<'_, '_, '_>,
    token_key: &'static str,
    scheme: &'static str,
) -> Option<Credentials> {
    let place = |key| section.span(key);
    let (user_place, password_place) = (place("username"), place("password_file"));
    let token_place = place(token_key);
    let username = section.parse("username", reporter, user_name);
    let password_file = section.parse("password_file", reporter, absolute);
    let token_file = section.parse(token_key, reporter, absolute);
    match (&user_place, &password_place) {
        (Some(place), None) => reporter.fault(place, "`username`: requires `password_file`"),
        (None, Some(place)) => reporter.fault(place, "`password_file`: requires `username`"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    if let (Some(_), Some(place)) = (&user_place, &token_place) {
        reporter.fault(place, format_args!("`{token_key}`: cannot be combined with `username`"));
    }
    match (username, password_file, token_file) {
        (Some(username), Some(password_file), None) => Some(Credentials::Basic { username, password_file }),
        (_, _, Some(token_file)) => Some(Credentials::Token { scheme, token_file }),
        _ => None,
    }
}

/// `NAME=VALUE`
fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let is_valid = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_valid || value.is_empty() || value.chars().any(char::is_control) {
        return Err(format!(
            "invalid label `{text}`: expected NAME=VALUE, with a name of letters, digits and _"
        ));
    }
    if matches!(name, "node" | "jobid") {
        return Err(format!("the label `{name}` is set by the sink"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn user_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(':') || text.chars().any(char::is_control) {
        return Err("expected a name without `:`".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::super::{CollectorArguments, CollectorConfig};

    pub(in crate::config) fn resolved(text: &str) -> CollectorConfig {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        std::fs::write(&path, text).unwrap();
        let arguments = ["polymeter-collector", "--config", path.to_str().unwrap()];
        CollectorArguments::try_parse_from(arguments).unwrap().resolve().unwrap()
    }
}
