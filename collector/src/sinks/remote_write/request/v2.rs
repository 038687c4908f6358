//! Requests of remote_write 2.0.

use std::collections::HashMap;

use super::build::{SAMPLES, Sample};
use super::read::Series;
use super::read::series;
use crate::sinks::remote_write::protobuf::{Fields, Value, take_varint};
use crate::sinks::remote_write::protobuf::{Malformed, put_bytes, put_varint, varint_tag};

/// The numbers of `symbols` and `timeseries` in `Request` of 2.0.
const V2_SYMBOLS: u8 = 4;
const V2_TIMESERIES: u8 = 5;
/// The numbers of `labels_refs` and `metadata` in its `TimeSeries`.
const V2_LABELS_REFS: u8 = 1;
const V2_METADATA: u8 = 5;

/// Returns the same request in the encoding of 2.0.
///
/// # Errors
/// Returns an error if `body` is no request.
pub(crate) fn to_v2(body: &[u8]) -> Result<Vec<u8>, Malformed> {
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

/// A decoded series of 2.0: labels and samples.
pub(crate) type SeriesV2 = (Vec<(String, String)>, Vec<Sample>, u64);

/// Decodes a request of 2.0, for tests.
pub(crate) fn decode_v2(body: &[u8]) -> Result<Vec<SeriesV2>, Malformed> {
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

fn decode_series_v2(message: &[u8], symbols: &[String]) -> Result<SeriesV2, Malformed> {
    let (mut labels, mut kind) = (Vec::new(), 0);
    let mut samples = Vec::new();
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    let mut symbol = || {
                        let reference =
                            usize::try_from(take_varint(&mut packed)?).map_err(|_large| Malformed)?;
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
