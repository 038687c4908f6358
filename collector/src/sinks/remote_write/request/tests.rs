//! Tests of the bodies of requests.

use super::build::{NOT_A_NUMBER, RequestBuilder, STALE, encode_labels};
use super::halve::halves;
use super::read::{count, series};
use super::v2::{SeriesV2, decode_v2, to_v2};
use crate::sinks::remote_write::protobuf::Malformed;

fn request() -> RequestBuilder {
    let mut builder = RequestBuilder::default();
    let first = encode_labels([("__name__", "a_total"), ("node", "n1")]);
    let second = encode_labels([("__name__", "b"), ("jobid", "7"), ("node", "n1")]);
    builder.add(&first, &[(1, 1.5_f64.to_bits()), (2, 2.5_f64.to_bits())]);
    builder.add(&second, &[(1_767_225_600_000, STALE)]);
    builder
}

/// Bytes that protoc's encoder writes for the same message.
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
    let decoded = decode_v2(&to_v2(builder.body()).unwrap()).unwrap();
    let of_v1: Vec<SeriesV2> = series(builder.body())
        .map(|series| {
            let series = series.unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let labels: Vec<_> =
                series.labels().map(|label| label.map(|(n, v)| (text(n), text(v))).unwrap()).collect();
            let kind = if labels[0].1.ends_with("_total") { 1 } else { 2 };
            (labels, series.samples().map(Result::unwrap).collect(), kind)
        })
        .collect();
    assert_eq!(decoded, of_v1);
    assert_eq!(of_v1[0].1, [(1, 1.5_f64.to_bits()), (2, 2.5_f64.to_bits())]);
    assert_eq!(of_v1[1].1, [(1_767_225_600_000, STALE)]);
    assert!(f64::from_bits(STALE).is_nan() && f64::from_bits(NOT_A_NUMBER).is_nan());
}

#[test]
fn a_request_is_halved_down_to_single_samples() {
    fn leaves(body: &[u8]) -> u64 {
        halves(body).map_or_else(|| count(body), |[first, second]| leaves(&first) + leaves(&second))
    }
    let builder = request();
    let [first, second] = halves(builder.body()).unwrap();
    assert_eq!((count(&first), count(&second), count(builder.body())), (2, 1, 3));
    assert_eq!(leaves(builder.body()), 3);
    assert_eq!(halves(&second), None, "a single sample");
    assert_eq!(halves(b"\xff\xff"), None);
}

#[test]
fn bytes_that_are_no_request_are_refused() {
    let body = request().body().to_vec();
    for end in 1..body.len() {
        let cut = &body[..end];
        let is_whole = series(cut).all(|series| series.is_ok());
        assert_eq!(to_v2(cut).is_ok(), is_whole, "{end}");
    }
    assert_eq!(to_v2(&[0x0a, 0x02, 0x08, 0x01]), Err(Malformed), "a series without samples");
}
