//! One request, after it was authenticated and parsed, and the means to answer it.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use polymeter_proto::control::CollectorAnswer;
use polymeter_service::api_token::ApiToken;
use polymeter_store::reader::{Access, Read};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::arguments::Arguments;
use crate::body::{ChunkReceiver, Chunks, Failure};
use crate::format::Format;
use crate::limits::{self, ApiLimits};
use crate::links::{ControlRequest, Links};
use crate::principal::Principal;
use crate::problem::Problem;
use crate::quota::Permit;
use crate::readers::{Readers, Running};
use crate::readiness::Readiness;
use crate::recent::RecentAnswers;

/// The parts of the API that endpoints use.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) links: Links,
    pub(crate) readers: Readers,
    pub(crate) readiness: Readiness,
    pub(crate) recent: RecentAnswers,
    pub(crate) limits: ApiLimits,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) services: Arc<Services>,
    pub(crate) principal: Principal,
    /// The token that names the user, if there is one.
    pub(crate) token: Option<ApiToken>,
    pub(crate) arguments: Arguments,
    pub(crate) format: Format,
    /// The body of a request that changes something.
    pub(crate) body: Bytes,
    /// The place of the request, which is held until the answer is sent.
    pub(crate) permit: Permit,
    /// Closes the connection of a client that does not read.
    pub(crate) close: Arc<Notify>,
}

/// A body that is being sent.
struct Sending {
    chunks: ChunkReceiver,
    running: Option<Running<()>>,
    permit: Permit,
}

impl Call {
    /// Returns the answer that `work` writes, while it reads the store, in the format that the client chose.
    pub(crate) async fn stream(
        self,
        work: impl FnOnce(&mut dyn Read, Access, &mut Chunks) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Response, Problem> {
        let Self { services, principal, format, permit, close, .. } = self;
        let (mut writer, mut chunks) = Chunks::new(close);
        let write = move |reader: &mut dyn Read, access: Access| {
            work(reader, access, &mut writer)?;
            writer.flush()
        };
        let mut running = services.readers.start(principal, write).await?;
        if (&mut chunks.started).await.is_err() {
            // It ended before anything was sent, so that the status is free.
            running.result().await?;
        }
        let sending = Sending { chunks, running: Some(running), permit };
        let body = Body::from_stream(futures_util::stream::unfold(sending, next_chunk));
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, format.content_type());
        Ok(response)
    }

    /// Returns the value that `work` computes from the store.
    pub(crate) async fn object(
        self,
        work: impl FnOnce(&mut dyn Read, Access) -> Result<Value, Failure> + Send + 'static,
    ) -> Result<Response, Problem> {
        let value = self.services.readers.read(self.principal, work).await?;
        let text = value.to_string();
        self.permit.charge(text.len());
        Ok(json(text))
    }

    /// Sends a request to the coordinator, with the rights of the user.
    pub(crate) async fn control(&self, line: Vec<u8>) -> Result<CollectorAnswer, Problem> {
        let (reply, answer) = oneshot::channel();
        let request = ControlRequest { uid: self.principal.uid, line, reply };
        let busy = || {
            Problem::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "the coordinator is busy; try again in a moment",
                1,
            )
        };
        self.services.links.control.try_send(request).map_err(|_full| busy())?;
        timeout(limits::CONTROL_TIMEOUT, answer).await.ok().and_then(Result::ok).ok_or_else(busy)
    }
}

/// Returns a response with a JSON text.
pub(crate) fn json(text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the next chunk of a body. An error ends the connection, so that the client notices that the answer
/// is incomplete.
async fn next_chunk(mut sending: Sending) -> Option<(Result<Bytes, std::io::Error>, Sending)> {
    if let Some(chunk) = sending.chunks.next().await {
        sending.permit.charge(chunk.len());
        return Some((Ok(chunk), sending));
    }
    let mut running = sending.running.take()?;
    running.result().await.err().map(|_problem| (Err(std::io::ErrorKind::BrokenPipe.into()), sending))
}
