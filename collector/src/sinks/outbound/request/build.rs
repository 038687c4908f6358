//! Requests of remote_write 1.0 that are being built.

use bytes::Bytes;
use prost::Message;

use super::messages::{Label, SampleMessage, TimeSeries};

/// Ends a series: a signalling NaN, as Prometheus defines it.
pub(crate) const STALE: u64 = 0x7ff0_0000_0000_0002;

pub(crate) const NOT_A_NUMBER: u64 = 0x7ff8_0000_0000_0001;

/// Field 1 of `WriteRequest`, which has a length.
const TIMESERIES_KEY: u8 = 1 << 3 | 2;

/// Milliseconds since the epoch, and the bits of the value.
pub(crate) type Sample = (i64, u64);

/// Encodes labels, which must be sorted by name and contain `__name__`, as a `TimeSeries` without samples.
pub(crate) fn encode_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let labels = labels.into_iter().map(|(name, value)| Label { name: bytes(name), value: bytes(value) });
    TimeSeries { labels: labels.collect(), ..TimeSeries::default() }.encode_to_vec()
}

/// Identifies a series by a hash of its encoded labels (FNV-1a), which is the same in each process.
pub(crate) fn hash(labels: &[u8]) -> u64 {
    labels
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Builder for remote_write 1.0. Labels are encoded once for each series: a
/// [`WriteRequest`](super::messages::WriteRequest) of structs would copy all labels into each request.
#[derive(Debug, Default)]
pub(crate) struct RequestBuilder {
    body: Vec<u8>,
    samples: u32,
    newest_ms: i64,
    /// Kept for its allocation; without labels.
    added: TimeSeries,
}

impl RequestBuilder {
    /// Takes the samples of a series in the order of their times, and the time since which a counter counts.
    pub(crate) fn add(&mut self, labels: &[u8], samples: &[Sample], start_ms: Option<i64>) {
        let Some(&(newest_ms, _)) = samples.last() else { return };
        self.added.samples.clear();
        self.added.start_ms = start_ms;
        let messages =
            samples.iter().map(|&(timestamp_ms, value_bits)| SampleMessage { value_bits, timestamp_ms });
        self.added.samples.extend(messages);
        self.body.push(TIMESERIES_KEY);
        // Two encoded messages in a row are the encoding of both as one. A vector takes all that is encoded.
        prost::encode_length_delimiter(labels.len() + self.added.encoded_len(), &mut self.body).ok();
        self.body.extend_from_slice(labels);
        self.added.encode(&mut self.body).ok();
        self.samples = self.samples.saturating_add(u32::try_from(samples.len()).unwrap_or(u32::MAX));
        self.newest_ms = self.newest_ms.max(newest_ms);
    }

    pub(crate) const fn samples(&self) -> u32 {
        self.samples
    }

    pub(crate) const fn len(&self) -> usize {
        self.body.len()
    }

    /// Time of the newest sample, since the epoch.
    pub(crate) const fn newest_ms(&self) -> i64 {
        self.newest_ms
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn clear(&mut self) {
        self.body.clear();
        (self.samples, self.newest_ms) = (0, 0);
    }
}
