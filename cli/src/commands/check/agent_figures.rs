//! Figures of an agent, from its own status or from the store, with their usual thresholds.

use std::path::Path;

use polymeter_agent::config::AgentConfig;
use polymeter_proto::units;

use super::range::Range;
use super::verdict::Figure;

/// Agents send at least every 30 s.
const AGE_WARNING_S: u64 = 60;

const AGE_CRITICAL_S: u64 = 300;

/// Percentages of the samples.
const LATE_WARNING: u64 = 5;
const LATE_CRITICAL: u64 = 20;

/// Limits of an agent's cost, by its configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budgets {
    cpu_percent: u64,
    /// Memory for samples that wait for the collector.
    memory_bytes: u64,
}

impl Budgets {
    /// The usual ones if there is no such file, or it cannot be read.
    pub(super) fn of(config: &Path) -> Self {
        let config = AgentConfig::load(config).unwrap_or_else(|_faults| AgentConfig::standard());
        Self { cpu_percent: config.limits.node_cpu_percent, memory_bytes: config.outbox_bytes as u64 }
    }
}

/// What is known of an agent. Counts and CPU time are those of an interval.
#[derive(Debug, Default)]
pub(super) struct AgentFigures {
    pub(super) interval_s: f64,
    pub(super) newest_age_s: Option<f64>,
    /// Samples that were missed, dropped or refused.
    pub(super) lost: Option<u64>,
    pub(super) due: Option<u64>,
    pub(super) late: Option<u64>,
    pub(super) cpu_ns: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
    /// Samples that wait for the collector.
    pub(super) backlog_bytes: Option<u64>,
}

impl AgentFigures {
    pub(super) fn judged(&self, budgets: Budgets) -> Vec<Figure> {
        vec![
            self.age(),
            self.loss(),
            self.lateness(),
            self.memory(budgets),
            self.cpu(budgets),
            self.backlog(),
        ]
    }

    fn age(&self) -> Figure {
        Figure {
            name: "age",
            value: self.newest_age_s,
            unit: "s",
            text: self.newest_age_s.map_or_else(
                || "no data yet".to_owned(),
                |age_s| format!("newest data {} old", units::elapsed(age_s)),
            ),
            warning: Some(Range::up_to(AGE_WARNING_S)),
            critical: Some(Range::up_to(AGE_CRITICAL_S)),
            max: None,
        }
    }

    fn loss(&self) -> Figure {
        let interval = units::elapsed(self.interval_s);
        Figure {
            name: "loss",
            value: self.lost.map(units::to_f64),
            unit: "",
            text: self.lost.map_or_else(
                || "loss unknown".to_owned(),
                |lost| format!("{} lost in {interval}", units::counted(lost, "sample")),
            ),
            warning: Some(Range::up_to(0)),
            critical: None,
            max: None,
        }
    }

    fn lateness(&self) -> Figure {
        let percent = match (self.late, self.due) {
            (Some(_), Some(0)) => Some(0.0),
            (Some(late), Some(due)) => Some(100.0 * units::to_f64(late) / units::to_f64(due)),
            _ => None,
        };
        Figure {
            name: "late",
            value: percent,
            unit: "%",
            text: percent
                .map_or_else(|| "lateness unknown".to_owned(), |percent| format!("{percent:.1} % late")),
            warning: Some(Range::up_to(LATE_WARNING)),
            critical: Some(Range::up_to(LATE_CRITICAL)),
            max: Some(100),
        }
    }

    fn memory(&self, budgets: Budgets) -> Figure {
        Figure {
            name: "memory",
            value: self.resident_bytes.map(units::to_f64),
            unit: "B",
            text: self.resident_bytes.map_or_else(
                || "memory unknown".to_owned(),
                |bytes| format!("{} memory", units::bytes(bytes)),
            ),
            warning: Some(Range::up_to(budgets.memory_bytes)),
            critical: Some(Range::up_to(budgets.memory_bytes.saturating_mul(2))),
            max: None,
        }
    }

