//! Parts of a refused request.

use super::build::{RequestBuilder, Sample, put_series};
use super::read::{Series, series};

/// Splits a request of 1.0 into two with about half of the series each, or half of the samples of the only
/// series. Returns none for a single sample, and for bytes that are no request.
pub(crate) fn halves(body: &[u8]) -> Option<[Vec<u8>; 2]> {
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
            builder.body().to_vec()
        };
        return Some([of(parts.0), of(parts.1)]);
    }
    let (first, second) = all.split_at_checked(all.len() / 2).filter(|(first, _)| !first.is_empty())?;
    Some([half(first), half(second)])
}
