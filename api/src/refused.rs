//! The answer to a connection that is refused before its first request.

use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::limits;
use crate::problem::Problem;

/// Answers a connection of a user who has too many, and closes it. What the client sends is discarded for a
/// short time: a client that still writes would not read the answer otherwise.
pub(crate) async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let limit = limits::CONNECTIONS_PER_USER;
    let detail = format!("this user already has {limit} connections; close some of them, or try again later");
    let response = Problem::busy(StatusCode::SERVICE_UNAVAILABLE, detail, 1).last_answer();
    let answer = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(limits::HEAD_BYTES as u64), &mut tokio::io::sink()).await
    };
    // A client that is gone needs no answer.
    timeout(limits::REFUSAL_TIMEOUT, answer).await.ok();
}
