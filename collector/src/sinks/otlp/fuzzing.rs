//! Access for `e2e/fuzz/`.

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use prost::Message;

use super::answer;
use super::messages::{ExportRequest, PointList};
use crate::sinks::outbound::{Response, WriteRequest};

/// Turns a body of remote_write 1.0 into a request, which must have the same number of samples.
pub fn examine(body: &[u8]) {
    let Ok(request) = WriteRequest::decode(body) else { return };
    let count = request.sample_count();
    let encoded = ExportRequest::from(request).encode_to_vec();
    let decoded = ExportRequest::decode(&encoded[..]).unwrap_or_default();
    let scopes = decoded.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
    let points = scopes.flat_map(|scope| scope.metrics).map(|metric| {
        let bytes = metric.gauge.or(metric.sum).unwrap_or_default();
        PointList::decode(bytes).unwrap_or_default().data_points.len() as u64
    });
    assert_eq!(points.sum::<u64>(), count);
}

/// Reads any bytes as the body of an answer.
pub fn read_answer(body: &[u8]) {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))]);
    for status in [200, 400] {
        let statement = answer::read(Response { status, headers: &headers, body });
        // A byte that is no text becomes a mark of three.
        assert!(statement.text.len() <= 3 * body.len());
    }
}
