//! Tests of the bodies of requests.

use bytes::Bytes;
use prost::{DecodeError, Message};

use super::build::{NOT_A_NUMBER, RequestBuilder, STALE, Sample, encode_labels};
use super::messages::{MetricType, RequestV2, SampleMessage, WriteRequest};

pub(crate) type DecodedSeries = (Vec<(String, String)>, Vec<Sample>);

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn samples(messages: &[SampleMessage]) -> Vec<Sample> {
    messages.iter().map(|sample| (sample.timestamp_ms, sample.value_bits)).collect()
}

pub(crate) fn decode_v1(body: &[u8]) -> Result<Vec<DecodedSeries>, DecodeError> {
    let request = WriteRequest::decode(body)?;
    let series = request.timeseries.iter().map(|series| {
        let labels = series.labels.iter().map(|label| (text(&label.name), text(&label.value)));
        (labels.collect(), samples(&series.samples))
    });
    Ok(series.collect())
}

pub(crate) fn decode_v2(body: &[u8]) -> Result<Vec<DecodedSeries>, DecodeError> {
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

fn request() -> RequestBuilder {
    let mut builder = RequestBuilder::default();
    let first = encode_labels([("__name__", "a_total"), ("node", "n1")]);
    let second = encode_labels([("__name__", "b"), ("jobid", "7"), ("node", "n1")]);
    builder.add(&first, &[(1, 1.5_f64.to_bits()), (2, 2.5_f64.to_bits())]);
    builder.add(&second, &[(1_767_225_600_000, STALE)]);
    builder
}

/// Compares with the bytes that protoc's encoder writes for the same message.
#[test]
fn body_is_that_of_the_protocol() {
    let mut builder = RequestBuilder::default();
    builder
        .add(&encode_labels([("__name__", "up"), ("node", "n1")]), &[(1_767_225_600_000, 1.0_f64.to_bits())]);
    let expected: Vec<u8> = [
        &[0x0a, 0x2e][..],
        &[0x0a, 0x0e, 0x0a, 0x08],
        b"__name__",
        &[0x12, 0x02],
        b"up",
        &[0x0a, 0x0a, 0x0a, 0x04],
        b"node",
        &[0x12, 0x02],
        b"n1",
        &[0x12, 0x10, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0x80, 0xd0, 0xea, 0xb6, 0xb7, 0x33],
    ]
    .concat();
    assert_eq!(builder.body(), expected);
    assert_eq!((builder.samples(), builder.newest_ms()), (1, 1_767_225_600_000));
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

#[test]
fn a_request_is_halved_down_to_single_samples() {
    fn leaves(request: WriteRequest) -> u64 {
        let count = request.sample_count();
        request.halves().map_or(count, |[first, second]| leaves(first) + leaves(second))
    }
    let whole = WriteRequest::decode(request().body()).unwrap();
    let [first, second] = whole.clone().halves().unwrap();
    let counts = [&first, &second, &whole].map(WriteRequest::sample_count);
    assert_eq!((counts, leaves(whole)), ([2, 1, 3], 3));
    assert_eq!(second.halves(), None, "a single sample");
    assert_eq!(WriteRequest::default().halves(), None);
}

#[test]
fn bytes_that_are_no_request_are_refused() {
    let body = request().body().to_vec();
    let first_series = 2 + usize::from(body[1]);
    for end in 1..body.len() {
        assert_eq!(to_v2(&body[..end]).is_ok(), end == first_series, "{end}");
    }
    assert!(to_v2(&[0x0a, 0x02, 0x08, 0x01]).is_err(), "labels that are a number");
    assert!(to_v2(b"\xff\xff").is_err());
}
