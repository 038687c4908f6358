//! The bodies of requests: `prometheus.WriteRequest` of remote_write 1.0, and `io.prometheus.write.v2.Request` of 2.0.
//!
//! Requests are built and spooled as 1.0. A receiver of 2.0 gets the same series with a table of symbols, in which
//! each name and value of a label occurs once.

use std::collections::HashMap;

use super::protobuf::{
    Fields, Malformed, Value, bytes_tag, fixed64_tag, put_bytes, put_varint, varint_len, varint_tag,
};

/// The value of a sample that ends a series: a signalling NaN, as Prometheus defines it.
pub(super) const STALE: u64 = 0x7ff0_0000_0000_0002;

/// The value of a sample that is not a number.
pub(super) const NOT_A_NUMBER: u64 = 0x7ff8_0000_0000_0001;

/// The number of `timeseries` in `WriteRequest`.
const TIMESERIES: u8 = 1;
/// The number of `labels` in `TimeSeries`.
const LABELS: u8 = 1;
/// The number of `samples` in `TimeSeries` of both versions.
const SAMPLES: u8 = 2;
/// The numbers of `symbols` and `timeseries` in `Request` of 2.0.
const V2_SYMBOLS: u8 = 4;
const V2_TIMESERIES: u8 = 5;
/// The numbers of `labels_refs` and `metadata` in its `TimeSeries`.
const V2_LABELS_REFS: u8 = 1;
const V2_METADATA: u8 = 5;

/// A sample: milliseconds since the epoch, and the bits of the value.
pub(super) type Sample = (i64, u64);

/// Encodes labels, which must be sorted by name and begin with `__name__`, as the fields of a `TimeSeries`.
pub(super) fn encode_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in labels {
        let field = |text: &str| 1 + varint_len(text.len() as u64) + text.len();
        out.push(bytes_tag(LABELS));
        put_varint(&mut out, (field(name) + field(value)) as u64);
        put_bytes(&mut out, 1, name.as_bytes());
        put_bytes(&mut out, 2, value.as_bytes());
    }
    out
}

/// Returns the length of an encoded sample after its tag and length.
const fn sample_len(time_ms: i64) -> usize {
    10 + varint_len(time_ms.cast_unsigned())
}

/// Returns the identity of a series: a hash of its encoded labels (FNV-1a), which is the same in each process.
pub(super) fn hash(labels: &[u8]) -> u64 {
    labels
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The maximum size of a body, so that a damaged file cannot claim any amount of memory.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Returns a compressed body as it was; none if it is damaged or too large.
pub(super) fn decompress(payload: &[u8]) -> Option<Vec<u8>> {
    let len = snap::raw::decompress_len(payload).ok()?;
    (len <= BODY_BYTES_MAX).then(|| snap::raw::Decoder::new().decompress_vec(payload).ok()).flatten()
}

/// A request of remote_write 1.0 that is being built.
#[derive(Debug, Default)]
pub(super) struct RequestBuilder {
    body: Vec<u8>,
    samples: u32,
    newest_ms: i64,
}

impl RequestBuilder {
    /// Adds samples of a series, whose times increase.
    pub(super) fn add(&mut self, labels: &[u8], samples: &[Sample]) {
        let Some(&(newest_ms, _)) = samples.last() else { return };
        // A message of up to 127 bytes has a length of one byte; a sample has at most 20.
        let encoded: usize = samples.iter().map(|(time_ms, _)| 2 + sample_len(*time_ms)).sum();
        self.body.reserve(labels.len() + encoded + 8);
        self.body.push(bytes_tag(TIMESERIES));
        put_varint(&mut self.body, (labels.len() + encoded) as u64);
        self.body.extend_from_slice(labels);
        for &(time_ms, bits) in samples {
            let value = bits.to_le_bytes();
            let [a, b, c, d, e, f, g, h] = value;
            let len = u8::try_from(sample_len(time_ms)).unwrap_or(u8::MAX);
            self.body.extend_from_slice(&[
                bytes_tag(SAMPLES),
                len,
                fixed64_tag(1),
                a,
                b,
                c,
                d,
                e,
                f,
                g,
                h,
                varint_tag(2),
            ]);
            put_varint(&mut self.body, time_ms.cast_unsigned());
        }
        self.samples = self.samples.saturating_add(u32::try_from(samples.len()).unwrap_or(u32::MAX));
        self.newest_ms = self.newest_ms.max(newest_ms);
    }

    /// Returns the number of samples.
    pub(super) const fn samples(&self) -> u32 {
        self.samples
    }

    /// Returns the length of the body, in bytes.
    pub(super) const fn len(&self) -> usize {
        self.body.len()
    }

    /// Returns the time of the newest sample, in milliseconds since the epoch.
    pub(super) const fn newest_ms(&self) -> i64 {
        self.newest_ms
    }

    /// Returns the body.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Removes all series.
    pub(super) fn clear(&mut self) {
        self.body.clear();
        (self.samples, self.newest_ms) = (0, 0);
    }
}

/// A series of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Series<'a> {
    /// The fields `labels`.
    pub(super) labels: &'a [u8],
    /// The fields `samples`.
    pub(super) samples: &'a [u8],
}

