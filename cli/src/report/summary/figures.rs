//! Figures of tables, as text. Pure.

use polymeter_analysis::model::Report;
use polymeter_analysis::phases;
use polymeter_proto::units;

use crate::output::table::figure;

pub(crate) fn cores(value: Option<f64>) -> String {
    figure(value, |cores| format!("{cores:.2}"))
}

pub(crate) fn bytes(value: Option<f64>) -> String {
    figure(value, |bytes| units::value("bytes", bytes))
}

pub(crate) fn joules(value: Option<f64>) -> String {
    figure(value, |joules| units::value("joules", joules))
}

/// Lists periods with the time for which each was in force, in seconds; of more than `most` the number.
pub(crate) fn periods(in_force: &[(&str, f64)], most: usize) -> String {
    match in_force {
        [] => "-".to_owned(),
        [(only, _)] => (*only).to_owned(),
        several => {
            let listed: Vec<String> = several
                .iter()
                .take(most)
                .map(|(period, seconds)| format!("{period} for {}", units::elapsed(*seconds)))
                .collect();
            let hidden = several.len().saturating_sub(most);
            let others =
                if hidden > 0 { format!(", {}", units::counted(hidden, "other")) } else { String::new() };
            listed.join(", ") + &others
        }
    }
}

/// Names the nodes for which a figure is known, behind it; empty if these are all nodes of the job.
pub(super) fn on_nodes(known: u64, report: &Report) -> String {
    let all = report.nodes.len();
    if known == all as u64 {
        String::new()
    } else {
        format!(" on {known} of {}", units::counted(all, "node"))
    }
}

/// Names of the columns, and a row for each phase, the longest first.
pub(crate) fn phase_totals(report: &Report) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let totals = phases::totals(report);
    let has_energy = totals.iter().any(|phase| phase.energy_joules.is_some());
    let mut head = vec!["phase", "times", "duration", "share", "cores used", "memory", "written"];
    head.extend(has_energy.then_some("energy"));
    let mut rows = Vec::new();
    for phase in totals {
        let share = Some(phase.duration_s / report.wall_s).filter(|share| share.is_finite());
        let mut row = vec![
            phase.name,
            phase.count.to_string(),
            units::elapsed(phase.duration_s),
            figure(share, |share| units::value("percent", 100.0 * share)),
            cores(phase.cores_mean),
            bytes(phase.memory_bytes),
            bytes(phase.written_bytes),
        ];
        row.extend(has_energy.then(|| joules(phase.energy_joules)));
        rows.push(row);
    }
    (head, rows)
}

/// Spread of CPU time between the parts of a job.
pub(crate) struct Imbalance<'a> {
    /// Largest time over the mean.
    pub(crate) ratio: f64,
    /// Part with the largest time.
    pub(crate) most: (&'a str, String),
    /// Part with the smallest time.
    pub(crate) least: (&'a str, String),
}

impl<'a> Imbalance<'a> {
    pub(crate) fn of_nodes(report: &'a Report) -> Option<Self> {
        Self::of(report.by_node.iter().map(|node| (node.node.as_str(), node.used.cpu_s)))
    }

    /// Figures with the name of each step.
    pub(crate) fn of_steps(report: &'a Report) -> impl Iterator<Item = (&'a str, Option<Self>)> {
        report.tasks.chunk_by(|one, other| one.step == other.step).map(|tasks| {
            let step = tasks.first().map_or("", |task| task.step.as_str());
            (step, Self::of(tasks.iter().map(|task| (task.task.as_str(), task.used.cpu_s))))
        })
    }

    /// Takes names and CPU times in seconds; none for fewer than two parts whose times are known, and for
    /// idle ones.
    fn of(parts: impl Iterator<Item = (&'a str, Option<f64>)>) -> Option<Self> {
        let known: Vec<(&str, f64)> = parts.filter_map(|(name, cpu_s)| Some((name, cpu_s?))).collect();
        let (most, most_s) = known.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let (least, least_s) = known.iter().min_by(|one, other| one.1.total_cmp(&other.1))?;
        let mean_s = known.iter().map(|(_, cpu_s)| cpu_s).sum::<f64>() / units::to_f64(known.len() as u64);
        if known.len() < 2 || mean_s <= 0.0 {
            return None;
        }
        Some(Self {
            ratio: most_s / mean_s,
            most: (most, units::elapsed(*most_s)),
            least: (least, units::elapsed(*least_s)),
        })
    }
}