    fn cpu(&self, budgets: Budgets) -> Figure {
        let percent = self.cpu_ns.filter(|_| self.interval_s > 0.0);
        let percent = percent.map(|cpu_ns| units::to_f64(cpu_ns) / 1e7 / self.interval_s);
        Figure {
            name: "cpu",
            value: percent,
            unit: "%",
            text: percent
                .map_or_else(|| "CPU unknown".to_owned(), |percent| format!("{percent:.1} % of a CPU")),
            warning: Some(Range::up_to(budgets.cpu_percent)),
            critical: Some(Range::up_to(budgets.cpu_percent.saturating_mul(2))),
            max: None,
        }
    }

    fn backlog(&self) -> Figure {
        Figure {
            name: "backlog",
            value: self.backlog_bytes.map(units::to_f64),
            unit: "B",
            text: self.backlog_bytes.map_or_else(
                || "backlog unknown".to_owned(),
                |bytes| format!("{} waiting", units::bytes(bytes)),
            ),
            warning: None,
            critical: None,
            max: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::check::threshold::Thresholds;
    use crate::commands::check::verdict::{State, Verdict};

    const BUDGETS: Budgets = Budgets { cpu_percent: 20, memory_bytes: 64 << 20 };

    fn verdict(figures: &AgentFigures) -> Verdict {
        let figures = figures.judged(BUDGETS);
        Verdict { subject: "agent of n1".to_owned(), problems: Vec::new(), figures }
    }

    fn figures() -> AgentFigures {
        AgentFigures {
            interval_s: 2.0,
            newest_age_s: Some(0.25),
            lost: Some(0),
            due: Some(400),
            late: Some(10),
            cpu_ns: Some(8_000_000),
            resident_bytes: Some(9 << 20),
            backlog_bytes: Some(0),
        }
    }

    #[test]
    fn a_healthy_agent_is_ok() {
        let verdict = verdict(&figures());
        assert_eq!(verdict.state(), State::Ok);
        assert_eq!(
            verdict.line(),
            "POLYMETER OK - agent of n1: newest data 250 ms old, 0 samples lost in 2 s, 2.5 % late, \
             9 MiB memory, 0.4 % of a CPU, 0 B waiting \
             | age=0.25s;60;300;0; loss=0;0;;0; late=2.5%;5;20;0;100 memory=9437184B;67108864;134217728;0; \
             cpu=0.4%;20;40;0; backlog=0B;;;0;"
        );
    }

    #[test]
    fn what_is_wrong_comes_first_and_the_worst_decides() {
        let verdict = verdict(&AgentFigures { lost: Some(7), newest_age_s: Some(400.0), ..figures() });
        assert_eq!(verdict.state(), State::Critical);
        let line = verdict.line();
        let expected =
            "POLYMETER CRITICAL - agent of n1: newest data 6 min 40 s old (range 300), 7 samples lost";
        assert!(line.starts_with(expected), "{line}");
    }

    #[test]
    fn unknown_figures_are_no_alert() {
        let verdict = verdict(&AgentFigures::default());
        assert_eq!(verdict.state(), State::Ok);
        assert!(verdict.line().contains("age=U;60;300;0; loss=U;"), "{}", verdict.line());
    }

    #[test]
    fn thresholds_of_the_user_replace_the_usual_ones() {
        use clap::{Args as _, FromArgMatches as _};
        let command = Thresholds::augment_args(clap::Command::new("check"));
        let given = command.get_matches_from(["check", "-w", "late=@2:3", "-c", "age=10:"]);
        let thresholds = Thresholds::from_arg_matches(&given).unwrap();
        let mut verdict = verdict(&figures());
        verdict.apply(&thresholds).unwrap();
        assert_eq!(verdict.state(), State::Critical);
        let line = verdict.line();
        assert!(line.contains("age=0.25s;60;10:;0;") && line.contains("late=2.5%;@2:3;20;0;100"), "{line}");
        assert!(line.contains("2.5 % late (range @2:3)"), "{line}");
        verdict.figures.retain(|figure| figure.name != "late");
        let refused = verdict.apply(&thresholds).unwrap_err().to_string();
        assert!(refused.contains("`late`") && refused.contains("age, loss, memory, cpu"), "{refused}");
    }
}
