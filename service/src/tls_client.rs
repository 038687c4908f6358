//! TLS of clients: which servers they trust.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

/// Whom a client trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The authorities that the operating system trusts.
    System,
    /// The authorities in a PEM file.
    Authorities(PathBuf),
    /// The server with this certificate, whatever its name and validity.
    Certificate(Fingerprint),
}

/// SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the SHA-256 of a certificate: 64 hexadecimal digits, with or without colons")]
pub struct InvalidFingerprint;

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        let digits: Vec<char> = text.chars().filter(|c| *c != ':').collect();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(InvalidFingerprint);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            for digit in pair {
                let value = digit.to_digit(16).and_then(|value| u8::try_from(value).ok());
                *byte = (*byte << 4) | value.ok_or(InvalidFingerprint)?;
            }
        }
        Ok(Self(bytes))
    }
}

/// Why TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot {action} {}: {error}", path.display())]
    File {
        /// Verb and object.
        action: &'static str,
        path: PathBuf,
        error: Box<dyn Error + Send + Sync>,
    },
    #[error(
        "cannot verify the server: the operating system has no root certificates; install ca-certificates, or name a file of root certificates (sslrootcert, ca_file)"
    )]
    NoSystemRoots,
    #[error("cannot configure TLS: {0}")]
    Configuration(#[from] rustls::Error),
}

impl TlsError {
    fn file(action: &'static str, path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::File { action, path: path.to_owned(), error: error.into() }
    }
}

/// Configures a client that verifies its server. Reads the files, so that a renewed certificate counts at the
/// next connection.
pub fn configuration(trust: &Trust) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match trust {
        Trust::System => builder.with_root_certificates(roots(None)?),
        Trust::Authorities(path) => builder.with_root_certificates(roots(Some(path))?),
        Trust::Certificate(pinned) => {
            let verifier = Verifier { trust: *pinned, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// Reads root certificates: those of a file, or those that the operating system trusts.
pub fn roots(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let Some(path) = file else { return roots_of_system(system_roots(std::env::var_os("SSL_CERT_FILE"))) };
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = store.add(certificate);
        added.map_err(|error| TlsError::file("use the root certificate", path, error))?;
    }
    Ok(store)
}

/// Reads a file of certificates, of which there must be one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    const ACTION: &str = "read the certificate";
    let file = File::open(path).map_err(|error| TlsError::file(ACTION, path, error))?;
    let certificates: Vec<_> = CertificateDer::pem_reader_iter(file)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::file(ACTION, path, error))?;
    if certificates.is_empty() {
        return Err(TlsError::file(ACTION, path, "it contains no certificate in the PEM format"));
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

/// Returns the file of the certificates that the operating system trusts, or the one that `SSL_CERT_FILE`
/// names in its place, as OpenSSL does.
fn system_roots(named: Option<OsString>) -> Option<PathBuf> {
    let named = named.filter(|file| !file.is_empty()).map(PathBuf::from);
    named.or_else(|| SYSTEM_ROOTS.iter().map(PathBuf::from).find(|file| file.is_file()))
}

fn roots_of_system(file: Option<PathBuf>) -> Result<RootCertStore, TlsError> {
    let file = file.ok_or(TlsError::NoSystemRoots)?;
    let mut store = RootCertStore::empty();
    // Distributions also trust certificates that rustls does not understand.
    let (added, _) = store.add_parsable_certificates(certificates(&file)?);
    if added == 0 { Err(TlsError::NoSystemRoots) } else { Ok(store) }
}

/// What a server presents of itself.
#[derive(Debug)]
pub struct Presented<'a> {
    pub certificate: &'a CertificateDer<'a>,
    pub intermediates: &'a [CertificateDer<'a>],
    pub name: &'a ServerName<'a>,
    pub ocsp_response: &'a [u8],
    pub now: UnixTime,
}

/// Decision of a client whether it trusts a server.
pub trait TrustServer: fmt::Debug + Send + Sync {
    /// Fails for a server that is not trusted.
    fn check(&self, presented: &Presented<'_>) -> Result<(), rustls::Error>;
}

impl TrustServer for Fingerprint {
    fn check(&self, presented: &Presented<'_>) -> Result<(), rustls::Error> {
        let found: [u8; 32] = Sha256::digest(presented.certificate).into();
        if found == self.0 { Ok(()) } else { Err(CertificateError::ApplicationVerificationFailure.into()) }
    }
}

/// Verifier of servers by a decision of one's own. Signatures are verified in any case.
#[derive(Debug)]
pub struct Verifier<T> {
    pub trust: T,
    pub provider: Arc<CryptoProvider>,
}

impl<T: TrustServer> ServerCertVerifier for Verifier<T> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.trust.check(&Presented { certificate, intermediates, name, ocsp_response, now })?;
        Ok(ServerCertVerified::assertion())
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
    use std::fs;

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

    #[test]
    fn fingerprints_have_colons_or_none() {
        let plain = "0a".repeat(32);
        let colons = ["0A"; 32].join(":");
        assert_eq!(plain.parse::<Fingerprint>(), Ok(Fingerprint([10; 32])));
        assert_eq!(colons.parse(), plain.parse::<Fingerprint>());
        for wrong in ["", "0a", &"0g".repeat(32), &"0a".repeat(33), "äöüß"] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(InvalidFingerprint), "{wrong}");
        }
    }
}
