//! Sink that sends samples by remote_write, the protocol by which Prometheus, VictoriaMetrics, Mimir and
//! Thanos accept them.
//!
//! Requests are spooled as 1.0. A receiver of 2.0 gets the same series with a table of symbols, in which each
//! name and value of a label occurs once.

#[cfg(test)]
pub(super) mod tests;
mod v2;

use bytes::Bytes;
use polymeter_proto::exposition::{JOB_INFO, metric_name};
use prost::Message;

use self::v2::RequestV2;
use super::outbound::{
    Body, Count, Form, Named, Protocol, Response, Statement, WriteRequest, is_temporary, read, read_text,
};

/// 2.0 if the receiver accepts it, else 1.0.
pub static AUTO: Protocol = of_version("auto", &FORM_V2, Some(&FORM_V1));

pub static V1: Protocol = of_version("1.0", &FORM_V1, None);

pub static V2: Protocol = of_version("2.0", &FORM_V2, None);

const fn of_version(
    version: &'static str,
    form: &'static Form,
    fall_back: Option<&'static Form>,
) -> Protocol {
    Protocol {
        sink: "remote_write",
        version,
        spool: "/var/lib/polymeter/remote-write",
        names: prometheus_names,
        has_starts: false,
        form,
        fall_back,
    }
}

static FORM_V1: Form = Form {
    version: "1.0",
    headers: &[
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "0.1.0"),
    ],
    encode: as_spooled,
    read: read_answer,
    is_repeated: is_temporary,
};

static FORM_V2: Form = Form {
    version: "2.0",
    headers: &[
        ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "2.0.0"),
    ],
    encode: to_v2,
    read: read_answer,
    is_repeated: is_temporary,
};

pub(crate) fn protocol(version: &str) -> Result<&'static Protocol, String> {
    let found = [&AUTO, &V1, &V2].into_iter().find(|protocol| protocol.version == version);
    found.ok_or_else(|| format!("unknown protocol `{version}`: expected `auto`, `1.0` or `2.0`"))
}

/// Names in the data model of OpenMetrics.
pub(super) fn prometheus_names(named: Named<'_>) -> Vec<(&'static str, String)> {
    let name = match named {
        Named::Metric(metric, part) => metric_name(metric, part),
        Named::JobInfo => JOB_INFO.to_owned(),
    };
    vec![("__name__", name)]
}

#[expect(clippy::unnecessary_wraps, reason = "other forms find damage")]
fn as_spooled(payload: &Bytes) -> Option<Body> {
    Some(Body { bytes: payload.clone(), not_numbers: 0 })
}

fn to_v2(payload: &Bytes) -> Option<Body> {
    let request = RequestV2::from(read(payload)?);
    Some(snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).ok()?.into())
}

/// A receiver of 2.0 states how many samples it has written, also in a refusal.
fn read_answer(response: Response<'_>) -> Statement {
    let written = response.headers.get("x-prometheus-remote-write-samples-written");
    let written = written.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Statement { count: written.map_or(Count::Unstated, Count::Written), ..read_text(response) }
}

/// Turns a body of 1.0 into 2.0, which must have the same number of samples.
#[doc(hidden)]
pub fn examine(body: &[u8]) {
    let Ok(request) = WriteRequest::decode(body) else { return };
    let count = request.sample_count();
    let v2 = RequestV2::from(request).encode_to_vec();
    let v2 = RequestV2::decode(Bytes::from(v2)).unwrap_or_default();
    assert_eq!(v2.timeseries.iter().map(|series| series.samples.len() as u64).sum::<u64>(), count);
    let mut references = v2.timeseries.iter().flat_map(|series| &series.labels_refs);
    assert!(references.all(|reference| (*reference as usize) < v2.symbols.len()));
}
