//! Requests of remote_write 1.0 that are being built.

use crate::sinks::remote_write::protobuf::{
    bytes_tag, fixed64_tag, put_bytes, put_varint, varint_len, varint_tag,
};

/// The value of a sample that ends a series: a signalling NaN, as Prometheus defines it.
pub(crate) const STALE: u64 = 0x7ff0_0000_0000_0002;

/// The value of a sample that is not a number.
pub(crate) const NOT_A_NUMBER: u64 = 0x7ff8_0000_0000_0001;

/// The number of `timeseries` in `WriteRequest`.
pub(super) const TIMESERIES: u8 = 1;
/// The number of `labels` in `TimeSeries`.
pub(super) const LABELS: u8 = 1;
/// The number of `samples` in `TimeSeries` of both versions.
pub(super) const SAMPLES: u8 = 2;

/// A sample: milliseconds since the epoch, and the bits of the value.
pub(crate) type Sample = (i64, u64);

/// Encodes labels, which must be sorted by name and begin with `__name__`, as the fields of a `TimeSeries`.
pub(crate) fn encode_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
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

/// Returns the identity of a series: a hash of its encoded labels (FNV-1a), which is the same in each
/// process.
pub(crate) fn hash(labels: &[u8]) -> u64 {
    labels
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A request of remote_write 1.0 that is being built.
#[derive(Debug, Default)]
pub(crate) struct RequestBuilder {
    body: Vec<u8>,
    samples: u32,
    newest_ms: i64,
}

impl RequestBuilder {
    /// Adds samples of a series, whose times increase.
    pub(crate) fn add(&mut self, labels: &[u8], samples: &[Sample]) {
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
    pub(crate) const fn samples(&self) -> u32 {
        self.samples
    }

    /// Returns the length of the body, in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.body.len()
    }

    /// Returns the time of the newest sample, in milliseconds since the epoch.
    pub(crate) const fn newest_ms(&self) -> i64 {
        self.newest_ms
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Removes all series.
    pub(crate) fn clear(&mut self) {
        self.body.clear();
        (self.samples, self.newest_ms) = (0, 0);
    }
}

/// Adds a series with encoded labels and samples.
pub(super) fn put_series(out: &mut Vec<u8>, labels: &[u8], samples: &[u8]) {
    out.push(bytes_tag(TIMESERIES));
    put_varint(out, (labels.len() + samples.len()) as u64);
    out.extend_from_slice(labels);
    out.extend_from_slice(samples);
}
