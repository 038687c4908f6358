//! Levels of the parts of a job.

use serde::{Deserialize, Serialize};

use crate::units::counted;

/// Part of a job to which the scheduler gives cgroups of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepLevel {
    Step,
    Task,
}

impl StepLevel {
    pub const ALL: [Self; 2] = [Self::Step, Self::Task];

    /// Returns the name in requests, answers and the database, which is also the label of its series.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Task => "task",
        }
    }

    /// Returns the prefix of this level's selectors in a sampling request at submission.
    pub const fn selector_prefix(self) -> &'static str {
        match self {
            Self::Step => "steps:",
            Self::Task => "tasks:",
        }
    }

    /// Returns the level of a series, given whether it has a label; none for a whole job or a node.
    pub fn of_labels(has_label: impl Fn(&str) -> bool) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|level| has_label(level.as_str()))
    }

    /// Formats a number of steps or tasks: `1 step`, `3 tasks`.
    pub fn counted(self, count: usize) -> String {
        counted(count, self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_of_a_series_state_its_level() {
        let level = |labels: &[&str]| StepLevel::of_labels(|label| labels.contains(&label));
        assert_eq!(level(&[]), None);
        assert_eq!(level(&["device"]), None);
        assert_eq!(level(&["step"]), Some(StepLevel::Step));
        assert_eq!(level(&["step", "task"]), Some(StepLevel::Task));
    }

    #[test]
    fn numbers_are_counted_in_words() {
        assert_eq!(StepLevel::Step.counted(1), "1 step");
        assert_eq!(StepLevel::Task.counted(0), "0 tasks");
    }
}
