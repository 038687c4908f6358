//! Values of a running job, as a stream of events.

mod snapshot;
mod stream;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream::unfold;
use serde_json::json;
use tokio::sync::mpsc;

use self::snapshot::Snapshot;
use self::stream::Stream;
use super::parameters::{KEY, METRIC, NODE, SERIES_IDS, key, series_filter};
use crate::answer::{Format, Problem};
use crate::limits;
use crate::live::FeedRequest;
use crate::request::{Call, Endpoint, Kind, Parameter};

const PER_SECOND: Parameter = Parameter::query(
    "per_second",
    Kind::Integer(1, limits::STREAM_RATE),
    "Points a second and series, at most; counters are rates then. Without it, all values as they are stored.",
);

const SECONDS: Parameter = Parameter::query(
    "seconds",
    Kind::Integer(1, limits::STREAM_SECONDS),
    "The length of the stream, in seconds; without it, the maximum.",
);

pub(super) static LIVE: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/live",
    id: "live",
    summary: "The values of a running job as they are committed, as server-sent events. 204 if the job has ended.",
    parameters: &[KEY, METRIC, NODE, SERIES_IDS, PER_SECOND, SECONDS],
    formats: &[Format::Events],
    answer: || json!({"type": "string"}),
    body: None,
    handler: |call| Box::pin(begin(call)),
};

async fn begin(call: Call) -> Result<Response, Problem> {
    let Call { services, principal, token, arguments, format, permit, close, .. } = call;
    let request = FeedRequest {
        job_key: key(&arguments),
        filter: series_filter(&arguments),
        per_second: arguments.integer(PER_SECOND.name),
    };
    let seconds = arguments.integer(SECONDS.name).unwrap_or(limits::STREAM_SECONDS);
    let permit = Arc::new(permit.into_stream()?);
    let live = services.links.live.clone();
    let of_feed = request.clone();
    let read = services.readers.read(principal, move |reader, _| Snapshot::begin(reader, &live, of_feed));
    let Some((snapshot, subscription)) = read.await? else {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    };
    let (sender, chunks) = mpsc::channel(1);
    let lifetime = Duration::from_secs(seconds.unsigned_abs());
    let of_task = Arc::clone(&permit);
    let stream = Stream { services, principal, token, permit: of_task, close, request, subscription, sender };
    tokio::spawn(stream.run(snapshot, lifetime));
    let body = unfold((chunks, permit), async |(mut chunks, permit)| {
        let chunk = mpsc::Receiver::recv(&mut chunks).await?;
        Some((Ok::<_, Infallible>(chunk), (chunks, permit)))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, format.content_type());
    // nginx would keep events until it has a whole buffer of them.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}
