//! Messages of both versions, with the fields that are sent.

use bytes::Bytes;
use prost::Message;

/// `prometheus.WriteRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) timeseries: Vec<TimeSeries>,
}

/// `prometheus.TimeSeries`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<SampleMessage>,
}

/// `prometheus.Label`. Texts are bytes: those of a decoded message are parts of its buffer.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Label {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

/// `Sample` of both versions. `fixed64` is encoded like `double`, and keeps the bits of a signalling NaN.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct SampleMessage {
    #[prost(fixed64, tag = "1")]
    pub(crate) value_bits: u64,
    #[prost(int64, tag = "2")]
    pub(crate) timestamp_ms: i64,
}

/// `io.prometheus.write.v2.Request`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RequestV2 {
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(crate) symbols: Vec<Bytes>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) timeseries: Vec<TimeSeriesV2>,
}

/// `io.prometheus.write.v2.TimeSeries`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TimeSeriesV2 {
    /// Places of names and values in the table of symbols, in turns.
    #[prost(uint32, repeated, tag = "1")]
    pub(crate) labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<SampleMessage>,
    #[prost(message, optional, tag = "5")]
    pub(crate) metadata: Option<Metadata>,
}

/// `io.prometheus.write.v2.Metadata`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Metadata {
    #[prost(enumeration = "MetricType", tag = "1")]
    pub(crate) r#type: i32,
}

/// `io.prometheus.write.v2.Metadata.MetricType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum MetricType {
    Unspecified = 0,
    Counter = 1,
    Gauge = 2,
    Info = 6,
}
