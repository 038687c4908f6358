//! TLS: the verification of the server, and the certificate of the client.

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
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
    let verifier = Verifier::new(settings, is_used, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingsError::Invalid(format!("cannot configure TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    match settings.client.as_ref().filter(|_| is_used) {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
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

/// Returns the configuration of a client that verifies its server's certificate and name, with the roots of a
/// file, or those that the operating system trusts. Reads the files, so that a renewed certificate counts at
/// the next connection.
pub fn verified_tls(roots: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let root = Some(roots.map_or(Root::System, |path| Root::File(path.to_owned())));
    configuration(&TlsSettings { mode: TlsMode::VerifyFull, root, client: None })
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    const ACTION: &str = "read the certificate";
    let file = File::open(path).map_err(|error| SettingsError::file(ACTION, path, error))?;
    let certificates: Vec<_> = CertificateDer::pem_reader_iter(file)
        .collect::<Result<_, _>>()
        .map_err(|error| SettingsError::file(ACTION, path, error))?;
    if certificates.is_empty() {
        return Err(SettingsError::file(ACTION, path, "it contains no certificate in the PEM format"));
    }
    Ok(certificates)
}

/// Files of the certificates that distributions trust: Debian, Arch and NixOS; Fedora and RHEL; SUSE; Alpine.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

const NO_SYSTEM_ROOTS: &str = "cannot verify the server: the operating system has no root certificates; install \
     ca-certificates, or name a file of root certificates (sslrootcert, ca_file)";

/// Returns the file of the certificates that the operating system trusts, or the one that `SSL_CERT_FILE`
/// names in its place, as OpenSSL does.
fn system_roots(named: Option<OsString>) -> Option<PathBuf> {
    let named = named.filter(|file| !file.is_empty()).map(PathBuf::from);
    named.or_else(|| SYSTEM_ROOTS.iter().map(PathBuf::from).find(|file| file.is_file()))
}

fn roots_of_system(file: Option<PathBuf>) -> Result<RootCertStore, SettingsError> {
    let file = file.ok_or_else(|| SettingsError::invalid(NO_SYSTEM_ROOTS))?;
    let mut store = RootCertStore::empty();
    // Distributions also trust certificates that rustls does not understand.
    let (added, _) = store.add_parsable_certificates(certificates(&file)?);
    if added == 0 { Err(SettingsError::invalid(NO_SYSTEM_ROOTS)) } else { Ok(store) }
}

fn root_store(root: &Root) -> Result<RootCertStore, SettingsError> {
    let mut store = RootCertStore::empty();
    match root {
        Root::File(path) => {
            for certificate in certificates(path)? {
                let added = store.add(certificate);
                added.map_err(|error| SettingsError::file("use the root certificate", path, error))?;
            }
        }
        Root::System => return roots_of_system(system_roots(std::env::var_os("SSL_CERT_FILE"))),
    }
    Ok(store)
}

/// Verifier of the server's certificate, as strict as the mode asks.
#[derive(Debug)]
struct Verifier {
    /// Verification against the roots; none if any certificate is accepted.
    roots: Option<Arc<WebPkiServerVerifier>>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
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
                    Arc::new(root_store(root)?),
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
        let checks_name = settings.mode == TlsMode::VerifyFull;
        Ok(Self { roots, checks_name, provider: Arc::clone(provider) })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        match roots.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            // The name is verified last, so that everything else is right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_replaces_the_roots_of_the_system() {
        assert_eq!(system_roots(Some("/site/roots.pem".into())), Some("/site/roots.pem".into()));
        let of_system = system_roots(None);
        assert_eq!(system_roots(Some(OsString::new())), of_system);
        assert!(
            of_system
                .is_none_or(|file| file.is_file() && SYSTEM_ROOTS.iter().any(|root| file == Path::new(root)))
        );
    }

    #[test]
    fn a_system_without_usable_roots_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("roots.pem");
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (text, reason) in [("", "no certificate"), (damaged, "no root certificates")] {
            fs::write(&file, text).unwrap();
            let error = roots_of_system(Some(file.clone())).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let error = roots_of_system(None).unwrap_err().to_string();
        assert!(error.contains("install ca-certificates"), "{error}");
    }
}
