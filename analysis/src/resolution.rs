//! Choice between samples and rollups for a report. Pure.

use polymeter_store::reader::{Rollup, SeriesRow};

use polymeter_proto::units;

use crate::resources::CPU_TIME;

/// Most samples from which a report is computed; of more, rollups are read.
const SAMPLES_MAX: u64 = 2_000_000;

/// Fewer intervals in the time of a job do not show its course.
const INTERVALS_MIN: u64 = 20;

/// Intervals of all series, which are read in a tenth of a second.
const INTERVALS_MAX: u64 = 100_000;

/// Intervals of all series beyond which the coarsest rollup is read.
const ALL_INTERVALS_MAX: u64 = 500_000;

/// Metrics besides CPU time whose course over time a report needs, for the balance between nodes and between
/// parts of the time.
const MEMORY: [&str; 3] = ["memory.anon", "memory.shmem", "process.memory.resident"];

/// Resolutions of a report; none stands for the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resolution {
    /// Series whose course over time is needed.
    pub(crate) course: Option<Rollup>,
    pub(crate) others: Option<Rollup>,
}

impl Resolution {
    /// Takes both at least as coarse as `left`.
    pub(crate) fn at_least(self, left: Option<Rollup>) -> Self {
        Self { course: coarser(self.course, left), others: coarser(self.others, left) }
    }

    /// Describes the report that is computed from rollups; none if it is computed from samples. `wanted` is
    /// the resolution for the size of the job.
    pub(crate) fn note(self, wanted: Self) -> Option<String> {
        let note = note(self.others?, wanted.others == self.others);
        Some(match self.course {
            Some(course) if self.course != self.others => {
                let length = units::duration_f64(units::seconds_between(0, course.length_ns()) * 1e9);
                format!("{note}; CPU time and memory are read as summaries of {length}")
            }
            None => format!("{note}; CPU time and memory are read from samples"),
            Some(_) => note,
        })
    }
}

pub(crate) fn has_course(row: &SeriesRow) -> bool {
    CPU_TIME.iter().chain(&MEMORY).any(|metric| *metric == row.metric)
        && row.labels.get("step").is_none()
        && row.labels.get("task").is_none()
}

/// Resolutions for the report of a job with `samples` in `rows` that ran for `wall_ns`. If even the coarsest
/// rollup that shows the course of the job has too many intervals, only the series that need it are read from
/// it.
pub(crate) fn resolution(samples: u64, rows: &[SeriesRow], wall_ns: i64) -> Resolution {
    let all = rollup(samples, rows.len(), wall_ns);
    let length_ns = all.map_or(i64::MAX, Rollup::length_ns);
    let intervals = u64::try_from(wall_ns / length_ns).unwrap_or_default().saturating_mul(rows.len() as u64);
    let is_too_large = if all.is_some() { intervals > ALL_INTERVALS_MAX } else { samples > SAMPLES_MAX };
    if !is_too_large {
        return Resolution { course: all, others: all };
    }
    let series = rows.iter().filter(|row| has_course(row)).count();
    Resolution { course: rollup(samples, series, wall_ns), others: Some(Rollup::Hour) }
}

/// Rollup for the report of a job with `samples` in `series` that ran for `wall_ns`; none if the samples are
/// read. It is the finest one with few enough intervals, or the coarsest one with enough.
fn rollup(samples: u64, series: usize, wall_ns: i64) -> Option<Rollup> {
    if samples <= SAMPLES_MAX {
        return None;
    }
    let intervals = |rollup: &Rollup| u64::try_from(wall_ns / rollup.length_ns()).unwrap_or_default();
    let sufficient = || Rollup::ALL.into_iter().filter(|rollup| intervals(rollup) >= INTERVALS_MIN);
    sufficient()
        .find(|rollup| intervals(rollup).saturating_mul(series as u64) <= INTERVALS_MAX)
        .or_else(|| sufficient().next_back())
}

/// None stands for the samples.
fn coarser(a: Option<Rollup>, b: Option<Rollup>) -> Option<Rollup> {
    a.into_iter().chain(b).max_by_key(|rollup| rollup.length_ns())
}

/// Describes the report that is computed from a rollup, since the job is large, or since retention removed
/// its samples.
fn note(rollup: Rollup, is_large: bool) -> String {
    let length = units::duration_f64(units::seconds_between(0, rollup.length_ns()) * 1e9);
    let reason = if is_large {
        format!("the job has more than {SAMPLES_MAX} samples")
    } else {
        "retention removed samples of the job".to_owned()
    };
    format!(
        "{reason}: the series are read as summaries of {length}; the rates of counters are means over {length}, and the \
         samples of a gauge within 10 s count the same, whatever their periods"
    )
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::Labels;

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

    fn row(metric: &str, labels: &[(&str, &str)]) -> SeriesRow {
        SeriesRow {
            series_id: 1,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            unit: "bytes".to_owned(),
            kind: "gauge".to_owned(),
            labels: Labels::new(labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
                .unwrap(),
        }
    }

    #[test]
    fn a_wide_job_is_read_at_the_coarsest_resolution_except_for_its_course() {
        assert!(has_course(&row("memory.anon", &[])) && has_course(&row("cpu.usage", &[])));
        assert!(!has_course(&row("memory.file", &[])) && !has_course(&row("cpu.usage", &[("step", "0")])));
        let mut rows = vec![row("memory.file", &[]); 58_000];
        rows.extend(vec![row("memory.anon", &[]); 2_000]);
        let of = |samples, wall_s: i64| resolution(samples, &rows, wall_s * SECOND_NS);
        let both = |rollup| Resolution { course: rollup, others: rollup };
        let (hour, minute) = (Some(Rollup::Hour), Some(Rollup::Minute));
        assert_eq!(of(SAMPLES_MAX, 3600), both(None));
        let wide = Resolution { course: minute, others: hour };
        assert_eq!(of(21_600_000, 3600), wide);
        assert_eq!(of(12_000_000, 199), Resolution { course: None, others: hour });
        assert_eq!(of(500_000_000, 86_400), Resolution { course: hour, others: hour });
        assert_eq!(wide.at_least(hour), both(hour));
        assert_eq!(both(None).note(both(None)), None);
        let note = wide.note(wide).unwrap();
        assert!(note.contains("summaries of 3600 s") && note.ends_with("summaries of 60 s"), "{note}");
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
            "the job has more than 2000000 samples: the series are read as summaries of 60 s; the rates of counters are means over 60 s, and the samples of a gauge within 10 s count the same, whatever their periods"
        );
    }
}
