//! Phases and kept intervals as bands of time, and marked instants.

use std::collections::BTreeMap;

use super::cells::Span;
use super::model::{Band, MarkedTime};
use crate::model::Report;

/// More bands, or marks, cannot be told apart.
const BANDS_MAX: usize = 400;
const MARKS_MAX: usize = 200;

const NAME_MAX: usize = 120;

/// Phases and kept intervals as bands in the order of their begin, the longest ones if there are too many,
/// and the number of the others. An open end is that of the job.
pub(super) fn of(report: &Report, span: Span) -> (Vec<Band>, usize) {
    let length_s = span.length_s();
    let mut by_name: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    let kept: Vec<String> = report.kept.iter().map(|kept| format!("kept: {}", kept.reason)).collect();
    let phases = report
        .phases
        .iter()
        .map(|phase| (phase.name.as_str(), phase.begin_s.unwrap_or(0.0), phase.end_s.unwrap_or(length_s)));
    let kept = kept.iter().zip(&report.kept).map(|(name, kept)| (name.as_str(), kept.begin_s, kept.end_s));
    for (name, begin_s, end_s) in phases.chain(kept) {
        let begin_s = begin_s.clamp(0.0, length_s);
        by_name.entry(name).or_default().push((begin_s, end_s.clamp(begin_s, length_s)));
    }
    let mut bands: Vec<Band> = Vec::new();
    for (name, mut times) in by_name {
        times.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut joined: Vec<(f64, f64)> = Vec::new();
        for (begin_s, end_s) in times {
            match joined.last_mut() {
                Some((_, last_s)) if begin_s < *last_s => *last_s = last_s.max(end_s),
                Some(_) | None => joined.push((begin_s, end_s)),
            }
        }
        bands.extend(joined.into_iter().map(|(begin_s, end_s)| Band { name: shown(name), begin_s, end_s }));
    }
    bands.sort_by(|one, other| (other.end_s - other.begin_s).total_cmp(&(one.end_s - one.begin_s)));
    let left_out = bands.len().saturating_sub(BANDS_MAX);
    bands.truncate(BANDS_MAX);
    bands.sort_by(|one, other| one.begin_s.total_cmp(&other.begin_s));
    (bands, left_out)
}

/// Marked instants and triggers that fired, the first of the same name on several nodes, in the order of
/// their times.
pub(super) fn marks(report: &Report) -> Vec<MarkedTime> {
    let mut marks: Vec<MarkedTime> =
        report.marks.iter().map(|mark| MarkedTime { name: shown(&mark.name), at_s: mark.at_s }).collect();
    marks.extend(
        report.firings.iter().map(|fired| MarkedTime { name: shown(&fired.mark()), at_s: fired.at_s }),
    );
    marks.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    marks.truncate(MARKS_MAX);
    marks
}

fn shown(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    name.chars().take(NAME_MAX).chain(['…']).collect()
}
