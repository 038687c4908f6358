//! Messages of OTLP, with the fields that are sent and read.
//!
//! A field of a `oneof` is encoded like an optional one, and a message like bytes.

use bytes::Bytes;
use prost::Message;

/// `opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_metrics: Vec<ResourceMetrics>,
}

/// `opentelemetry.proto.metrics.v1.ResourceMetrics`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_metrics: Vec<ScopeMetrics>,
}

/// `opentelemetry.proto.resource.v1.Resource`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

/// `opentelemetry.proto.common.v1.KeyValue`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

/// `opentelemetry.proto.common.v1.AnyValue`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AnyValue {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) string_value: Option<Bytes>,
}

/// `opentelemetry.proto.metrics.v1.ScopeMetrics`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) metrics: Vec<Metric>,
}

/// `opentelemetry.proto.common.v1.InstrumentationScope`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

/// `opentelemetry.proto.metrics.v1.Metric`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Metric {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) name: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) unit: Bytes,
    /// `Gauge`: [`PointList`].
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub(super) gauge: Option<Bytes>,
    /// `Sum`: [`PointList`] and [`SumKind`].
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub(super) sum: Option<Bytes>,
}

/// Data points of `opentelemetry.proto.metrics.v1.Gauge` and `Sum`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PointList {
    #[prost(message, repeated, tag = "1")]
    pub(super) data_points: Vec<NumberDataPoint>,
}

/// Rest of `opentelemetry.proto.metrics.v1.Sum`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct SumKind {
    /// 2 is cumulative.
    #[prost(int32, tag = "2")]
    pub(super) aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub(super) is_monotonic: bool,
}

/// `opentelemetry.proto.metrics.v1.NumberDataPoint`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NumberDataPoint {
    #[prost(message, repeated, tag = "7")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    pub(super) as_double: Option<f64>,
    #[prost(uint32, tag = "8")]
    pub(super) flags: u32,
}

/// `opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

/// `opentelemetry.proto.collector.metrics.v1.ExportMetricsPartialSuccess`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_data_points: i64,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) error_message: Vec<u8>,
}

/// `google.rpc.Status`, the body of a refusal.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Status {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) message: Vec<u8>,
}
