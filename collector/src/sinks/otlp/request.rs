//! Requests: series by node, which is the resource, and by metric.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::messages::{
    AnyValue, ExportRequest, InstrumentationScope, KeyValue, Metric, NumberDataPoint, Resource,
    ResourceMetrics, ScopeMetrics, SumKind,
};
use super::names::{COUNTER, TYPE, UNIT};
use crate::sinks::outbound::{STALE, TimeSeries, WriteRequest};

const MS_NS: u64 = 1_000_000;

const CUMULATIVE: i32 = 2;

/// Flag of a point that ends its series.
const NO_RECORDED_VALUE: u32 = 1;

/// Field 1 of `Gauge` and `Sum`, which has a length.
const DATA_POINTS_KEY: u8 = 1 << 3 | 2;

#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct MetricKey {
    name: Bytes,
    unit: Bytes,
    is_sum: bool,
}

/// Encoded data points of each metric.
type Metrics = BTreeMap<MetricKey, Vec<u8>>;

/// What the labels of a series become.
#[derive(Debug, Default)]
struct Identity {
    node: Bytes,
    metric: MetricKey,
    attributes: Vec<KeyValue>,
}

impl From<WriteRequest> for ExportRequest {
    fn from(request: WriteRequest) -> Self {
        let mut nodes: BTreeMap<Bytes, Metrics> = BTreeMap::new();
        for series in request.timeseries {
            let Identity { node, metric, attributes } = identity(&series);
            let points = nodes.entry(node).or_default().entry(metric).or_default();
            add_points(points, attributes, &series);
        }
        let resource_metrics = nodes.into_iter().map(|(node, metrics)| resource_metrics(node, metrics));
        Self { resource_metrics: resource_metrics.collect() }
    }
}

fn identity(series: &TimeSeries) -> Identity {
    let mut identity = Identity::default();
    for label in &series.labels {
        let value = label.value.clone();
        match &*label.name {
            b"__name__" => identity.metric.name = value,
            b"node" => identity.node = value,
            name if name == UNIT.as_bytes() => identity.metric.unit = value,
            name if name == TYPE.as_bytes() => identity.metric.is_sum = *value == *COUNTER.as_bytes(),
            _ => identity.attributes.push(key_value(label.name.clone(), value)),
        }
    }
    identity
}

fn key_value(key: Bytes, value: Bytes) -> KeyValue {
    KeyValue { key, value: Some(AnyValue { string_value: Some(value) }) }
}

/// Encodes the attributes once for all points of the series.
fn add_points(points: &mut Vec<u8>, attributes: Vec<KeyValue>, series: &TimeSeries) {
    let attributes = NumberDataPoint { attributes, ..NumberDataPoint::default() }.encode_to_vec();
    let start_time_unix_nano = series.start_ms.map_or(0, ns);
    for sample in &series.samples {
        let is_end = sample.value_bits == STALE;
        let point = NumberDataPoint {
            start_time_unix_nano,
            time_unix_nano: ns(sample.timestamp_ms),
            as_double: (!is_end).then(|| f64::from_bits(sample.value_bits)),
            ..NumberDataPoint::default()
        };
        let flags = if is_end { NO_RECORDED_VALUE } else { 0 };
        let flags = NumberDataPoint { flags, ..NumberDataPoint::default() };
        points.push(DATA_POINTS_KEY);
        // Encoded messages in a row are the encoding of all as one. A vector takes all that is encoded.
        let len = point.encoded_len() + attributes.len() + flags.encoded_len();
        prost::encode_length_delimiter(len, points).ok();
        point.encode(points).ok();
        points.extend_from_slice(&attributes);
        flags.encode(points).ok();
    }
}

/// Times before the epoch become 0, which is no time.
fn ns(time_ms: i64) -> u64 {
    u64::try_from(time_ms).unwrap_or_default().saturating_mul(MS_NS)
}

fn resource_metrics(node: Bytes, metrics: Metrics) -> ResourceMetrics {
    let attributes = vec![
        key_value("service.name".into(), "polymeter".into()),
        // Keeps the series of nodes apart in receivers that drop other attributes of resources.
        key_value("service.instance.id".into(), node.clone()),
        key_value("host.name".into(), node),
    ];
    let scope =
        InstrumentationScope { name: "polymeter".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let metrics = metrics.into_iter().map(|(key, points)| metric(key, points)).collect();
    ResourceMetrics {
        resource: Some(Resource { attributes }),
        scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics }],
    }
}

fn metric(MetricKey { name, unit, is_sum }: MetricKey, mut points: Vec<u8>) -> Metric {
    if !is_sum {
        return Metric { name, unit, gauge: Some(points.into()), sum: None };
    }
    SumKind { aggregation_temporality: CUMULATIVE, is_monotonic: true }.encode(&mut points).ok();
    Metric { name, unit, gauge: None, sum: Some(points.into()) }
}
