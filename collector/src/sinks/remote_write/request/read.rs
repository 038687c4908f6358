//! Requests of remote_write 1.0 that are read.

use super::build::{LABELS, SAMPLES, Sample, TIMESERIES};
use crate::sinks::remote_write::protobuf::{Fields, Malformed, Value};

/// The maximum size of a body, so that a damaged file cannot claim any amount of memory.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Returns a compressed body as it was; none if it is damaged or too large.
pub(crate) fn decompress(payload: &[u8]) -> Option<Vec<u8>> {
    let len = snap::raw::decompress_len(payload).ok()?;
    (len <= BODY_BYTES_MAX).then(|| snap::raw::Decoder::new().decompress_vec(payload).ok()).flatten()
}

/// A series of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Series<'a> {
    /// The fields `labels`.
    pub(crate) labels: &'a [u8],
    /// The fields `samples`.
    pub(crate) samples: &'a [u8],
}

impl<'a> Series<'a> {
    /// Splits a `TimeSeries` as [`RequestBuilder::add`] writes it: labels before samples, and no other
    /// fields.
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
    pub(crate) fn labels(self) -> impl Iterator<Item = Result<(&'a [u8], &'a [u8]), Malformed>> {
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

    pub(crate) fn samples(self) -> impl Iterator<Item = Result<Sample, Malformed>> {
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
pub(crate) fn series(body: &[u8]) -> impl Iterator<Item = Result<Series<'_>, Malformed>> {
    Fields(body).map(|field| match field? {
        (number, Value::Bytes(message)) if number == u64::from(TIMESERIES) => Series::of(message),
        _ => Err(Malformed),
    })
}

/// Returns the number of samples of a request of 1.0; 0 if it is none.
pub(crate) fn count(body: &[u8]) -> u64 {
    series(body).filter_map(Result::ok).map(|series| series.samples().count() as u64).sum()
}
