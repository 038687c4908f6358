//! Section `[api]`: the HTTP API.

use std::path::PathBuf;
use std::str::FromStr;

use polymeter_api::{ApiConfig, Listen, Proxy};
use polymeter_service::document::{Reporter, Span};
use polymeter_service::keys;
use polymeter_service::keys::Kind::{Flag, Integer, Text, Texts};
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;

use super::value_parsers::duration_up_to;

const READERS_MAX: u64 = 64;

const LONGEST: &str = "1h";

/// A user's, in progress and a second.
const REQUESTS_MAX: u64 = 10_000;

/// Fewer than the connections, so that other requests remain possible.
const STREAMS_MAX: u64 = 400;

/// Bytes that a user may read a second.
const BYTES_RANGE: (u64, u64) = (1000, 1_000_000_000_000);

#[derive(Debug)]
pub(super) struct Api {
    /// None for `off`.
    listen: Option<Listen>,
    /// Other machines may connect.
    insecure: bool,
    /// Other values; its address counts for nothing.
    config: ApiConfig,
}

keys! {
    /// The keys of the section.
    pub(super) const KEYS: Api = |api, value|

    /// The Unix socket, such as "/run/polymeter/api.sock", or ADDRESS:PORT for a proxy on this machine, or
    /// "off".
    "listen": Text("string"), Usual("off") => listen = value.parse(listen);

    /// Let other machines connect without encryption. Only those in trusted_proxies can.
    "insecure": Flag, Usual("false") => insecure = value.boolean();

    /// The names by which browsers may address the API, besides addresses and localhost. Requests with
    /// another name in Host are refused, except from trusted_proxies while there are no names here.
    "server_names": Texts, Example(r#"["meter.example.org"]"#) => config.server_names = names(value);

    /// The proxies that authenticate users, and name them in a header: addresses, networks, or user:NAME for
    /// a user of the Unix socket.
    "trusted_proxies": Texts, Example(r#"["user:www-data"]"#) => config.trusted_proxies = proxies(value);
    "user_header": Text("string"), Usual("X-Remote-User") => config.user_header = value.parse(header);

    /// The number of connections to the store, of which one user gets all but one, and the time for reading
    /// one answer, in whole s or min, up to 1h.
    "readers": Integer(1, READERS_MAX), Usual("4") => config.limits.readers = value.integer();
    "query_timeout": Text("reach"), Usual("60s")
        => config.limits.query_timeout = value.parse(|text| duration_up_to(text, LONGEST));

    /// The limits of one user: requests in progress, behind which others wait, and requests and bytes a
    /// second.
    "user_requests": Integer(1, REQUESTS_MAX), Usual("8") => config.limits.user_requests = value.integer();
    "user_requests_per_second": Integer(1, REQUESTS_MAX), Usual("50")
        => config.limits.user_requests_per_second = value.integer();
    "user_bytes_per_second": Integer(BYTES_RANGE.0, BYTES_RANGE.1), Usual("67108864")
        => config.limits.user_bytes_per_second = value.integer();

    /// The streams of live values: of all users, and of one user.
    "streams": Integer(1, STREAMS_MAX), Usual("256") => config.limits.streams = value.integer();
    "user_streams": Integer(1, STREAMS_MAX), Usual("16") => config.limits.user_streams = value.integer();
}

/// The API is off without an address.
pub(super) fn take(mut value: Value<'_, '_, '_>) -> Option<ApiConfig> {
    let section = value.table()?;
    let place = section.span("listen");
    let nowhere = Listen::Unix(PathBuf::new());
    let mut api = Api { listen: None, insecure: false, config: ApiConfig::new(nowhere) };
    keys::read(KEYS, &mut api, section, value.reporter);
    let listen = api.listen?;
    if let Some(place) = place.filter(|_| listen.is_remote()) {
        check_remote(api.insecure, &api.config.trusted_proxies, &place, value.reporter);
    }
    Some(ApiConfig { listen, ..api.config })
}

/// None for `off`.
fn listen(text: &str) -> Result<Option<Listen>, <Listen as FromStr>::Err> {
    if text == "off" { Ok(None) } else { text.parse().map(Some) }
}

/// Reports an address that other machines can reach, unless that is permitted and a proxy authenticates
/// users.
fn check_remote(is_insecure: bool, proxies: &[Proxy], place: &Span, reporter: &mut Reporter<'_>) {
    if !is_insecure {
        reporter.fault(
            place,
            format_args!(
                "`listen` in [api]: other machines can reach this address, and nothing is encrypted; use a Unix socket or 127.0.0.1 \
                 behind a proxy with TLS, or set `insecure = true` in [api] for a trusted network"
            ),
        );
    }
    if !proxies.iter().any(|proxy| matches!(proxy, Proxy::Network(..))) {
        reporter.fault(
            place,
            format_args!(
                "`listen` in [api]: other machines can reach this address; set `trusted_proxies` to the addresses of those that may"
            ),
        );
    }
}

/// Limit of DNS.
const HOST_NAME_BYTES: usize = 253;

fn names(mut value: Value<'_, '_, '_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for (name, span) in value.strings()? {
        let is_name = !name.is_empty()
            && name.len() <= HOST_NAME_BYTES
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
            && !name.starts_with('.');
        if is_name {
            names.push(name.trim_end_matches('.').to_owned());
        } else {
            let message = "expected the name of a host without a port, such as \"meter.example.org\"";
            value.reporter.fault(&span, format_args!("`server_names` in [api]: {message}, found `{name}`"));
        }
    }
    Some(names)
}

fn proxies(mut value: Value<'_, '_, '_>) -> Option<Vec<Proxy>> {
    let mut proxies = Vec::new();
    for (text, span) in value.strings()? {
        match text.parse() {
            Ok(proxy) => proxies.push(proxy),
            Err(error) => {
                value.reporter.fault(&span, format_args!("`trusted_proxies` in [api]: {error}"));
            }
        }
    }
    Some(proxies)
}

fn header(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    // These have a meaning of their own.
    let is_used = ["authorization", "cookie", "host", "origin"].contains(&text.to_ascii_lowercase().as_str());
    if is_name && !is_used {
        return Ok(text.to_owned());
    }
    Err(format!("expected the name of a header for the user, such as \"X-Remote-User\", found `{text}`"))
}
