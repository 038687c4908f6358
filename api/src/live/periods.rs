//! Descriptions of series, with the periods that the plan gives them.

use std::collections::HashMap;

use polymeter_store::accepted::SeriesRecord;
use polymeter_store::reader::{PlanChangeRow, SeriesRow};
use serde_json::{Value, json};

use crate::answer::{level, rows};

/// Time between two values, in microseconds, by level and metric.
type NodePeriods = HashMap<(Option<String>, String), Option<i64>>;

/// Present periods by node.
#[derive(Debug, Default)]
pub(crate) struct Periods(HashMap<String, NodePeriods>);

impl Periods {
    /// Records changes in the order of their times.
    pub(crate) fn of(changes: &[PlanChangeRow]) -> Self {
        let mut periods = Self::default();
        changes.iter().for_each(|change| periods.change(change));
        periods
    }

    pub(super) fn change(&mut self, change: &PlanChangeRow) {
        let of_node = self.0.entry(change.node.clone()).or_default();
        of_node.insert(
            (change.level.clone(), change.metric.clone()),
            change.new_window_us.or(change.new_period_us),
        );
    }

    /// Adds what the other knows of metrics without a recorded change.
    pub(super) fn complete(&mut self, other: Self) {
        for (node, metrics) in other.0 {
            let of_node = self.0.entry(node).or_default();
            for (metric, period_us) in metrics {
                of_node.entry(metric).or_insert(period_us);
            }
        }
    }

    fn of_series(&self, row: &SeriesRow) -> Option<i64> {
        let metric = (level(row).map(str::to_owned), row.metric.clone());
        self.0.get(&row.node)?.get(&metric).copied().flatten()
    }
}

pub(crate) fn describe(row: &SeriesRow, periods: &Periods) -> Value {
    let mut description = rows::SERIES.object(row);
    if let Some(members) = description.as_object_mut() {
        members.insert("period_us".to_owned(), json!(periods.of_series(row)));
    }
    description
}

pub(super) fn row(series_id: i64, series: &SeriesRecord) -> SeriesRow {
    SeriesRow {
        series_id,
        node: series.node().to_string(),
        metric: series.metric.name.as_str().to_owned(),
        unit: series.metric.unit.as_str().to_owned(),
        kind: series.metric.kind.as_str().to_owned(),
        labels: series.labels.as_ref().clone(),
    }
}
