//! The choice of the parts of a report that a command shows.

use polymeter_analysis::model::Report;

use super::detail::Detail;
use super::{completeness, events, first_screen, groups, paragraph, processes, series};
use crate::output::printable::printable_lines;
use crate::output::style::{Line, painted};
use crate::report::summary::headline;

/// The parts of a report that are shown instead of the first screen.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Sections {
    /// Show all findings.
    #[arg(long)]
    findings: bool,

    /// Show the nodes, and the imbalance between them.
    #[arg(long)]
    nodes: bool,

    /// Show the steps.
    #[arg(long)]
    steps: bool,

    /// Show the tasks of steps, and the imbalance between them.
    #[arg(long)]
    tasks: bool,

    /// Show the busiest processes, if the agent samples `busiest.*`.
    #[arg(long)]
    processes: bool,

    /// Show the series that changed, with their course.
    #[arg(long)]
    series: bool,

    /// Show the totals of phases, and the marks.
    #[arg(long)]
    phases: bool,

    /// Show the changes of the sampling plan and the refused requests.
    #[arg(long)]
    plan: bool,

    /// Show the completeness of the samples, and each loss.
    #[arg(long)]
    losses: bool,
}

impl Sections {
    /// Returns true if a part was chosen.
    pub(crate) const fn is_any(self) -> bool {
        let Self { findings, nodes, steps, tasks, processes, series, phases, plan, losses } = self;
        findings || nodes || steps || tasks || processes || series || phases || plan || losses
    }

    /// Lays out the chosen parts below the first line.
    pub(crate) fn text(
        self,
        report: &Report,
        detail: Detail,
        limit: Option<usize>,
        has_colours: bool,
    ) -> String {
        let mut parts = Vec::new();
        if self.findings {
            let lines: Vec<Line> = first_screen::findings(report, limit.unwrap_or(usize::MAX), usize::MAX);
            parts.push(painted(&lines, has_colours));
        }
        let mut add = |is_chosen: bool, text: &dyn Fn() -> String| {
            if is_chosen {
                parts.push(printable_lines(&text()).into_owned());
            }
        };
        add(self.nodes, &|| groups::nodes(report, detail, limit));
        add(self.steps, &|| groups::steps(report, detail, limit));
        add(self.tasks, &|| groups::tasks(report, detail, limit));
        add(self.processes, &|| processes::text(report, detail, limit));
        add(self.series, &|| series::text(report, detail, limit));
        add(self.phases, &|| groups::phases(report, detail, limit));
        add(self.phases, &|| events::marks(report, detail, limit));
        add(self.plan, &|| {
            let text = events::plan(report, detail, limit);
            if text.is_empty() { paragraph::remark("the sampling plan did not change", limit) } else { text }
        });
        add(self.losses, &|| completeness::text(report, limit));
        add(self.losses, &|| completeness::sources(report, limit));
        parts.retain(|part| !part.trim().is_empty());
        format!("{}\n{}", printable_lines(&headline(report)), parts.join("\n"))
    }
}
