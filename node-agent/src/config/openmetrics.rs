//! Section `[openmetrics]`: the page of metrics.

use std::net::SocketAddr;
use std::path::PathBuf;

use polymeter_proto::name::Selector;
use polymeter_service::keys;
use polymeter_service::keys::Kind::{Text, Texts};
use polymeter_service::keys::Stated::{Example, Usual};
use polymeter_service::keys::Value;

use super::value_parsers::{InvalidValue, absolute};

/// Address of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageAddress {
    /// Unix socket of the agent's user.
    Unix(PathBuf),
    Tcp(SocketAddr),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenMetricsConfig {
    /// None for no page.
    pub listen: Option<PageAddress>,
    /// Readers that present the token in it also get the values of jobs.
    pub token_file: Option<PathBuf>,
    pub certificate_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// Metrics on the page; all if empty.
    pub metrics: Vec<Selector>,
}

keys! {
    /// The keys of the section.
    pub(super) const KEYS: OpenMetricsConfig = |page, value|

    /// The Unix socket, such as "/run/polymeter/metrics.sock", which only root and the agent's user can
    /// read, or ADDRESS:PORT, or "off". Without token_file, an address of this machine has the values of the
    /// node alone. Others can be reached only with token_file, certificate_file and key_file.
    "listen": Text("string"), Usual("off") => listen = value.parse(page_address);

    /// A private file with the token that readers present (Authorization: Bearer TOKEN). Who knows it reads
    /// the values of all jobs.
    "token_file": Text("path"), Example("/etc/polymeter/metrics.token")
        => token_file = value.parse(|text| absolute(text).map(Some));

    /// The certificate of the page and its private key, in PEM.
    "certificate_file": Text("path"), Example("/etc/polymeter/metrics.crt")
        => certificate_file = value.parse(|text| absolute(text).map(Some));
    "key_file": Text("path"), Example("/etc/polymeter/metrics.pem")
        => key_file = value.parse(|text| absolute(text).map(Some));

    /// The metrics on the page.
    "metrics": Texts, Usual(r#"["*"]"#) => metrics = value.list(str::parse);
}

fn page_address(text: &str) -> Result<Option<PageAddress>, InvalidValue> {
    if text == "off" {
        return Ok(None);
    }
    if text.starts_with('/') {
        return absolute(text).map(|path| Some(PageAddress::Unix(path)));
    }
    let address = text.parse().map_err(|_invalid| InvalidValue::PageAddress(text.to_owned()))?;
    Ok(Some(PageAddress::Tcp(address)))
}

/// Takes the section. Values that would let others read what is not theirs are faults.
pub(super) fn take(mut value: Value<'_, '_, '_>) -> Option<OpenMetricsConfig> {
    let section = value.table()?;
    let (listen, certificate) = (section.span("listen"), section.span("certificate_file"));
    let key = section.span("key_file");
    let mut page = OpenMetricsConfig { metrics: every_metric(), ..OpenMetricsConfig::default() };
    keys::read(KEYS, &mut page, section, value.reporter);
    if let Some(place) = certificate.xor(key) {
        let message = "`certificate_file` and `key_file` in [openmetrics]: one requires the other; set both";
        value.reporter.fault(&place, format_args!("{message}"));
    }
    if let (Some(place), Some(PageAddress::Tcp(address))) = (listen, &page.listen)
        && !address.ip().is_loopback()
    {
        let lacks = [
            (page.token_file.is_none(), "`token_file`"),
            (page.certificate_file.is_none(), "`certificate_file` and `key_file`"),
        ];
        for (_, key) in lacks.into_iter().filter(|(lacks, _)| *lacks) {
            value.reporter.fault(
                &place,
                format_args!(
                    "`listen` in [openmetrics]: other machines can reach {address}; set {key}, or listen on a \
                     Unix socket or 127.0.0.1"
                ),
            );
        }
    }
    Some(page)
}

pub(super) fn every_metric() -> Vec<Selector> {
    "*".parse().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::model::AgentConfig;
    use super::*;

    fn parse(keys: &str) -> Result<OpenMetricsConfig, String> {
        let config = AgentConfig::parse(Path::new("a"), &format!("[openmetrics]\n{keys}"));
        config.map(|config| config.openmetrics).map_err(|faults| faults.to_string())
    }

    #[test]
    fn the_page_is_off_and_has_all_metrics() {
        let page = AgentConfig::standard().openmetrics;
        assert_eq!((page.listen, page.token_file), (None, None));
        assert!(page.metrics.iter().all(|selector| selector.matches("cpu.usage")));
        assert_eq!(parse("listen = '/run/m'\n").unwrap().listen, Some(PageAddress::Unix("/run/m".into())));
        let page = parse("listen = '[::1]:9100'\nmetrics = ['cpu.*']\n").unwrap();
        assert!(page.listen.is_some() && !page.metrics.iter().any(|selector| selector.matches("x")));
    }

    #[test]
    fn others_need_a_token_and_encryption() {
        let tls = "certificate_file = '/c'\nkey_file = '/k'\n";
        assert!(parse(&format!("listen = '10.0.0.1:9100'\ntoken_file = '/t'\n{tls}")).is_ok());
        for (keys, messages) in [
            ("listen = '0.0.0.0:9100'\n".to_owned(), ["set `token_file`", "set `certificate_file`"]),
            (format!("listen = '[::]:9100'\n{tls}"), ["set `token_file`", "127.0.0.1"]),
            ("listen = '10.0.0.1:1'\ntoken_file = '/t'\n".to_owned(), ["set `certificate_file`", "a:2"]),
            ("listen = '127.0.0.1:1'\nkey_file = '/k'\n".to_owned(), ["set both", "a:3"]),
            ("listen = 'here'\n".to_owned(), ["ADDRESS:PORT", "`here`"]),
        ] {
            let faults = parse(&keys).unwrap_err();
            assert!(messages.iter().all(|message| faults.contains(message)), "{faults}");
        }
    }
}