impl<'a> Series<'a> {
    /// Splits a `TimeSeries` as [`RequestBuilder::add`] writes it: labels before samples, and no other fields.
    fn of(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(message);
        let mut labels_end = None;
        loop {
            let at = message.len() - fields.0.len();
            match fields.next() {
                None => break,
                Some(Ok((number, Value::Bytes(_))))
                    if number == u64::from(LABELS) && labels_end.is_none() => {}
                Some(Ok((number, Value::Bytes(_)))) if number == u64::from(SAMPLES) => {
                    labels_end.get_or_insert(at);
                }
                Some(_) => return Err(Malformed),
            }
        }
        let (labels, samples) = message.split_at_checked(labels_end.ok_or(Malformed)?).ok_or(Malformed)?;
        Ok(Self { labels, samples })
    }

    /// Returns the names and values of the labels.
    pub(super) fn labels(self) -> impl Iterator<Item = Result<(&'a [u8], &'a [u8]), Malformed>> {
        Fields(self.labels).map(|field| {
            let (mut name, mut value) = (&[][..], &[][..]);
            let (_, Value::Bytes(label)) = field? else { return Err(Malformed) };
            for part in Fields(label) {
                match part? {
                    (1, Value::Bytes(text)) => name = text,
                    (2, Value::Bytes(text)) => value = text,
                    _ => return Err(Malformed),
                }
            }
            Ok((name, value))
        })
    }

    /// Returns the samples.
    pub(super) fn samples(self) -> impl Iterator<Item = Result<Sample, Malformed>> {
        Fields(self.samples).map(|field| {
            let (mut time_ms, mut bits) = (0, 0);
            let (_, Value::Bytes(sample)) = field? else { return Err(Malformed) };
            for part in Fields(sample) {
                match part? {
                    (1, Value::Fixed64(value)) => bits = value,
                    (2, Value::Varint(time)) => time_ms = time.cast_signed(),
                    _ => return Err(Malformed),
                }
            }
            Ok((time_ms, bits))
        })
    }
}

/// Returns the series of a request of 1.0.
pub(super) fn series(body: &[u8]) -> impl Iterator<Item = Result<Series<'_>, Malformed>> {
    Fields(body).map(|field| match field? {
        (number, Value::Bytes(message)) if number == u64::from(TIMESERIES) => Series::of(message),
        _ => Err(Malformed),
    })
}

/// Returns the same request in the encoding of 2.0.
///
/// # Errors
/// Returns an error if `body` is no request.
pub(super) fn to_v2(body: &[u8]) -> Result<Vec<u8>, Malformed> {
    // The first symbol is the empty text.
    let mut symbols: Vec<&[u8]> = vec![b""];
    let mut known: HashMap<&[u8], u64> = HashMap::from([(&b""[..], 0)]);
    let mut all = Vec::with_capacity(body.len());
    let (mut references, mut message) = (Vec::new(), Vec::new());
    for series in series(body) {
        let series = series?;
        references.clear();
        message.clear();
        let mut kind = MetricKind::Gauge;
        for label in series.labels() {
            let (name, value) = label?;
            if name == b"__name__" {
                kind = MetricKind::of(value);
            }
            for text in [name, value] {
                let reference = *known.entry(text).or_insert_with(|| {
                    symbols.push(text);
                    symbols.len() as u64 - 1
                });
                put_varint(&mut references, reference);
            }
        }
        put_bytes(&mut message, V2_LABELS_REFS, &references);
        message.extend_from_slice(series.samples);
        // `Metadata` has its type in field 1.
        put_bytes(&mut message, V2_METADATA, &[varint_tag(1), kind as u8]);
        put_bytes(&mut all, V2_TIMESERIES, &message);
    }
    let mut out =
        Vec::with_capacity(all.len() + symbols.iter().map(|symbol| symbol.len() + 4).sum::<usize>());
    symbols.iter().for_each(|symbol| put_bytes(&mut out, V2_SYMBOLS, symbol));
    out.extend_from_slice(&all);
    Ok(out)
}

