//! Sink that sends samples as metrics of OpenTelemetry: OTLP by HTTP, in protobuf.
//!
//! A node is a resource, a counter a cumulative monotonic sum, and everything else a gauge.

mod answer;
#[doc(hidden)]
pub mod fuzzing;
mod messages;
mod names;
mod request;
#[cfg(test)]
mod tests;

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use self::messages::ExportRequest;
use super::outbound::{Body, Form, Protocol, read};

pub static GZIP: Protocol = compressed("gzip", &GZIP_FORM);

pub static PLAIN: Protocol = compressed("none", &PLAIN_FORM);

const fn compressed(version: &'static str, form: &'static Form) -> Protocol {
    Protocol {
        sink: "otlp",
        version,
        spool: "/var/lib/polymeter/otlp",
        names: names::names,
        has_starts: true,
        form,
        fall_back: None,
    }
}

const GZIP_FORM: Form = Form {
    version: "1",
    headers: &[("content-type", "application/x-protobuf"), ("content-encoding", "gzip")],
    encode: |payload| gzip(&encode(payload)?),
    read: answer::read,
    is_repeated,
};

const PLAIN_FORM: Form = Form {
    headers: &[("content-type", "application/x-protobuf")],
    encode: |payload| Some(encode(payload)?.into()),
    ..GZIP_FORM
};

pub(crate) fn protocol(compression: &str) -> Result<&'static Protocol, String> {
    let found = [&GZIP, &PLAIN].into_iter().find(|protocol| protocol.version == compression);
    found.ok_or_else(|| format!("unknown compression `{compression}`: expected `gzip` or `none`"))
}

/// The specification forbids to repeat others.
fn is_repeated(status: u16) -> bool {
    matches!(status, 429 | 502..=504)
}

fn encode(payload: &Bytes) -> Option<Vec<u8>> {
    Some(ExportRequest::from(read(payload)?).encode_to_vec())
}

fn gzip(body: &[u8]) -> Option<Body> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).ok()?;
    Some(encoder.finish().ok()?.into())
}
