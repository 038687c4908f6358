//! Resources that a job used in the phases that users marked. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_store::reader::{JobRow, MarkRow};
use serde::Serialize;

use crate::cumulative::Cumulative;
use crate::curve::Curve;
use crate::history;
use crate::model::{Phase, Report, SeriesReport};
use crate::resources::{CPU_TIME, first_of, of_metric};

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PhaseTotals {
    pub name: String,
    /// Phases with begin and end, on all nodes.
    pub count: u64,
    pub duration_s: f64,
    /// Sum over the phases' nodes; none where it is not known.
    pub cpu_s: Option<f64>,
    /// Cores in use, for phases for which they are known.
    pub cores_mean: Option<f64>,
    /// Peak of anonymous memory on a node.
    pub memory_bytes: Option<f64>,
    pub written_bytes: Option<f64>,
    /// Sum over the phases' nodes; none where it is not known.
    pub energy_joules: Option<f64>,
}

/// None without points.
fn peak(curve: &Curve, span_ns: &Range<i64>) -> Option<f64> {
    let inside = curve.intervals().iter().filter(|interval| span_ns.contains(&interval.time_ns));
    inside.map(|interval| interval.max).filter(|max| max.is_finite()).reduce(f64::max)
}

/// Spans of the phases of a name with their nodes, in nanoseconds since the epoch. They do not overlap on a
/// node; a phase without an end lasts as long as the job.
pub fn spans_of(marks: Vec<MarkRow>, name: &str, job: &JobRow) -> Vec<(String, Range<i64>)> {
    let (phases, _) = history::phases(marks, job.started_ns);
    let end_us = job.sampled_ns.end.div_euclid(1000);
    let of_name = phases.iter().filter(|phase| phase.name == name);
    let spans =
        of_name.filter_map(|phase| Some((&*phase.node, phase.begin_us?..phase.end_us.unwrap_or(end_us))));
    joined(spans)
}

/// Joins the spans of a node that overlap, in microseconds, and returns them in nanoseconds.
pub(crate) fn joined<'a>(
    spans: impl IntoIterator<Item = (&'a str, Range<i64>)>,
) -> Vec<(String, Range<i64>)> {
    let mut spans: Vec<(&str, Range<i64>)> = spans.into_iter().collect();
    spans.sort_by_key(|(node, span_us)| (*node, span_us.start));
    let mut joined: Vec<(String, Range<i64>)> = Vec::new();
    for (node, span_us) in spans {
        let span_ns = span_us.start.saturating_mul(1000)..span_us.end.saturating_mul(1000);
        match joined.last_mut() {
            Some((of, last)) if of == node && span_ns.start <= last.end => {
                last.end = last.end.max(span_ns.end)
            }
            _ => joined.push((node.to_owned(), span_ns)),
        }
    }
    joined
}

/// Those with the longest duration come first.
pub fn totals(report: &Report) -> Vec<PhaseTotals> {
    let mut by_node: BTreeMap<&str, Vec<&SeriesReport>> = BTreeMap::new();
    for series in report.series.iter().filter(|series| !series.is_of_step) {
        by_node.entry(&series.node).or_default().push(series);
    }
    let mut totals: BTreeMap<&str, (PhaseTotals, f64)> = BTreeMap::new();
    for phase in &report.phases {
        let (Some(begin_us), Some(end_us)) = (phase.begin_us, phase.end_us) else { continue };
        let entry = totals.entry(&phase.name).or_default();
        let series = by_node.get(phase.node.as_str()).map(Vec::as_slice).unwrap_or_default();
        let span_ns = begin_us.saturating_mul(1000)..end_us.saturating_mul(1000);
        add(entry, phase, series, &span_ns);
        let energy = report.node_energy.get(&phase.node).and_then(|energy| energy.joules(&span_ns));
        if let Some(joules) = energy {
            *entry.0.energy_joules.get_or_insert_default() += joules;
        }
    }
    let mut totals: Vec<PhaseTotals> = totals
        .into_iter()
        .map(|(name, (totals, known_s))| {
            let cores_mean = totals.cpu_s.filter(|_| known_s > 0.0).map(|cpu_s| cpu_s / known_s);
            PhaseTotals { name: name.to_owned(), cores_mean, ..totals }
        })
        .collect();
    totals.sort_by(|one, other| other.duration_s.total_cmp(&one.duration_s));
    totals
}

/// Adds a phase to the totals, and to the duration for which the CPU time is known.
fn add(
    (totals, known_s): &mut (PhaseTotals, f64),
    phase: &Phase,
    series: &[&SeriesReport],
    span_ns: &Range<i64>,
) {
    let length_s = phase.begin_s.zip(phase.end_s).map_or(0.0, |(begin_s, end_s)| end_s - begin_s);
    totals.count += 1;
    totals.duration_s += length_s;
    let increase = |series: &SeriesReport| Cumulative::of_rates(&series.curve).increase(span_ns);
    let cpu_s = first_of(series, &CPU_TIME).into_iter().filter_map(increase).reduce(|sum, cpu_s| sum + cpu_s);
    if let Some(cpu_s) = cpu_s {
        *known_s += length_s;
        totals.cpu_s = Some(totals.cpu_s.unwrap_or_default() + cpu_s);
    }
    let memory = of_metric(series, "memory.anon").filter_map(|series| peak(&series.curve, span_ns));
    totals.memory_bytes = memory.chain(totals.memory_bytes).reduce(f64::max);
    let written = of_metric(series, "io.write.bytes").filter_map(increase);
    if let Some(written) = written.reduce(|sum, written| sum + written) {
        totals.written_bytes = Some(totals.written_bytes.unwrap_or_default() + written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{START_S, busy, gauge, report};

    fn phase(name: &str, begin_s: f64, end_s: f64, begin: i64, end: i64) -> Phase {
        Phase {
            name: name.to_owned(),
            node: "n1".to_owned(),
            begin_s: Some(begin_s),
            begin_us: Some((START_S + begin) * 1_000_000),
            end_s: Some(end_s),
            end_us: Some((START_S + end) * 1_000_000),
            actor: None,
        }
    }

    #[test]
    fn phases_of_one_name_are_added() {
        let cores: Vec<f64> = (0..60).map(|minute| if minute < 30 { 2.0 } else { 6.0 }).collect();
        let memory: Vec<f64> = (0..60).map(f64::from).collect();
        let mut report = report(60, 8, vec![busy("n1", &cores), gauge("memory.anon", &memory)]);
        report.phases = vec![
            phase("solve", 0.0, 600.0, 0, 600),
            phase("write", 1200.0, 1260.0, 1200, 1260),
            phase("solve", 1800.0, 2400.0, 1800, 2400),
            Phase { end_us: None, ..phase("open", 0.0, 1.0, 0, 1) },
            phase("later", 9000.0, 9001.0, 9000, 9001),
        ];
        let totals = totals(&report);
        let names: Vec<_> =
            totals.iter().map(|totals| (totals.name.as_str(), totals.count, totals.duration_s)).collect();
        assert_eq!(names, [("solve", 2, 1200.0), ("write", 1, 60.0), ("later", 1, 1.0)]);
        assert_eq!(
            (totals[0].cpu_s, totals[0].cores_mean, totals[0].memory_bytes),
            (Some(4800.0), Some(4.0), Some(39.0))
        );
        assert_eq!((totals[2].cpu_s, totals[2].cores_mean, totals[2].memory_bytes), (None, None, None));
    }
}
