//! Names by which clients address the API.
//!
//! A site can let its own name resolve to an address of the user's machine or network (DNS rebinding), such
//! as that of a forwarded port. To a browser, its pages and the API then have the same origin. Their requests
//! have the site's name in `Host`, and are refused. An address or `localhost` does not come from the name
//! service, so that no site can use it as its name.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};

use crate::answer::Problem;

/// Names by which clients may address the API, besides addresses and `localhost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.to_vec())
    }

    /// Refuses a request that is addressed to another name. A trusted proxy may use any name unless names are
    /// configured. A request without a name is no browser's.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap, is_proxy: bool) -> Result<(), Problem> {
        if is_proxy && self.0.is_empty() {
            return Ok(());
        }
        let mut values = headers.get_all(header::HOST).iter();
        let (first, second) = (values.next(), values.next());
        if second.is_some() {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "malformed", "more than one header Host"));
        }
        // The address of the request itself comes before the header (RFC 9112, 3.2.2).
        let stated = uri.authority().map(Authority::as_str);
        let stated = stated.or_else(|| first.map(|value| value.to_str().unwrap_or_default()));
        if stated.is_none_or(|authority| self.permits(authority)) {
            return Ok(());
        }
        let detail = "the API does not answer to the name in `Host`: use an address or `localhost`, or add the name to `server_names` in [api]";
        Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", detail))
    }

    /// Permits an address, `localhost` or a configured name, with or without a port.
    fn permits(&self, authority: &str) -> bool {
        let Ok(parsed) = authority.parse::<Authority>() else { return false };
        let host = parsed.host();
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if authority.contains('@') {
            return false;
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        let is_name = |known: &str| known.eq_ignore_ascii_case(name);
        address.parse::<IpAddr>().is_ok() || is_name("localhost") || self.0.iter().any(|known| is_name(known))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn status(hosts: &Hosts, uri: &str, named: &[&'static str], is_proxy: bool) -> u16 {
        let mut headers = HeaderMap::new();
        for name in named {
            headers.append(header::HOST, HeaderValue::from_static(name));
        }
        let checked = hosts.check(&uri.parse().unwrap(), &headers, is_proxy);
        checked.map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    #[test]
    fn names_of_other_sites_are_refused() {
        let hosts = Hosts::new(&["meter.example".to_owned()]);
        for host in [
            "127.0.0.1",
            "127.0.0.1:7719",
            "[::1]:7719",
            "192.0.2.7",
            "localhost",
            "localhost:7719",
            "LOCALHOST.",
            "meter.example",
            "Meter.Example:8443",
            "meter.example.",
        ] {
            assert_eq!(status(&hosts, "/", &[host], false), 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7719",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "meter.example.evil.example",
            "x.meter.example",
            "evil@localhost",
            "[::1",
            "2130706433",
            "",
            "a b",
        ] {
            assert_eq!(status(&hosts, "/", &[host], false), 421, "{host}");
            assert_eq!(status(&hosts, "/", &[host], true), 421, "a proxy, {host}");
        }
    }

    #[test]
    fn the_address_of_the_request_comes_first_and_one_name_is_expected() {
        let hosts = Hosts::new(&[]);
        assert_eq!(status(&hosts, "http://evil.example/api/v1/jobs", &["localhost"], false), 421);
        assert_eq!(status(&hosts, "http://localhost/api/v1/jobs", &["evil.example"], false), 200);
        assert_eq!(status(&hosts, "/", &["localhost", "evil.example"], false), 400);
        assert_eq!(status(&hosts, "/", &[], false), 200, "no browser");
        assert_eq!(status(&hosts, "/", &["meter.example"], true), 200, "a proxy serves its own names");
    }
}
