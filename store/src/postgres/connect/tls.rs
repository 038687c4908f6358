//! TLS: the verification of the server, and the certificate of the client.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use polymeter_service::tls_client::{self, Presented, TrustServer, Verifier};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::SettingsError;
use super::password_file::check_permissions;
use crate::StoreError;

/// Requirement of a connection, as in libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsMode {
    Disable,
    /// Encryption if the server offers it. Protects from nothing but a passive listener.
    Prefer,
    /// Encryption. The server is not verified, unless there is a root certificate.
    Require,
    VerifyCa,
    /// Encryption, and a certificate that a root signed for this host name.
    VerifyFull,
}

impl FromStr for TlsMode {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        match text {
            "disable" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            _ => Err(SettingsError::Invalid(format!(
                "unknown sslmode `{}`: expected `disable`, `prefer`, `require`, `verify-ca` or `verify-full`",
                text.escape_debug()
            ))),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Root {
    File(PathBuf),
    System,
}

impl Root {
    fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::System => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TlsSettings {
    pub(super) mode: TlsMode,
    pub(super) root: Option<Root>,
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

/// Returns the connector for `settings`. Reads the files of certificates, so that a renewed certificate
/// counts at the next connection.
pub(super) fn connector(settings: &TlsSettings) -> Result<MakeRustlsConnect, StoreError> {
    Ok(MakeRustlsConnect::new(configuration(settings)?))
}

fn configuration(settings: &TlsSettings) -> Result<ClientConfig, SettingsError> {
    let provider = Arc::new(ring::default_provider());
    // Without TLS no file is read.
    let is_used = settings.mode != TlsMode::Disable;
    let trust = ModeTrust::new(settings, is_used, &provider)?;
    let verifier = Verifier { trust, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingsError::Invalid(format!("cannot configure TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    match settings.client.as_ref().filter(|_| is_used) {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let chain = tls_client::certificates(certificate)?;
            let metadata = fs::metadata(key).map_err(|error| unusable_key(key, error))?;
            check_permissions(key, &metadata)?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable_key(key, error))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| unusable_key(key, error))
        }
    }
}

fn unusable_key(path: &Path, error: impl Error + Send + Sync + 'static) -> SettingsError {
    SettingsError::file("use the client key", path, error)
}

/// Trust in the server, as strict as the mode asks.
#[derive(Debug)]
struct ModeTrust {
    /// Verification against the roots; none if any certificate is accepted.
    roots: Option<Arc<WebPkiServerVerifier>>,
    checks_name: bool,
}

impl ModeTrust {
    fn new(
        settings: &TlsSettings,
        is_used: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, SettingsError> {
        // As in libpq, `require` verifies against a root certificate if there is one.
        let verifies = is_used && settings.mode != TlsMode::Prefer;
        let roots = match settings.root.as_ref().filter(|_| verifies) {
            None => None,
            Some(root) => Some(
                WebPkiServerVerifier::builder_with_provider(
                    Arc::new(tls_client::roots(root.file())?),
                    Arc::clone(provider),
                )
                .build()
                .map_err(|error| {
                    SettingsError::Invalid(format!(
                        "cannot use the root certificates: {error}; check that the file has PEM certificates"
                    ))
                })?,
            ),
        };
        Ok(Self { roots, checks_name: settings.mode == TlsMode::VerifyFull })
    }
}

impl TrustServer for ModeTrust {
    fn check(&self, presented: &Presented<'_>) -> Result<(), rustls::Error> {
        let Some(roots) = &self.roots else { return Ok(()) };
        let &Presented { certificate, intermediates, name, ocsp_response, now } = presented;
        match roots.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            // The name is verified last, so that everything else is right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(()),
            verified => verified.map(drop),
        }
    }
}
