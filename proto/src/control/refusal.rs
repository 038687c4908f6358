//! Refusal of a request.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::{Text, abridged_list};

/// Metrics that are listed per reason; further ones are counted.
const LISTED: usize = 3;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Code for programs: `invalid`, `forbidden`, `unknown_job`, ...
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Text for the user, never empty.
    pub message: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<Box<[UnavailableGroup]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Box<PredictedCost>>,
    /// Period or duration that would be granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

impl Refusal {
    pub fn new(code: &str, field: Option<&str>, message: &str) -> Self {
        Self {
            code: code.to_owned(),
            field: field.map(|field| Text::of(field).into()),
            message: Text::of(message),
            unavailable: None,
            cost: None,
            instead: None,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictedCost {
    pub cpu_percent: f64,
    pub samples_per_s: f64,
    pub bytes_per_s: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableGroup {
    pub reason: Text,
    pub metrics: Vec<String>,
}

impl UnavailableGroup {
    /// Groups metrics by the reason, in the order of first occurrence of the reasons.
    pub fn by_reason(unavailable: &[(String, String)]) -> Vec<Self> {
        let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
        for (metric, reason) in unavailable {
            match groups.iter_mut().find(|(known, _)| known == reason) {
                Some((_, metrics)) => metrics.push(metric.clone()),
                None => groups.push((reason, vec![metric.clone()])),
            }
        }
        groups.into_iter().map(|(reason, metrics)| Self { reason: Text::of(reason), metrics }).collect()
    }

    /// Lists the first metrics, and states the number of the others.
    pub fn metrics_text(&self) -> String {
        abridged_list(&self.metrics, LISTED)
    }
}

/// Format in messages: `cpu.user, cpu.system: REASON`.
impl fmt::Display for UnavailableGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.metrics_text(), self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_metrics_by_reason() {
        let unavailable = |metric: String, reason: &str| (metric, reason.to_owned());
        let mut all: Vec<_> =
            (0..70).map(|number| unavailable(format!("perf.m{number}"), "no counter")).collect();
        all.push(unavailable("cpu.usage".to_owned(), "no cgroup"));
        let groups = UnavailableGroup::by_reason(&all);
        let texts = groups.iter().map(ToString::to_string);
        let expected = ["perf.m0, perf.m1, perf.m2 and 67 more: no counter", "cpu.usage: no cgroup"];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
    }
}
