//! Opening of the socket, and what its clients must present.

use std::fs::{self, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use polymeter_proto::key::KeyFileError;
use polymeter_service::bearer_token::BearerToken;
use polymeter_service::key_files::read_secret;
use polymeter_service::place;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{OpenMetricsConfig, PageAddress};

#[derive(Debug, thiserror::Error)]
pub enum EntranceError {
    #[error("cannot listen on {0}")]
    Listen(String, #[source] io::Error),
    #[error("cannot use `token_file`")]
    Token(#[source] KeyFileError),
    #[error("cannot use `key_file`")]
    Key(#[source] KeyFileError),
    #[error(
        "cannot use `certificate_file` {path} with `key_file`: {reason}; check that they are PEM and belong together"
    )]
    Certificate { path: String, reason: String },
}

#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Secrets of the page.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    pub(super) token: Option<BearerToken>,
    pub(super) tls: Option<TlsAcceptor>,
}

pub(crate) struct Entrance {
    pub(super) socket: Socket,
    pub(super) secrets: Secrets,
}

impl Entrance {
    /// Opens the socket of a configured page; none if it is off.
    pub(crate) fn open(config: &OpenMetricsConfig) -> Result<Option<Self>, EntranceError> {
        let Some(address) = &config.listen else { return Ok(None) };
        let secrets = read_secrets(config)?;
        let socket = match address {
            PageAddress::Unix(path) => open_unix(path)
                .map(Socket::Unix)
                .map_err(|error| EntranceError::Listen(path.display().to_string(), error))?,
            PageAddress::Tcp(address) => TcpListener::bind(address)
                .and_then(|listener| listener.set_nonblocking(true).map(|()| Socket::Tcp(listener)))
                .map_err(|error| EntranceError::Listen(address.to_string(), error))?,
        };
        Ok(Some(Self { socket, secrets }))
    }

    /// True if the file system, or a token, keeps the page from other users.
    pub(super) const fn is_private(&self) -> bool {
        matches!(self.socket, Socket::Unix(_)) || self.secrets.token.is_some()
    }
}

/// Replaces a socket without a listener, which a killed agent leaves.
fn open_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        place::make_directory(directory, 0o755)?;
    }
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another program already uses it"));
        }
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // The server also asks the kernel who has connected.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Reads the files of the configuration.
pub(crate) fn read_secrets(config: &OpenMetricsConfig) -> Result<Secrets, EntranceError> {
    let token =
        config.token_file.as_deref().map(BearerToken::read).transpose().map_err(EntranceError::Token)?;
    let files = config.certificate_file.as_deref().zip(config.key_file.as_deref());
    let tls = files.map(|(certificate, key)| acceptor(certificate, key)).transpose()?;
    Ok(Secrets { token, tls })
}

fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, EntranceError> {
    let secret = read_secret(key).map_err(EntranceError::Key)?;
    let unusable =
        |reason: String| EntranceError::Certificate { path: certificate.display().to_string(), reason };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(error.to_string()))?;
    let secret =
        PrivateKeyDer::from_pem_slice(secret.as_bytes()).map_err(|error| unusable(error.to_string()))?;
    let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
        .map_err(|error| unusable(error.to_string()))?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(tls)))
}
