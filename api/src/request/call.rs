//! One request, after it was authenticated and parsed, and the means to answer it.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use polymeter_proto::control::{CollectorAnswer, JobAnswer};
use polymeter_service::api_token::ApiToken;
use polymeter_store::reader::{Access, Read};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::arguments::Arguments;
use crate::access::{Permit, Principal};
use crate::answer::{
    ChunkEncoder, ChunkReceiver, Chunks, Failure, Format, KeptCores, Problem, RecentAnswers,
    compressed_answer, json_response,
};
use crate::limits::{self, ApiLimits};
use crate::links::{ControlRequest, Links};
use crate::readers::{Readers, Running};

const GZIP: HeaderValue = HeaderValue::from_static("gzip");

#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) links: Links,
    pub(crate) readers: Readers,
    pub(crate) recent: RecentAnswers,
    pub(crate) cores: KeptCores,
    pub(crate) limits: ApiLimits,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) services: Arc<Services>,
    pub(crate) principal: Principal,
    /// Names the user, if there is one.
    pub(crate) token: Option<ApiToken>,
    pub(crate) arguments: Arguments,
    pub(crate) format: Format,
    pub(crate) is_compressed: bool,
    pub(crate) body: Bytes,
    /// Held until the answer is sent.
    pub(crate) permit: Permit,
    pub(crate) close: Arc<Notify>,
}

struct Sending {
    chunks: ChunkReceiver,
    running: Option<Running<()>>,
    permit: Permit,
}

impl Call {
    /// Answers with what `work` writes while it reads the store, in the format that the client chose.
    pub(crate) async fn stream(
        self,
        work: impl FnOnce(&mut dyn Read, Access, &mut Chunks) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Response, Problem> {
        let Self { services, principal, format, is_compressed, permit, close, .. } = self;
        let is_compressed = is_compressed && matches!(format, Format::Json | Format::Csv);
        let (mut writer, mut chunks) = Chunks::new(format, is_compressed.then(ChunkEncoder::new), close);
        let started = services.readers.start(principal, move |reader, access| {
            work(reader, access, &mut writer)?;
            writer.finish()
        });
        let mut running = started.await?;
        if (&mut chunks.started).await.is_err() {
            // It ended before anything was sent, so that the status is free.
            running.result().await?;
        }
        let sending = Sending { chunks, running: Some(running), permit };
        let body = Body::from_stream(futures_util::stream::unfold(sending, next_chunk));
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, format.content_type());
        if is_compressed {
            response.headers_mut().insert(header::CONTENT_ENCODING, GZIP);
        }
        Ok(response)
    }

    /// Answers with the value that `work` computes from the store.
    pub(crate) async fn object(
        self,
        work: impl FnOnce(&mut dyn Read, Access) -> Result<Value, Failure> + Send + 'static,
    ) -> Result<Response, Problem> {
        let value = self.services.readers.read(self.principal, work).await?;
        Ok(self.reply(value.to_string()))
    }

    pub(crate) fn reply(&self, text: String) -> Response {
        let Some(compressed) = self.is_compressed.then(|| compressed_answer(&text)).flatten() else {
            self.permit.charge(text.len());
            return json_response(text);
        };
        self.permit.charge(compressed.len());
        let mut response = json_response(compressed);
        response.headers_mut().insert(header::CONTENT_ENCODING, GZIP);
        response
    }

    /// Sends a request about a running job to its agents, through the coordinator and with the rights of the
    /// user.
    pub(crate) async fn ask_agents(
        &self,
        job_id: &str,
        verb: &str,
        mut fields: Map<String, Value>,
    ) -> Result<JobAnswer, Problem> {
        fields.insert("verb".to_owned(), json!(verb));
        fields.insert("job".to_owned(), json!(job_id));
        let (reply, answer) = oneshot::channel();
        let line = Value::Object(fields).to_string().into_bytes();
        let request = ControlRequest { uid: self.principal.uid, line, reply };
        let busy = || Problem::busy("the coordinator is busy; try again in a moment", 1);
        self.services.links.control.try_send(request).map_err(|_full| busy())?;
        let answer = timeout(limits::CONTROL_TIMEOUT, answer).await.ok().and_then(Result::ok);
        match answer.ok_or_else(busy)? {
            CollectorAnswer::Nodes(answer) => Ok(answer),
            CollectorAnswer::Refused(refusal) => Err(refusal.into()),
            // These answer other verbs.
            CollectorAnswer::Done {}
            | CollectorAnswer::Reading(_)
            | CollectorAnswer::Tokens(_)
            | CollectorAnswer::NoticeChoices(_) => Err(Problem::internal()),
        }
    }
}

/// An error ends the connection, so that the client notices that the answer is incomplete.
async fn next_chunk(mut sending: Sending) -> Option<(Result<Bytes, std::io::Error>, Sending)> {
    if let Some(chunk) = sending.chunks.next().await {
        sending.permit.charge(chunk.len());
        return Some((Ok(chunk), sending));
    }
    let mut running = sending.running.take()?;
    running.result().await.err().map(|_problem| (Err(std::io::ErrorKind::BrokenPipe.into()), sending))
}
