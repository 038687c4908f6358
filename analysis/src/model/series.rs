//! Summary of one series in a report.

use polymeter_proto::units;
use serde::Serialize;

use crate::curve::Curve;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeriodUse {
    pub period: String,
    pub seconds: f64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct SeriesReport {
    pub metric: String,
    /// `key=value,...`.
    pub labels: String,
    pub node: String,
    pub unit: String,
    /// `counter` or `gauge`.
    pub kind: String,
    /// Unit of `min`, `mean` and `max` of a counter; none for a gauge, where it is `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_unit: Option<&'static str>,
    /// Shortest window of a counter's rates; none if each lies between two samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_s: Option<f64>,
    /// Time between two samples within windows, of a counter whose `min` and `max` are rates within windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_s: Option<f64>,
    /// True if a rate exceeds the capacity of the node's CPUs even over the whole time, and was lowered to
    /// it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_clamped: bool,
    /// True if it was not sampled, but computed from others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_derived: bool,
    /// Number of samples; of a derived metric, the times for which it was computed.
    pub samples: u64,
    /// Last one in force.
    pub period: Option<String>,
    /// Each period that was in force and for how long, in the order of their begin.
    pub periods: Vec<PeriodUse>,
    /// Time of the first sample, since the epoch.
    pub first_us: i64,
    pub last_us: i64,
    /// Least value of a gauge, or least rate of a counter in `rate_unit`. The unit of `mean` and `max` is the
    /// same.
    pub min: Option<f64>,
    pub mean: Option<f64>,
    pub max: Option<f64>,
    pub growth: Option<f64>,
    #[serde(skip)]
    pub step: Option<String>,
    #[serde(skip)]
    pub task: Option<String>,
    /// True if it belongs to a step or a task, whose values are contained in the job's own.
    #[serde(skip)]
    pub is_of_step: bool,
    /// True if its bytes are those of other series, as those of a volume are on its disks: sums leave it out.
    pub is_contained: bool,
    /// Values of a gauge, or rates of a counter, over time.
    #[serde(skip)]
    pub curve: Curve,
}

impl SeriesReport {
    /// Metric with its labels; with the node in front if the job has several.
    pub fn name(&self, has_several_nodes: bool) -> String {
        let labels = if self.labels.is_empty() { String::new() } else { format!("{{{}}}", self.labels) };
        let node = if has_several_nodes { format!("{} ", self.node) } else { String::new() };
        format!("{node}{}{labels}", self.metric)
    }

    /// Value of the label that begins with `prefix`, such as `gpu=`.
    pub(crate) fn label(&self, prefix: &str) -> Option<&str> {
        self.labels.split(',').find_map(|label| label.strip_prefix(prefix))
    }

    pub fn point_text(&self, value: Option<f64>) -> String {
        let unit = self.rate_unit.unwrap_or(&self.unit);
        value.map_or_else(|| "-".to_owned(), |value| units::value(unit, value))
    }

    /// Returns true if its value changed, or it has too few samples to know.
    pub fn has_changed(&self) -> bool {
        match self.growth {
            Some(growth) => growth != 0.0,
            None => self.min != self.max || self.samples <= 2,
        }
    }
}
