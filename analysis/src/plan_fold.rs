//! Changes of the plan, folded where there are many: a flood of requests makes hundreds of thousands. Pure.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use polymeter_store::reader::PlanChangeRow;

/// Most changes that are listed one by one, and most lines of folded ones.
pub const LINES_MAX: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedChange {
    /// First of its changes. The metric of several is named `cpu.usage and 3 more`.
    pub row: PlanChangeRow,
    pub changes: u64,
    /// Time of the last change, since the epoch, if they were not all at once.
    pub last_ns: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoldedChanges {
    /// Sorted by their first changes.
    pub lines: Vec<FoldedChange>,
    /// Changes without a line.
    pub left_out: u64,
}

impl From<PlanChangeRow> for FoldedChange {
    fn from(row: PlanChangeRow) -> Self {
        Self { row, changes: 1, last_ns: None }
    }
}

impl FoldedChanges {
    /// Folds changes, which are in the order of their times, if there are more than [`LINES_MAX`]: those that
    /// differ in the metric only are one, and so are those that repeat it later.
    pub fn of(rows: Vec<PlanChangeRow>) -> Self {
        if rows.len() <= LINES_MAX {
            return Self { lines: rows.into_iter().map(FoldedChange::from).collect(), left_out: 0 };
        }
        let mut folded = Self::default();
        let mut by_pattern: HashMap<u64, Option<usize>> = HashMap::new();
        for group in rows.chunk_by(is_same_but_metric) {
            let Some(first) = group.first() else { continue };
            let count = group.len() as u64;
            let place = by_pattern.entry(pattern(group)).or_insert_with(|| {
                (folded.lines.len() < LINES_MAX).then(|| {
                    let metric = match group.len() {
                        1 => first.metric.clone(),
                        several => format!("{} and {} more", first.metric, several - 1),
                    };
                    let row = PlanChangeRow { metric, ..first.clone() };
                    folded.lines.push(FoldedChange { row, changes: 0, last_ns: None });
                    folded.lines.len() - 1
                })
            });
            match place.and_then(|place| folded.lines.get_mut(place)) {
                Some(line) => {
                    line.changes += count;
                    line.last_ns = Some(first.time_ns).filter(|last_ns| *last_ns != line.row.time_ns);
                }
                None => folded.left_out += count,
            }
        }
        folded
    }

    /// None if nothing was folded.
    pub fn note(&self) -> Option<String> {
        let listed: u64 = self.lines.iter().map(|line| line.changes).sum();
        let left_out = match self.left_out {
            0 if listed == self.lines.len() as u64 => return None,
            0 => String::new(),
            count => format!("; {count} others are not listed"),
        };
        Some(format!(
            "{listed} changes of the plan are folded into {} lines: those that differ in the metric only, and those that \
             repeat others{left_out}",
            self.lines.len()
        ))
    }
}

fn is_same_but_metric(one: &PlanChangeRow, other: &PlanChangeRow) -> bool {
    one.time_ns == other.time_ns && one.until_ns == other.until_ns && parts(one) == parts(other)
}

/// What the repetitions of a change have in common, besides the metric.
fn parts(row: &PlanChangeRow) -> impl Hash + PartialEq + '_ {
    let (level, actor) = (row.level.as_deref(), row.actor.as_deref());
    (&row.node, level, row.old_sampling(), row.new_sampling(), &row.cause, actor)
}

/// Number that groups of changes have in common if they are equal but for their times.
fn pattern(group: &[PlanChangeRow]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for row in group {
        parts(row).hash(&mut hasher);
        row.metric.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(time: i64, metric: &str, new_period_us: Option<i64>) -> PlanChangeRow {
        PlanChangeRow {
            time_ns: time,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            old_period_us: None,
            new_period_us,
            old_window_us: None,
            new_window_us: None,
            cause: "lease".to_owned(),
            actor: Some("zoe".to_owned()),
            until_ns: Some(time + 100),
            level: None,
        }
    }

    #[test]
    fn a_flood_is_folded_into_its_patterns() {
        let metrics: Vec<String> = (0..60).map(|number| format!("m.{number:02}")).collect();
        let set =
            |time: i64, period_us| metrics.iter().map(move |metric| change(time, metric, Some(period_us)));
        let flood: Vec<PlanChangeRow> = (0..1500).flat_map(|time| set(time, 1000 + time % 3)).collect();
        let folded = FoldedChanges::of(flood);
        let lines: Vec<(&str, u64, Option<i64>)> =
            folded.lines.iter().map(|line| (line.row.metric.as_str(), line.changes, line.last_ns)).collect();
        let name = "m.00 and 59 more";
        assert_eq!(
            lines,
            [(name, 30_000, Some(1497)), (name, 30_000, Some(1498)), (name, 30_000, Some(1499))]
        );
        assert!(folded.note().unwrap().starts_with("90000 changes of the plan are folded into 3 lines"));
    }

    #[test]
    fn few_changes_are_listed_one_by_one() {
        let rows: Vec<PlanChangeRow> = (0..1000).map(|time| change(time, "cpu.usage", Some(7))).collect();
        let folded = FoldedChanges::of(rows.clone());
        assert_eq!(folded.lines.iter().map(|line| line.row.clone()).collect::<Vec<_>>(), rows);
        assert_eq!((folded.note(), folded.left_out), (None, 0));
    }

    #[test]
    fn patterns_without_end_are_bounded_and_counted() {
        let rows: Vec<PlanChangeRow> =
            (0..5000).map(|time| change(time, "cpu.usage", Some(time + 1000))).collect();
        let folded = FoldedChanges::of(rows);
        assert_eq!((folded.lines.len(), folded.left_out), (LINES_MAX, 4000));
        assert!(folded.note().unwrap().ends_with("; 4000 others are not listed"));
    }
}
