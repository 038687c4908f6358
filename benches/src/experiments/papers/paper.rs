//! The description of an experiment of a paper in its file, and the runs that follow from it.

use std::error::Error;

use polymeter_benches::statistics::Random;
use polymeter_benches::tool::{Tool, is_program_here};
use serde::Deserialize;

use super::measure::Measure;

/// An experiment of a paper, as its file describes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    pub(crate) title: String,
    /// The publication, and where in it the published values are.
    pub(crate) source: String,
    /// The question of the experiment, as a sentence.
    pub(crate) question: String,
    /// The number of runs of each cell.
    pub(crate) replicates: u32,
    /// The seed of the random order.
    pub(crate) seed: u64,
    /// The duration of a run in seconds, for cells that are limited by time.
    pub(crate) seconds: u64,
    /// The same for a functional check; by default 1.
    pub(crate) quick_seconds: Option<u64>,
    /// Programs that every cell requires.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    /// The command that cells time. If empty, the built-in kernel of `overhead` draws `pairs` pairs.
    #[serde(default)]
    pub(crate) command: Vec<String>,
    /// The command instead, for a functional check.
    pub(crate) quick_command: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) pairs: u64,
    /// What is measured; a cell need not have all of them.
    #[serde(rename = "figure")]
    pub(crate) figures: Vec<Figure>,
    #[serde(rename = "cell")]
    pub(crate) cells: Vec<Cell>,
    /// Plots of several figures of one setting.
    #[serde(default, rename = "overlay")]
    pub(crate) overlays: Vec<Overlay>,
    #[serde(default)]
    pub(crate) published: Vec<Published>,
    #[serde(default, rename = "claim")]
    pub(crate) claims: Vec<Claim>,
    /// Commands that start the tools of cells.
    #[serde(default, rename = "tool")]
    pub(crate) tools: Vec<Tool>,
    /// Settings to measure; all if it is empty.
    #[serde(skip)]
    pub(crate) selected: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    /// Name in the CSV file, with the unit last.
    pub(crate) name: String,
    /// Heading of the table's column and title of the plot, with the unit.
    pub(crate) title: String,
    /// Digits behind the decimal point.
    #[serde(default)]
    pub(crate) digits: usize,
    /// True if a run has it or does not, as 100 or 0, so that it is a share of the runs.
    #[serde(default)]
    pub(crate) is_share: bool,
    /// Makes it the difference of another figure to that of a cell, in percent, which has no column of its own
    /// in the CSV file.
    pub(crate) percent_over: Option<Base>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Base {
    pub(crate) figure: String,
    pub(crate) setting: String,
    pub(crate) tool: String,
}

/// A plot with a logarithmic axis: figures side by side, with the tools of a setting on top of each other.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overlay {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) setting: String,
    pub(crate) figures: Vec<String>,
}

/// A row of the table: a tool in a setting.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cell {
    pub(crate) setting: String,
    /// Polymeter, or a name of the reader's choice; that of a `[[tool]]` if the cell needs one.
    #[serde(default)]
    pub(crate) tool: String,
    /// Several tools instead, with a cell for each.
    #[serde(default)]
    tools: Vec<String>,
    pub(crate) measure: Measure,
}

/// A value of the paper.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    pub(crate) figure: String,
    pub(crate) setting: String,
    pub(crate) tool: String,
    pub(crate) mean: f64,
    /// Half-width of its 95 % interval, if the paper has one.
    pub(crate) half: Option<f64>,
}

/// A statement of the paper that can be compared on another machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub(crate) text: String,
    pub(crate) figure: String,
    /// Setting and tool of a cell.
    pub(crate) of: (String, String),
    /// Compares the ratio of `of` to this cell; without it the value of `of`.
    pub(crate) to: Option<(String, String)>,
    /// The published range.
    pub(crate) least: Option<f64>,
    pub(crate) most: Option<f64>,
}

/// A run of the cell with this index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) replicate: u32,
    pub(crate) cell: usize,
}

impl Cell {
    fn of_each_tool(self) -> Vec<Self> {
        if self.tools.is_empty() {
            return vec![self];
        }
        let of = |tool: &String| Self { tool: tool.clone(), tools: Vec::new(), ..self.clone() };
        self.tools.iter().map(of).collect()
    }
}

