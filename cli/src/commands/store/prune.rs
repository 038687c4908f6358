//! `polymeter store prune`: removes what retention does not keep.

use std::io::IsTerminal;

use polymeter_store::{Administration, Part, Pruned, prune};
use serde::Serialize;

use crate::calendar::{Date, date};
use crate::client::store_choice::StoreChoice;
use crate::failure::Failure;
use crate::output::table::{figure, head, table_within};
use crate::output::{terminal, units};
use crate::store_failure::store_failure;

#[derive(Debug, clap::Args)]
pub(crate) struct PruneArguments {
    #[command(flatten)]
    store: StoreChoice,

    /// Show what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,

    /// Also remove samples before this day, as YYYY-MM-DD in UTC, even if retention keeps them. Their
    /// summaries stay.
    #[arg(long, value_name = "DATE")]
    before: Option<Date>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Line {
    relation: &'static str,
    /// Chunk or partition; null for rows of a table.
    part: Option<String>,
    from: String,
    to: String,
    bytes: Option<u64>,
    kept_jobs: Vec<i64>,
    /// `due`, `removed`, or `postponed` until its summaries are complete.
    state: &'static str,
}

impl Line {
    fn new(part: &Part, state: &'static str) -> Self {
        Self {
            relation: part.level.relation(),
            part: part.name.clone(),
            from: date(part.begin_us),
            to: date(part.end_us),
            bytes: part.bytes,
            kept_jobs: part.kept_jobs.clone(),
            state,
        }
    }
}

pub(super) fn execute(arguments: &PruneArguments) -> Result<(), Failure> {
    let failed = |error| store_failure("cannot prune the store", &error);
    let url = arguments.store.resolve()?;
    let before_us = arguments.before.map(|before| before.begin_us);
    let mut lines = Vec::new();
    if arguments.dry_run {
        let mut store = Administration::open(&url).map_err(failed)?;
        lines.extend(store.due(before_us).map_err(failed)?.iter().map(|part| Line::new(part, "due")));
    } else {
        // A person who waits sees the progress; the table follows.
        let shows_progress = !arguments.json && std::io::stderr().is_terminal();
        if shows_progress {
            terminal::print_error("completing the summaries of old samples, which may take minutes ...\n");
        }
        let pruned = prune(&url, before_us, |part, pruned| {
            let state = if pruned == Pruned::Postponed { "postponed" } else { "removed" };
            let line = Line::new(part, state);
            if shows_progress {
                terminal::print_error(&format!(
                    "{state} {} from {} to {}\n",
                    line.relation, line.from, line.to
                ));
            }
            lines.push(line);
        });
        pruned.map_err(failed)?;
    }
    if arguments.json {
        return terminal::print_json(&lines);
    }
    terminal::print(&text(&lines, terminal::width_limit(&std::io::stdout())))
}

fn text(lines: &[Line], limit: Option<usize>) -> String {
    if lines.is_empty() {
        return "nothing is older than retention keeps it\n".to_owned();
    }
    let mut rows = vec![head(["RELATION", "FROM", "TO", "SIZE", "STATE"])];
    for line in lines {
        let kept = match line.kept_jobs.len() {
            0 => "",
            1 => ", except for a kept job",
            _ => ", except for kept jobs",
        };
        rows.push(vec![
            line.relation.to_owned(),
            line.from.clone(),
            line.to.clone(),
            figure(line.bytes, units::bytes),
            format!("{}{kept}", line.state),
        ]);
    }
    let table = table_within(&rows, limit);
    let bytes: u64 = lines.iter().filter_map(|line| line.bytes).sum();
    if bytes == 0 { table } else { format!("{table}\n{} in all\n", units::bytes(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    fn line(
        relation: &'static str,
        day: &str,
        bytes: Option<u64>,
        kept_jobs: Vec<i64>,
        state: &'static str,
    ) -> Line {
        Line {
            relation,
            part: None,
            from: format!("2026-08-{day}"),
            to: "2026-08-24".to_owned(),
            bytes,
            kept_jobs,
            state,
        }
    }

    #[test]
    fn parts_are_laid_out_as_recorded() {
        let lines = [
            line("samples", "22", Some(3_200_000_000), vec![], "removed"),
            line("samples", "23", Some(3_300_000_000), vec![7, 9], "removed"),
            line("samples_10s", "23", None, vec![7], "postponed"),
        ];
        snapshot::check("store-prune", &text(&lines, Some(80)));
        assert_eq!(text(&[], None), "nothing is older than retention keeps it\n");
    }
}