/// The type of a metric in `Metadata` of 2.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum MetricKind {
    Counter = 1,
    Gauge = 2,
    Info = 6,
}

impl MetricKind {
    /// Returns the type by the suffix, which `names.rs` appends.
    fn of(name: &[u8]) -> Self {
        if name.ends_with(b"_total") {
            Self::Counter
        } else if name.ends_with(b"_info") {
            Self::Info
        } else {
            Self::Gauge
        }
    }
}

/// Returns the number of samples of a request of 1.0; 0 if it is none.
pub(super) fn count(body: &[u8]) -> u64 {
    series(body).filter_map(Result::ok).map(|series| series.samples().count() as u64).sum()
}

/// Splits a request of 1.0 into two with about half of the series each, or half of the samples of the only series.
/// Returns none for a single sample, and for bytes that are no request.
pub(super) fn halves(body: &[u8]) -> Option<[Vec<u8>; 2]> {
    let all: Vec<Series<'_>> = series(body).collect::<Result<_, _>>().ok()?;
    let half = |series: &[Series<'_>]| {
        let mut out = Vec::new();
        for one in series {
            put_series(&mut out, one.labels, one.samples);
        }
        out
    };
    if let [only] = all.as_slice() {
        let samples: Vec<_> = only.samples().collect::<Result<_, _>>().ok()?;
        let middle = samples.len() / 2;
        let parts = samples.split_at_checked(middle).filter(|_| middle > 0)?;
        let of = |samples: &[Sample]| {
            let mut builder = RequestBuilder::default();
            builder.add(only.labels, samples);
            builder.body
        };
        return Some([of(parts.0), of(parts.1)]);
    }
    let (first, second) = all.split_at_checked(all.len() / 2).filter(|(first, _)| !first.is_empty())?;
    Some([half(first), half(second)])
}

fn put_series(out: &mut Vec<u8>, labels: &[u8], samples: &[u8]) {
    out.push(bytes_tag(TIMESERIES));
    put_varint(out, (labels.len() + samples.len()) as u64);
    out.extend_from_slice(labels);
    out.extend_from_slice(samples);
}

/// A decoded series of 2.0: labels and samples.
#[cfg(any(test, fuzzing))]
pub(super) type SeriesV2 = (Vec<(String, String)>, Vec<Sample>, u64);

/// Decodes a request of 2.0, for tests.
#[cfg(any(test, fuzzing))]
pub(super) fn decode_v2(body: &[u8]) -> Result<Vec<SeriesV2>, Malformed> {
    let mut symbols = Vec::new();
    let mut decoded = Vec::new();
    for field in Fields(body) {
        match field? {
            (4, Value::Bytes(symbol)) => symbols.push(String::from_utf8_lossy(symbol).into_owned()),
            (5, Value::Bytes(message)) => decoded.push(decode_series_v2(message, &symbols)?),
            _ => return Err(Malformed),
        }
    }
    Ok(decoded)
}

#[cfg(any(test, fuzzing))]
fn decode_series_v2(message: &[u8], symbols: &[String]) -> Result<SeriesV2, Malformed> {
    let (mut labels, mut kind) = (Vec::new(), 0);
    let mut samples = Vec::new();
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    let mut symbol = || {
                        let reference = usize::try_from(super::protobuf::take_varint(&mut packed)?)
                            .map_err(|_large| Malformed)?;
                        symbols.get(reference).cloned().ok_or(Malformed)
                    };
                    labels.push((symbol()?, symbol()?));
                }
            }
            (2, Value::Bytes(sample)) => {
                let mut one = Vec::new();
                put_bytes(&mut one, SAMPLES, sample);
                samples
                    .extend(Series { labels: &[], samples: &one }.samples().collect::<Result<Vec<_>, _>>()?);
            }
            (5, Value::Bytes(&[8, found])) => kind = u64::from(found),
            _ => return Err(Malformed),
        }
    }
    Ok((labels, samples, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        builder.add(
            &encode_labels([("__name__", "up"), ("node", "n1")]),
            &[(1_767_225_600_000, 1.0_f64.to_bits())],
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
        let body = request().body;
        for end in 1..body.len() {
            let cut = &body[..end];
            let is_whole = series(cut).all(|series| series.is_ok());
            assert_eq!(to_v2(cut).is_ok(), is_whole, "{end}");
        }
        assert_eq!(to_v2(&[0x0a, 0x02, 0x08, 0x01]), Err(Malformed), "a series without samples");
    }
}