impl Paper {
    pub(crate) fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let mut paper: Self = toml::from_str(text)?;
        paper.cells = paper.cells.into_iter().flat_map(Cell::of_each_tool).collect();
        let of_overlays = paper.overlays.iter().flat_map(|overlay| &overlay.figures);
        let published = paper.published.iter().map(|value| &value.figure);
        for name in published.chain(paper.figures_of_claims()).chain(of_overlays) {
            if !paper.figures.iter().any(|figure| figure.name == *name) {
                return Err(format!("unknown figure `{name}`; add it as a `[[figure]]`").into());
            }
        }
        for (setting, tool) in
            paper.claims.iter().flat_map(|claim| std::iter::once(&claim.of).chain(&claim.to))
        {
            if paper.cell(setting, tool).is_none() {
                return Err(format!("a claim names `{setting}`, `{tool}`; add it as a `[[cell]]`").into());
            }
        }
        for cell in &paper.cells {
            if let Some(unknown) =
                cell.measure.needs_tool(&cell.tool).filter(|tool| paper.tool(tool).is_none())
            {
                return Err(format!("unknown tool `{unknown}`; add it as a `[[tool]]`").into());
            }
            if cell.tool.is_empty() {
                return Err(format!("`{}` has no tool; add `tool` or `tools`", cell.setting).into());
            }
            if cell.setting.contains([',', '\n']) || cell.tool.contains([',', '\n']) {
                return Err(
                    format!("`{}`, `{}`: remove the comma or line break", cell.setting, cell.tool).into()
                );
            }
        }
        Ok(paper)
    }

    fn figures_of_claims(&self) -> impl Iterator<Item = &String> {
        self.claims.iter().map(|claim| &claim.figure)
    }

    /// Figures that a run measures.
    pub(crate) fn measured(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.percent_over.is_none())
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    pub(crate) fn cell(&self, setting: &str, tool: &str) -> Option<usize> {
        self.cells.iter().position(|cell| cell.setting == setting && cell.tool == tool)
    }

    /// Removes the cells that do the same as one before them, and those that print the figures of a tool with
    /// other variables.
    pub(crate) fn keep_distinct(&mut self) {
        let prints = |measure: &Measure| matches!(measure, Measure::Printed { .. });
        let mut kept: Vec<Cell> = Vec::new();
        for cell in self.cells.drain(..) {
            let is_like = |other: &Cell| {
                let both_print = prints(&other.measure) && prints(&cell.measure);
                other.tool == cell.tool && (both_print || other.measure == cell.measure)
            };
            if !kept.iter().any(is_like) {
                kept.push(cell);
            }
        }
        self.cells = kept;
    }

    /// Says why this machine cannot measure a cell.
    pub(crate) fn missing(&self, cell: &Cell) -> Option<String> {
        if !self.selected.is_empty() && !self.selected.contains(&cell.setting) {
            return Some("the setting was not selected".to_owned());
        }
        let command = self.command.first().filter(|_| matches!(cell.measure, Measure::Command { .. }));
        let tools = [Some(cell.tool.as_str()), cell.measure.needs_tool(&cell.tool)];
        let tools: Vec<&Tool> = tools.into_iter().flatten().filter_map(|name| self.tool(name)).collect();
        let of_tools = tools.iter().filter_map(|tool| tool.needs.as_deref());
        let needs = self.needs.iter().chain(command).map(String::as_str).chain(of_tools);
        if let Some(program) = needs.chain(cell.measure.needs(&cell.tool)).find(|name| !is_program_here(name))
        {
            return Some(format!("`{program}` is not installed"));
        }
        let mut faults = tools.iter().filter_map(|tool| Some((&tool.name, tool.fault()?)));
        faults.next().map(|(tool, fault)| format!("{tool} does not work on this machine: {fault}"))
    }

    /// All runs of the cells that this machine can measure: each replicate has every cell once, in its own
    /// random order, so that a drift of the machine's speed affects all cells alike.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut random = Random::new(self.seed);
        let here = self.cells.iter().enumerate().filter(|(_, cell)| self.missing(cell).is_none());
        let here: Vec<usize> = here.map(|(index, _)| index).collect();
        let mut runs = Vec::new();
        for replicate in 1..=self.replicates {
            let mut cells = here.clone();
            random.shuffle(&mut cells);
            runs.extend(cells.into_iter().map(|cell| Run { replicate, cell }));
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replicate_has_every_cell_once_in_an_order_of_its_own() {
        let cells =
            (0..20).map(|cell| format!("[[cell]]\nsetting = '{cell}'\ntool = 'x'\nmeasure = 'reads'\n"));
        let text = format!("{HEAD}{}", cells.collect::<String>());
        let paper = Paper::parse(&text).unwrap();
        let order = |replicate: u32| -> Vec<usize> {
            let runs = paper.runs().into_iter().filter(|run| run.replicate == replicate);
            runs.map(|run| run.cell).collect()
        };
        assert_ne!(order(1), order(2));
        for replicate in 1..=3 {
            let mut sorted = order(replicate);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..20).collect::<Vec<_>>());
        }
        assert_ne!(Paper { seed: 8, ..paper.clone() }.runs(), paper.runs());
        let more = Paper { replicates: 5, ..paper.clone() }.runs();
        assert_eq!((&more[..60], more.len()), (&paper.runs()[..], 100), "the first ones stay");
    }

    const HEAD: &str = "title = 't'\nsource = 's'\nquestion = 'q'\nreplicates = 3\nseed = 7\nseconds = 1\n[[figure]]\nname = 'rate_per_s'\ntitle = 'samples/s'\n";

    #[test]
    fn a_cell_that_repeats_another_is_removed() {
        let cells = ["'1'\ntool = 'x'", "'2'\ntool = 'x'", "'2'\ntool = 'y'"]
            .map(|cell| format!("[[cell]]\nsetting = {cell}\nmeasure = 'reads'\n"));
        let mut paper = Paper::parse(&format!("{HEAD}{}", cells.concat())).unwrap();
        paper.keep_distinct();
        assert_eq!(
            (paper.cell("1", "x"), paper.cell("2", "x"), paper.cell("2", "y")),
            (Some(0), None, Some(1))
        );
    }

    #[test]
    fn several_tools_have_a_cell_each() {
        let text = format!("{HEAD}[[cell]]\nsetting = '1'\ntools = ['x', 'y']\nmeasure = 'reads'\n");
        let paper = Paper::parse(&text).unwrap();
        let tools: Vec<&str> = paper.cells.iter().map(|cell| cell.tool.as_str()).collect();
        assert_eq!(tools, ["x", "y"]);
        assert_eq!(paper.cell("1", "y"), Some(1));
    }

    #[test]
    fn a_tool_that_is_not_installed_leaves_its_cell_out() {
        let tool = "[[tool]]\nname = 'a'\nstart = 'x'\nneeds = 'no-such-program-anywhere'\n";
        let cell = "[[cell]]\nsetting = '1'\ntool = 'a'\nmeasure = 'gather'\n";
        let paper = Paper::parse(&format!("{HEAD}{tool}{cell}")).unwrap();
        let missing = paper.missing(&paper.cells[0]);
        assert_eq!(missing.as_deref(), Some("`no-such-program-anywhere` is not installed"));
        assert!(paper.runs().is_empty());
        let reads = "[[cell]]\nsetting = '1'\ntool = 'b'\nmeasure = 'reads'\n[[cell]]\nsetting = '2'\ntool = 'b'\nmeasure = 'reads'\n";
        let unfit = "[[tool]]\nname = 'b'\nstart = 'x'\nworks = 'exit 1'\n";
        let paper = Paper::parse(&format!("{HEAD}{reads}{unfit}")).unwrap();
        let missing = paper.missing(&paper.cells[0]);
        let fault = "b does not work on this machine: its test ended with exit status: 1";
        assert_eq!(missing.as_deref(), Some(fault));
        let paper =
            Paper { selected: vec!["2".to_owned()], ..Paper::parse(&format!("{HEAD}{reads}")).unwrap() };
        assert_eq!(paper.runs().iter().map(|run| run.cell).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn invalid_descriptions_are_refused() {
        let cell = "[[cell]]\nsetting = '1'\ntool = 'a'\n";
        let reads = format!("{cell}measure = 'reads'\n");
        for (text, part) in [
            (format!("{reads}[[published]]\nfigure = 'y'\nsetting = '1'\ntool = 'a'\nmean = 1\n"), "`y`"),
            (format!("{cell}measure = 'gather'\n"), "unknown tool `a`"),
            (format!("{cell}measure = 'guess'\n"), "guess"),
            (format!("{reads}[[claim]]\ntext = ''\nfigure = 'rate_per_s'\nof = ['2', 'a']\n"), "`2`"),
            ("[[cell]]\nsetting = '3'\nmeasure = 'reads'\n".to_owned(), "`3`"),
            ("[[cell]]\nsetting = '1, 2'\ntool = 'a'\nmeasure = 'reads'\n".to_owned(), "comma"),
        ] {
            let error = Paper::parse(&format!("{HEAD}{text}")).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
