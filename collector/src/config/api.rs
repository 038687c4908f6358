//! The section `[api]`: the HTTP API.

use polymeter_api::{ApiConfig, ApiLimits, Listen, Proxy};
use polymeter_service::document::{Reporter, Section, Span};

use super::values::duration_up_to;

/// The maximum number of connections to the store.
const READERS_MAX: u64 = 64;

/// The longest time for an answer.
const LONGEST: &str = "1h";

/// The maximum number of requests of a user, in progress and a second.
const REQUESTS_MAX: u64 = 10_000;

/// The maximum number of streams: fewer than the connections, so that other requests remain possible.
const STREAMS_MAX: u64 = 400;

/// The least and the greatest number of bytes that a user may read a second.
const BYTES_RANGE: (u64, u64) = (1000, 1_000_000_000_000);

/// The raw section.
#[derive(Debug, Default)]
pub(super) struct RawApi(Option<ApiConfig>);

impl RawApi {
    /// Takes the section out of the document.
    pub(super) fn take(root: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Self {
        let Some(mut section) = root.section("api", reporter) else { return Self::default() };
        let place = section.span("listen");
        let listen: Option<Endpoint> = section.parse("listen", reporter, |text| match text {
            "off" => Ok(Endpoint(None)),
            _ => text.parse().map(|listen| Endpoint(Some(listen))),
        });
        let is_insecure = section.boolean("insecure", reporter).unwrap_or(false);
        let server_names = names(&mut section, reporter);
        let trusted_proxies = proxies(&mut section, reporter);
        let user_header = section.parse("user_header", reporter, header);
        let limits = limits(&mut section, reporter);
        section.finish(reporter);
        let listen = listen.and_then(|endpoint| endpoint.0);
        if let (Some(listen), Some(place)) = (&listen, &place) {
            check_remote(listen, is_insecure, &trusted_proxies, (place, reporter));
        }
        Self(listen.map(|listen| {
            let usual = ApiConfig::new(listen);
            ApiConfig {
                server_names,
                trusted_proxies,
                user_header: user_header.unwrap_or(usual.user_header),
                limits,
                listen: usual.listen,
            }
        }))
    }

    /// Returns the configuration; none if the API is off.
    pub(super) fn resolve(self) -> Option<ApiConfig> {
        self.0
    }
}

/// An address; none for `off`.
struct Endpoint(Option<Listen>);

/// Reports an address that other machines can reach, unless that is permitted and a proxy authenticates
/// users.
fn check_remote(
    listen: &Listen,
    is_insecure: bool,
    proxies: &[Proxy],
    (place, reporter): (&Span, &mut Reporter<'_>),
) {
    if !listen.is_remote() {
        return;
    }
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

/// The longest name of a host, as in DNS.
const HOST_NAME_BYTES: usize = 253;

fn names(section: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for (name, span) in section.strings("server_names", reporter).unwrap_or_default() {
        let is_name = !name.is_empty()
            && name.len() <= HOST_NAME_BYTES
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
            && !name.starts_with('.');
        if is_name {
            names.push(name.trim_end_matches('.').to_owned());
        } else {
            let message = "expected the name of a host without a port, such as \"meter.example.org\"";
            reporter.fault(&span, format_args!("`server_names` in [api]: {message}, found `{name}`"));
        }
    }
    names
}

fn proxies(section: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Vec<Proxy> {
    let mut proxies = Vec::new();
    for (text, span) in section.strings("trusted_proxies", reporter).unwrap_or_default() {
        match text.parse() {
            Ok(proxy) => proxies.push(proxy),
            Err(error) => reporter.fault(&span, format_args!("`trusted_proxies` in [api]: {error}")),
        }
    }
    proxies
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

fn limits(section: &mut Section<'_>, reporter: &mut Reporter<'_>) -> ApiLimits {
    let usual = ApiLimits::default();
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let readers = section.integer("readers", reporter, 1..=READERS_MAX);
    let query_timeout = section.parse("query_timeout", reporter, |text| duration_up_to(text, LONGEST));
    let requests = section.integer("user_requests", reporter, 1..=REQUESTS_MAX);
    let per_second = section.integer("user_requests_per_second", reporter, 1..=REQUESTS_MAX);
    let bytes = section.integer("user_bytes_per_second", reporter, BYTES_RANGE.0..=BYTES_RANGE.1);
    let streams = section.integer("streams", reporter, 1..=STREAMS_MAX);
    let user_streams = section.integer("user_streams", reporter, 1..=STREAMS_MAX);
    ApiLimits {
        readers: readers.map_or(usual.readers, size),
        query_timeout: query_timeout.unwrap_or(usual.query_timeout),
        user_requests: requests.map_or(usual.user_requests, size),
        user_requests_per_second: per_second
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(usual.user_requests_per_second),
        user_bytes_per_second: bytes.unwrap_or(usual.user_bytes_per_second),
        streams: streams.map_or(usual.streams, size),
        user_streams: user_streams.map_or(usual.user_streams, size),
        stream_stall: usual.stream_stall,
        stream_refresh: usual.stream_refresh,
    }
}
