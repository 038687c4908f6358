//! Tests of requests.

use bytes::Bytes;
use prost::{DecodeError, Message};

use super::build::{RequestBuilder, STALE, Sample, encode_labels};
use super::messages::{SampleMessage, WriteRequest};

pub(crate) type DecodedSeries = (Vec<(String, String)>, Vec<Sample>);

pub(crate) fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn samples(messages: &[SampleMessage]) -> Vec<Sample> {
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

pub(crate) fn request() -> RequestBuilder {
    let mut builder = RequestBuilder::default();
    let first = encode_labels([("__name__", "a_total"), ("node", "n1")]);
    let second = encode_labels([("__name__", "b"), ("jobid", "7"), ("node", "n1")]);
    builder.add(&first, &[(1, 1.5_f64.to_bits()), (2, 2.5_f64.to_bits())], None);
    builder.add(&second, &[(1_767_225_600_000, STALE)], None);
    builder
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
        assert_eq!(decode_v1(&body[..end]).is_ok(), end == first_series, "{end}");
    }
    assert!(decode_v1(&[0x0a, 0x02, 0x08, 0x01]).is_err(), "labels that are a number");
    assert!(decode_v1(b"\xff\xff").is_err());
}
