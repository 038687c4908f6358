//! Tests of requests of remote_write 2.0.

use prost::{DecodeError, Message};

use super::v2::{MetricType, RequestV2};
use crate::sinks::outbound::request::{
    DecodedSeries, NOT_A_NUMBER, RequestBuilder, STALE, WriteRequest, decode_v1, encode_labels, request,
    samples, text,
};

pub(in crate::sinks) fn decode_v2(body: &[u8]) -> Result<Vec<DecodedSeries>, DecodeError> {
    let request = RequestV2::decode(body)?;
    let symbol = |reference: u32| text(&request.symbols[reference as usize]);
    let series = request.timeseries.iter().map(|series| {
        let labels = series.labels_refs.chunks(2).map(|pair| (symbol(pair[0]), symbol(pair[1])));
        (labels.collect(), samples(&series.samples))
    });
    Ok(series.collect())
}

fn to_v2(body: &[u8]) -> Result<Vec<u8>, DecodeError> {
    Ok(RequestV2::from(WriteRequest::decode(body)?).encode_to_vec())
}

/// Compares with the bytes that protoc's encoder writes for the same message.
#[test]
fn body_is_that_of_the_protocol() {
    let mut builder = RequestBuilder::default();
    builder.add(
        &encode_labels([("__name__", "up"), ("node", "n1")]),
        &[(1_767_225_600_000, 1.0_f64.to_bits())],
        None,
    );
    let v2: Vec<u8> = [
        &[0x22, 0x00][..],
        &[0x22, 0x08],
        b"__name__",
        &[0x22, 0x02],
        b"up",
        &[0x22, 0x04],
        b"node",
        &[0x22, 0x02],
        b"n1",
        &[0x2a, 0x1c, 0x0a, 0x04, 1, 2, 3, 4],
        &[0x12, 0x10, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0x80, 0xd0, 0xea, 0xb6, 0xb7, 0x33],
        &[0x2a, 0x02, 0x08, 0x02],
    ]
    .concat();
    assert_eq!(to_v2(builder.body()).unwrap(), v2);
}

#[test]
fn both_versions_have_the_same_series() {
    let builder = request();
    let body = to_v2(builder.body()).unwrap();
    let of_v1 = decode_v1(builder.body()).unwrap();
    assert_eq!(decode_v2(&body).unwrap(), of_v1);
    let types = RequestV2::decode(&body[..]).unwrap().timeseries;
    let types: Vec<_> = types.into_iter().map(|series| series.metadata.unwrap().r#type()).collect();
    assert_eq!(types, [MetricType::Counter, MetricType::Gauge]);
    assert_eq!(of_v1[0].1, [(1, 1.5_f64.to_bits()), (2, 2.5_f64.to_bits())]);
    assert_eq!(of_v1[1].1, [(1_767_225_600_000, STALE)]);
    assert!(f64::from_bits(STALE).is_nan() && f64::from_bits(NOT_A_NUMBER).is_nan());
}
