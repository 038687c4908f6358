//! The results of the runs, in memory and as lines of CSV.

use std::error::Error;

use polymeter_benches::statistics::Estimate;

use super::paper::{Figure, Paper, Run};

/// The values of a run, by the name of their figure.
pub(crate) type Values<'a> = Vec<(&'a str, f64)>;

/// The values of all runs until now: for each the cell, and one value for each figure.
#[derive(Debug, Default)]
pub(crate) struct Results {
    runs: Vec<(usize, Vec<Option<f64>>)>,
    figures: Vec<String>,
}

pub(crate) fn columns(paper: &Paper) -> String {
    let figures = paper.measured().map(|figure| format!(",{}", figure.name));
    format!("run,replicate,setting,tool{}", figures.collect::<String>())
}

/// Writes the part of a line that is known before its run, number `number` from 1.
fn begin(paper: &Paper, number: usize, run: Run) -> String {
    let (setting, tool) =
        paper.cells.get(run.cell).map_or(("", ""), |cell| (cell.setting.as_str(), cell.tool.as_str()));
    format!("{number},{},{setting},{tool},", run.replicate)
}

impl Results {
    /// Reads the lines of the first of `runs`. Fails if a line was edited.
    pub(crate) fn read(lines: &[String], paper: &Paper, runs: &[Run]) -> Result<Self, Box<dyn Error>> {
        if lines.len() > runs.len() {
            return Err(format!(
                "results.csv has {} runs, and {} are asked for; ask for more with --replicates, \
                 or choose another directory",
                lines.len(),
                runs.len()
            )
            .into());
        }
        let figures = paper.measured().map(|figure| figure.name.clone()).collect();
        let mut results = Self { runs: Vec::new(), figures };
        for (number, line) in (1..).zip(lines) {
            let run = runs.get(number - 1);
            let values = run.and_then(|run| values(line.strip_prefix(&begin(paper, number, *run))?));
            match (run, values) {
                (Some(run), Some(values)) if values.len() == results.figures.len() => {
                    results.runs.push((run.cell, values));
                }
                _ => {
                    return Err(format!(
                        "cannot resume: line {number} of results.csv is not as this experiment writes it; \
                         choose another directory"
                    )
                    .into());
                }
            }
        }
        Ok(results)
    }

    /// Adds the values of the next run, and returns its line.
    pub(crate) fn add(&mut self, paper: &Paper, run: Run, values: &Values<'_>) -> String {
        let of = |name: &String| values.iter().find(|(figure, _)| figure == name).map(|(_, value)| *value);
        let values: Vec<Option<f64>> = self.figures.iter().map(of).collect();
        let texts = values.iter().map(|value| value.map(|value| value.to_string()).unwrap_or_default());
        let texts: Vec<String> = texts.collect();
        self.runs.push((run.cell, values));
        begin(paper, self.runs.len(), run) + &texts.join(",")
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn runs_of(&self, cell: usize) -> usize {
        self.runs.iter().filter(|(of, _)| *of == cell).count()
    }

    /// The values of a figure in all runs of a cell.
    pub(crate) fn values(&self, cell: usize, figure: &str) -> Vec<f64> {
        let Some(position) = self.figures.iter().position(|name| name == figure) else { return Vec::new() };
        let runs = self.runs.iter().filter(|(of, _)| *of == cell);
        runs.filter_map(|(_, values)| values.get(position).copied().flatten()).collect()
    }

    /// None if the cell was not measured, or does not have this figure. A share has no half-width: its interval
    /// is not symmetric.
    pub(crate) fn estimate(&self, paper: &Paper, cell: usize, figure: &Figure) -> Option<Estimate> {
        let Some(base) = &figure.percent_over else {
            let values = self.values(cell, &figure.name);
            let estimate = (!values.is_empty()).then(|| Estimate::of(&values));
            return estimate
                .map(|of| if figure.is_share { Estimate { half: f64::INFINITY, ..of } } else { of });
        };
        let base_cell = paper.cell(&base.setting, &base.tool).filter(|base| *base != cell)?;
        let (of, from) = (self.values(cell, &base.figure), self.values(base_cell, &base.figure));
        let unit = Estimate::of(&from).mean / 100.0;
        (!of.is_empty() && !from.is_empty()).then(|| Estimate::difference(&of, &from).in_units_of(unit))
    }
}

fn values(text: &str) -> Option<Vec<Option<f64>>> {
    let values = text.split(',').map(|value| match value {
        "" => Some(None),
        value => value.parse().ok().map(Some),
    });
    values.collect()
}
