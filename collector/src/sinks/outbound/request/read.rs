//! Requests of remote_write 1.0 that are read.

use bytes::Bytes;
use prost::Message;

use super::build::hash;
use super::messages::{TimeSeries, WriteRequest};

/// Limit of a body, so that a damaged file cannot claim any amount of memory. A batch is full at 4 MiB, and
/// the series that fills it adds at most three times 65,536 samples of 22 bytes.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// None if the body is damaged or too large.
pub(crate) fn decompress(payload: &[u8]) -> Option<Bytes> {
    let len = snap::raw::decompress_len(payload).ok()?;
    let body = (len <= BODY_BYTES_MAX).then(|| snap::raw::Decoder::new().decompress_vec(payload))?;
    body.ok().map(Bytes::from)
}

/// None if the body is damaged or too large.
pub(crate) fn read(payload: &[u8]) -> Option<WriteRequest> {
    WriteRequest::decode(decompress(payload)?).ok()
}

impl WriteRequest {
    pub(crate) fn sample_count(&self) -> u64 {
        self.timeseries.iter().map(|series| series.samples.len() as u64).sum()
    }

    /// Last time of each series, in milliseconds since the epoch, by the hash of its labels.
    pub(crate) fn last_times(self) -> impl Iterator<Item = (u64, i64)> {
        self.timeseries.into_iter().filter_map(|TimeSeries { labels, samples, .. }| {
            let last_ms = samples.iter().map(|sample| sample.timestamp_ms).max()?;
            Some((hash(&TimeSeries { labels, ..TimeSeries::default() }.encode_to_vec()), last_ms))
        })
    }

    /// Splits a refused request into two with about half of the series each, or half of the samples of the
    /// only series. None for a single sample.
    pub(crate) fn halves(self) -> Option<[Self; 2]> {
        let mut first = self.timeseries;
        let second = if let [only] = first.as_mut_slice() {
            let samples = only.samples.split_off(only.samples.len() / 2);
            if only.samples.is_empty() {
                return None;
            }
            vec![TimeSeries { labels: only.labels.clone(), samples, start_ms: only.start_ms }]
        } else {
            first.split_off(first.len() / 2)
        };
        (!first.is_empty()).then(|| [first, second].map(|timeseries| Self { timeseries }))
    }
}
