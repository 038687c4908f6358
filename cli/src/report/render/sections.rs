//! Choice of the parts of a report that a command shows.

use polymeter_analysis::model::Report;

use super::detail::Detail;
use super::{
    call_stacks, completeness, distributions, events, first_screen, groups, paragraph, processes, regions,
    roofline, series, usage,
};
use crate::output::printable::printable_lines;
use crate::output::style::painted;

/// A part of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Section {
    /// All findings.
    Findings,
    /// The totals: time, memory, I/O, traffic, energy, and the cost of measuring.
    Usage,
    /// The nodes, and the imbalance between them.
    Nodes,
    /// The steps.
    Steps,
    /// The tasks of steps, and the imbalance between them.
    Tasks,
    /// The busiest processes, if the agent samples `busiest.*`.
    Processes,
    /// The regions of instrumented programs.
    Regions,
    /// The roofline: operations and memory traffic against the roofs of the nodes, by phase.
    Roofline,
    /// Where the time went: the functions with the most time, if the agent samples `stacks.*`.
    Functions,
    /// The series that changed, with their course.
    Series,
    /// The triggers that fired: why, and what was done.
    Firings,
    /// The totals of phases, and the marks.
    Phases,
    /// The changes of the sampling plan and the refused requests.
    Plan,
    /// The completeness of the samples: each loss, and the ledger by source.
    Losses,
    /// The first screen and all parts without limits, with constant series.
    All,
}

/// The parts of a report that are shown instead of its beginning.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Sections {
    /// Show these parts, separated by commas: nodes,steps.
    #[arg(long = "show", value_name = "PART", value_delimiter = ',', value_enum)]
    chosen: Vec<Section>,
}

impl Sections {
    pub(super) fn are_all(&self) -> bool {
        self.chosen.contains(&Section::All)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    pub(super) fn text(&self, report: &Report, limit: Option<usize>, has_colours: bool) -> String {
        let (detail, columns) = (Detail::Summary, limit.unwrap_or(usize::MAX));
        let mut parts = vec![painted(&first_screen::verdict(report, columns), has_colours)];
        if self.chosen.contains(&Section::Findings) {
            parts.push(painted(&first_screen::findings(report, columns, usize::MAX), has_colours));
        }
        if self.chosen.contains(&Section::Firings) {
            let lines = first_screen::firings(report, columns, usize::MAX);
            let none = paragraph::remark("no trigger fired", limit);
            parts.push(if lines.is_empty() { none } else { painted(&lines, has_colours) });
        }
        let mut add = |section: Section, text: &dyn Fn() -> String| {
            if self.chosen.contains(&section) {
                parts.push(printable_lines(&text()).into_owned());
            }
        };
        add(Section::Usage, &|| usage::text(report, limit));
        add(Section::Nodes, &|| groups::nodes(report, detail, limit));
        add(Section::Steps, &|| groups::steps(report, detail, limit));
        add(Section::Tasks, &|| groups::tasks(report, detail, limit));
        add(Section::Processes, &|| processes::text(report, detail, limit));
        add(Section::Regions, &|| regions::text(report, detail, limit));
        add(Section::Roofline, &|| roofline::text(report, detail, limit));
        add(Section::Functions, &|| call_stacks::text(report, detail, limit));
        add(Section::Series, &|| distributions::text(report, detail, limit));
        add(Section::Series, &|| series::text(report, detail, limit));
        add(Section::Phases, &|| groups::phases(report, detail, limit));
        add(Section::Phases, &|| events::marks(report, detail, limit));
        add(Section::Plan, &|| {
            let text = events::plan(report, detail, limit);
            if text.is_empty() { paragraph::remark("the sampling plan did not change", limit) } else { text }
        });
        add(Section::Losses, &|| completeness::text(report, limit));
        add(Section::Losses, &|| completeness::sources(report, limit));
        parts.retain(|part| !part.trim().is_empty());
        parts.join("\n")
    }
}
