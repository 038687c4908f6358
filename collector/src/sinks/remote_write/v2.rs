//! Requests of remote_write 2.0.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;

use crate::sinks::outbound::{Label, SampleMessage, WriteRequest};

/// `io.prometheus.write.v2.Request`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RequestV2 {
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(super) symbols: Vec<Bytes>,
    #[prost(message, repeated, tag = "5")]
    pub(super) timeseries: Vec<TimeSeriesV2>,
}

/// `io.prometheus.write.v2.TimeSeries`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TimeSeriesV2 {
    /// Places of names and values in the table of symbols, in turns.
    #[prost(uint32, repeated, tag = "1")]
    pub(super) labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<SampleMessage>,
    #[prost(message, optional, tag = "5")]
    pub(super) metadata: Option<Metadata>,
}

/// `io.prometheus.write.v2.Metadata`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Metadata {
    #[prost(enumeration = "MetricType", tag = "1")]
    pub(super) r#type: i32,
}

/// `io.prometheus.write.v2.Metadata.MetricType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum MetricType {
    Unspecified = 0,
    Counter = 1,
    Gauge = 2,
    Info = 6,
}

impl From<WriteRequest> for RequestV2 {
    fn from(request: WriteRequest) -> Self {
        // The first symbol is the empty text.
        let mut symbols = vec![Bytes::new()];
        let mut known = HashMap::from([(Bytes::new(), 0)]);
        let mut timeseries = Vec::with_capacity(request.timeseries.len());
        for series in request.timeseries {
            let mut metric_type = MetricType::Gauge;
            let mut labels_refs = Vec::with_capacity(2 * series.labels.len());
            for Label { name, value } in series.labels {
                if &*name == b"__name__" {
                    metric_type = type_of(&value);
                }
                for text in [name, value] {
                    labels_refs.push(*known.entry(text).or_insert_with_key(|text| {
                        symbols.push(text.clone());
                        u32::try_from(symbols.len() - 1).unwrap_or(u32::MAX)
                    }));
                }
            }
            let metadata = Some(Metadata { r#type: metric_type.into() });
            timeseries.push(TimeSeriesV2 { labels_refs, samples: series.samples, metadata });
        }
        Self { symbols, timeseries }
    }
}

/// Type of a metric by the suffix of its name, which `names.rs` appends.
fn type_of(name: &[u8]) -> MetricType {
    if name.ends_with(b"_total") {
        MetricType::Counter
    } else if name.ends_with(b"_info") {
        MetricType::Info
    } else {
        MetricType::Gauge
    }
}
