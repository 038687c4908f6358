//! Section `[federation]`.

use polymeter_service::keys;
use polymeter_service::keys::Kind::Text;
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;

use super::value_parsers::absolute;
use crate::federation::{FederationConfig, PageAddress};

#[derive(Debug, Default)]
pub(super) struct Section {
    /// None for `off`.
    listen: Option<PageAddress>,
    token_file: Option<std::path::PathBuf>,
}

keys! {
    /// The keys of the section.
    pub(super) const KEYS: Section = |section, value|

    /// The Unix socket, such as "/run/polymeter/federate.sock", which only root and the collector's user can
    /// read, or ADDRESS:PORT of this machine with token_file, or "off".
    "listen": Text("string"), Usual("off") => listen = value.parse(page_address);

    /// A private file with the token that readers present (Authorization: Bearer TOKEN). Who knows it reads
    /// the values of all jobs.
    "token_file": Text("path"), Example("/etc/polymeter/federate.token")
        => token_file = value.parse(|text| absolute(text).map(Some));
}

/// None for `off`.
fn page_address(text: &str) -> Result<Option<PageAddress>, String> {
    if text == "off" {
        return Ok(None);
    }
    if text.starts_with('/') {
        return absolute(text).map(|path| Some(PageAddress::Unix(path)));
    }
    let address = text.parse().map_err(|_invalid| {
        format!("invalid address `{text}`: expected /PATH of a socket, or ADDRESS:PORT, such as \"127.0.0.1:9719\"")
    })?;
    Ok(Some(PageAddress::Tcp(address)))
}

/// The page is off without an address. Values that would let others read what is not theirs are faults.
pub(super) fn take(mut value: Value<'_, '_, '_>) -> Option<FederationConfig> {
    let table = value.table()?;
    let place = table.span("listen");
    let mut section = Section::default();
    keys::read(KEYS, &mut section, table, value.reporter);
    let listen = section.listen?;
    if let (Some(place), PageAddress::Tcp(address)) = (place, &listen) {
        if !address.ip().is_loopback() {
            let message = "other machines can reach this address, and nothing is encrypted; use a Unix socket \
                or 127.0.0.1 behind a proxy with TLS";
            value.reporter.fault(&place, format_args!("`listen` in [federation]: {message}"));
        }
        if section.token_file.is_none() {
            let message = "every user of this machine can reach this address; set `token_file`, or listen on a \
                Unix socket";
            value.reporter.fault(&place, format_args!("`listen` in [federation]: {message}"));
        }
    }
    Some(FederationConfig { listen, token_file: section.token_file })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check;
    use super::super::outbound::tests;
    use super::*;

    fn resolved(keys: &str) -> Option<FederationConfig> {
        tests::resolved(&format!("[federation]\n{keys}")).federation
    }

    #[test]
    fn the_page_is_off_or_private() {
        assert_eq!((resolved(""), resolved("listen = 'off'\n")), (None, None));
        let unix = FederationConfig { listen: PageAddress::Unix("/run/f".into()), token_file: None };
        assert_eq!(resolved("listen = '/run/f'\n"), Some(unix));
        let tcp = resolved("listen = '[::1]:9719'\ntoken_file = '/t'\n").unwrap();
        assert_eq!((tcp.listen.to_string().as_str(), tcp.token_file), ("[::1]:9719", Some("/t".into())));
        for (keys, parts) in [
            ("listen = '0.0.0.0:9719'\n", ["behind a proxy with TLS", "set `token_file`"]),
            ("listen = '127.0.0.1:9719'\n", ["every user of this machine", "set `token_file`"]),
            ("listen = 'here'\ntoken_fil = 1\n", ["ADDRESS:PORT", "did you mean `token_file`?"]),
        ] {
            let faults = check(Path::new("collector.toml"), &format!("[federation]\n{keys}")).to_string();
            assert!(parts.iter().all(|part| faults.contains(part)), "{faults}");
        }
    }
}
