//! Messages of remote_write 1.0, with the fields that are sent.

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
    /// Time since which a counter counts. The field is our own; only sinks that send other forms have it.
    #[prost(int64, optional, tag = "100")]
    pub(crate) start_ms: Option<i64>,
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
