//! Histogram of times in programs: how many are up to each limit.

use polymeter_proto::series::Labels;

use super::super::assembler::Assembler;
use super::super::instruction::{Condition, Register, set};

/// Upper limits of the buckets but for the last, which has none.
pub(in super::super) const LIMITS_NS: [i32; 11] = [
    1_000,
    4_000,
    16_000,
    64_000,
    256_000,
    1_000_000,
    4_000_000,
    16_000_000,
    64_000_000,
    256_000_000,
    1_000_000_000,
];

pub(in super::super) const BUCKETS: usize = LIMITS_NS.len() + 1;

/// Puts the offset of the bucket for the nanoseconds in `time` into `offset`. The first bucket is at `first`,
/// and each has 8 bytes.
pub(in super::super) fn choose_bucket(
    assembler: &mut Assembler,
    time: Register,
    offset: Register,
    first: i32,
) {
    let end = assembler.label();
    let mut offsets = (first..).step_by(size_of::<u64>());
    for (limit_ns, bucket) in LIMITS_NS.into_iter().zip(offsets.by_ref()) {
        assembler.push(&[set(offset, bucket)]);
        assembler.jump(Condition::AtMost(time, limit_ns), end);
    }
    // Any longer time.
    offsets.take(1).for_each(|bucket| assembler.push(&[set(offset, bucket)]));
    assembler.place(end);
}

/// Label of a limit in seconds, as in histograms of Prometheus: `le=0.000001`, with further labels.
pub(in super::super) fn up_to(limit_ns: i32, further: &[(String, String)]) -> Option<Labels> {
    let seconds = f64::from(limit_ns) / 1e9;
    let labels = [("le".to_owned(), seconds.to_string())].into_iter().chain(further.iter().cloned());
    Labels::escaped(labels.collect()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_decimals_in_seconds() {
        let label = |limit_ns| up_to(limit_ns, &[]).unwrap().get("le").unwrap().to_owned();
        assert_eq!(label(1_000), "0.000001");
        assert_eq!(label(256_000_000), "0.256");
        assert_eq!(label(1_000_000_000), "1");
    }
}
