//! Connections of HTTP/1.1 to servers that may be slow, endless or malicious.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Longest head of an answer, and what is read of a body at a time. An agent keeps a connection to each of a
/// thousand exporters.
const BUFFER_BYTES: usize = 16 * 1024;

/// Why there is no answer. Contains no secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(pub String);

impl NoAnswer {
    pub fn because(cause: impl Into<String>) -> Self {
        Self(cause.into())
    }
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<hyper::Error> for NoAnswer {
    fn from(error: hyper::Error) -> Self {
        Self(crate::log::chain(&error))
    }
}

/// Begins HTTP over a connection to `host`, with TLS if it is configured. It ends with the sender.
pub async fn begin(
    stream: TcpStream,
    host: &str,
    tls: Option<Arc<ClientConfig>>,
) -> Result<SendRequest<Full<Bytes>>, NoAnswer> {
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return handshake(stream).await };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_invalid| NoAnswer::because("the host of `url` is no name of a server"))?;
    handshake(TlsConnector::from(tls).connect(name, stream).await?).await
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, NoAnswer> {
    let mut settings = http1::Builder::new();
    let (sender, connection) = settings.max_buf_size(BUFFER_BYTES).handshake(TokioIo::new(stream)).await?;
    // Its errors are those of requests.
    drop(tokio::spawn(connection));
    Ok(sender)
}

/// Reads a body of at most `limit_bytes`.
pub async fn body(incoming: Incoming, limit_bytes: usize) -> Result<Bytes, NoAnswer> {
    match Limited::new(incoming, limit_bytes).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(NoAnswer(format!("incomplete answer: {error}"))),
    }
}
