//! The choice between samples and rollups for a report. Pure.

use polymeter_store::reader::Rollup;

use polymeter_proto::units;

/// The maximum number of samples from which a report is computed; of more, rollups are read.
pub(crate) const SAMPLES_MAX: u64 = 2_000_000;

/// The minimum number of intervals in the time of a job: fewer do not show its course.
const INTERVALS_MIN: u64 = 20;

/// The maximum number of intervals of all series, which are read in a tenth of a second.
const INTERVALS_MAX: u64 = 100_000;

/// Returns the rollup for the report of a job with `samples` in `series` that ran for `wall_ns`; none if the samples are read. It
/// is the finest one with few enough intervals, or the coarsest one with enough.
pub(crate) fn rollup(samples: u64, series: usize, wall_ns: i64) -> Option<Rollup> {
    if samples <= SAMPLES_MAX {
        return None;
    }
    let intervals = |rollup: &Rollup| u64::try_from(wall_ns / rollup.length_ns()).unwrap_or_default();
    let sufficient = || Rollup::ALL.into_iter().filter(|rollup| intervals(rollup) >= INTERVALS_MIN);
    let has_few = |rollup: &Rollup| intervals(rollup).saturating_mul(series as u64) <= INTERVALS_MAX;
    sufficient().find(has_few).or_else(|| sufficient().next_back())
}

/// Returns the coarser one of two resolutions; none stands for the samples.
pub(crate) fn coarser(a: Option<Rollup>, b: Option<Rollup>) -> Option<Rollup> {
    a.into_iter().chain(b).max_by_key(|rollup| rollup.length_ns())
}

/// Describes the report that is computed from a rollup, since the job is large, or since retention removed its samples.
pub(crate) fn note(rollup: Rollup, is_large: bool) -> String {
    let length = units::duration_f64(units::seconds_between(0, rollup.length_ns()) * 1e9);
    let reason = if is_large {
        format!("the job has more than {SAMPLES_MAX} samples")
    } else {
        "retention removed samples of the job".to_owned()
    };
    format!(
        "{reason}: the series are read as summaries of {length}; the rates of counters are means over {length}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    #[test]
    fn a_large_job_is_read_at_the_resolution_for_its_series() {
        let of = |samples, series, wall_s: i64| rollup(samples, series, wall_s * SECOND_NS);
        assert_eq!(of(SAMPLES_MAX, 500, 86_400), None);
        assert_eq!(of(43_000_000, 500, 86_400), Some(Rollup::Hour));
        assert_eq!(of(43_000_000, 50, 86_400), Some(Rollup::Minute));
        assert_eq!(of(43_000_000, 10, 86_400), Some(Rollup::TenSeconds));
        assert_eq!(of(43_000_000, 100_000, 86_400), Some(Rollup::Hour));
        assert_eq!(of(43_000_000, 5_000, 20 * 3600 - 1), Some(Rollup::Minute), "too short for hours");
        assert_eq!(of(43_000_000, 5_000, 200), Some(Rollup::TenSeconds));
        assert_eq!(of(43_000_000, 5_000, 199), None, "too short for any");
        assert_eq!(of(43_000_000, 0, 0), None);
    }

    #[test]
    fn samples_that_are_gone_are_not_read() {
        assert_eq!(coarser(None, None), None);
        assert_eq!(coarser(None, Some(Rollup::Minute)), Some(Rollup::Minute));
        assert_eq!(coarser(Some(Rollup::Hour), Some(Rollup::Minute)), Some(Rollup::Hour));
        assert_eq!(coarser(Some(Rollup::TenSeconds), None), Some(Rollup::TenSeconds));
        assert!(note(Rollup::Hour, false).starts_with("retention removed samples of the job: "));
    }

    #[test]
    fn the_note_names_the_length() {
        assert_eq!(
            note(Rollup::Minute, true),
            "the job has more than 2000000 samples: the series are read as summaries of 60 s; the rates of counters are means over 60 s"
        );
    }
}
