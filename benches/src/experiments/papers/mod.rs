//! Reruns the experiments of papers at the scale of this machine, and compares the results with the published
//! values.

mod api;
mod cells;
mod kwollect;
mod measure;
mod node;
mod page;
mod paper;
mod results;
mod scaled;
mod served;
pub(crate) mod stamps;
mod verdict;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use polymeter_benches::agent::program;
use polymeter_benches::clock::{SECOND_NS, now_ns};
use polymeter_benches::journal::Journal;
use polymeter_benches::machine;
use polymeter_benches::table::{self, say};

use self::measure::Measure;
use self::paper::Paper;
use self::results::Results;

/// Reruns experiments of papers, with the published values beside ours.
///
/// Without NAME it runs all. Some need root, and programs that the page of the paper in docs/evaluation/
/// names: a cell without its program is left out, and the result says so. Each replicate has every cell once,
/// in random order. DIRECTORY/NAME gets results.csv (every run), a plot of each figure, and page.md, and is
/// sealed as a bundle. Each run is synced to the disk before the next one starts: after a kill the same
/// command resumes the experiment, and one with more replicates adds them, unless the machine, the revision,
/// the seed or the installed tools differ.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Experiments to run, of those that --list names.
    names: Vec<String>,
    /// List the experiments.
    #[arg(long)]
    list: bool,
    /// Directory of the results.
    #[arg(long, value_name = "DIRECTORY", default_value = "papers")]
    out: PathBuf,
    /// Number of runs of each cell; by default that of the experiment's file.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    replicates: Option<u32>,
    /// Seed of the random order; by default that of the experiment's file.
    #[arg(long)]
    seed: Option<u64>,
    /// Duration of a run in seconds, for cells that are limited by time; by default that of the experiment's
    /// file.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Measure these settings only.
    #[arg(long, value_delimiter = ',')]
    settings: Vec<String>,
    /// Command to time instead of that of the experiment's file, such as a smaller class of the benchmark.
    #[arg(long)]
    command: Option<String>,
    /// Run each cell twice for a short time, as a functional check.
    #[arg(long)]
    quick: bool,
}

macro_rules! papers {
    ($($name:literal),* $(,)?) => {
        [$(($name, concat!(
            include_str!(concat!("../../../papers/", $name, ".toml")),
            include_str!("../../../papers/tools.toml"),
        ))),*]
    };
}

/// Name of each experiment, and its file with that of the tools.
const PAPERS: [(&str, &str); 15] = papers![
    "gwdg-gather",
    "gwdg-load",
    "gwdg-api",
    "gwdg-jitter",
    "gwdg-scale",
    "gwdg-collapse",
    "colmet-ep",
    "colmet-lu",
    "colmet-cg",
    "colmet-anomaly",
    "kwollect",
    "kwollect-read",
    "supermon",
    "synthesio",
    "overhead-receipt",
];

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.list {
        for (name, text) in PAPERS {
            say(&format!("{name:14} {}", Paper::parse(text)?.title));
        }
        return Ok(());
    }
    if let Some(unknown) = arguments.names.iter().find(|name| !PAPERS.iter().any(|(known, _)| known == name))
    {
        return Err(
            format!("cannot run `{unknown}`: there is no such experiment; see `papers --list`").into()
        );
    }
    let is_wanted = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|one| one == name);
    // An error of the command line is found before hours of measuring.
    let wanted = PAPERS.into_iter().filter(|(name, _)| is_wanted(name)).map(|(name, text)| {
        let paper = arguments.read(text).map_err(|error| format!("cannot run {name}: {error}"))?;
        Ok((name, text, paper))
    });
    let wanted: Vec<(&str, &str, Paper)> = wanted.collect::<Result<_, Box<dyn Error>>>()?;
    let _reserved = if arguments.quick { None } else { Some(machine::reserve()?) };
    table::machine();
    wanted.iter().try_for_each(|(name, text, paper)| rerun(arguments, name, text, paper))
}

impl Arguments {
    /// Reads an experiment, with the changes of the command line.
    fn read(&self, text: &str) -> Result<Paper, Box<dyn Error>> {
        let mut paper = Paper::parse(text)?;
        if self.quick {
            (paper.replicates, paper.seconds) = (2, paper.quick_seconds.unwrap_or(1));
            paper.pairs /= 100;
            paper.cells.iter_mut().for_each(|cell| cell.measure.shorten());
            paper.keep_distinct();
            if let Some(short) = &paper.quick_command {
                paper.command.clone_from(short);
            }
        }
        paper.seed = self.seed.unwrap_or(paper.seed);
        paper.seconds = self.seconds.unwrap_or(paper.seconds);
        paper.replicates = self.replicates.unwrap_or(paper.replicates);
        if let Some(command) = &self.command {
            if !paper.cells.iter().any(|cell| matches!(cell.measure, Measure::Command { .. })) {
                return Err("it times no command; leave --command out".into());
            }
            paper.command = command.split_whitespace().map(str::to_owned).collect();
        }
        let is_known = |setting: &&String| paper.cells.iter().any(|cell| cell.setting == **setting);
        if let Some(unknown) = self.settings.iter().find(|setting| !is_known(setting)) {
            let mut known: Vec<&str> = Vec::new();
            for cell in &paper.cells {
                if !known.contains(&cell.setting.as_str()) {
                    known.push(&cell.setting);
                }
            }
            return Err(format!("no setting is `{unknown}`; there are: {}", known.join(", ")).into());
        }
        paper.selected.clone_from(&self.settings);
        Ok(paper)
    }
}

fn rerun(arguments: &Arguments, name: &str, text: &str, paper: &Paper) -> Result<(), Box<dyn Error>> {
    let out = arguments.out.join(name);
    fs::create_dir_all(&out).map_err(|error| {
        format!("cannot create {}: {error}; choose another directory with --out", out.display())
    })?;
    say(&format!("{name}: {}", paper.title));
    let results = measure(paper, text, arguments.quick, &out)?;
    fs::write(out.join("page.md"), page::write(paper, &results, &format!("benches/papers/{name}.toml")))?;
    for (name, plot) in page::plots(paper, &results) {
        fs::write(out.join(format!("{name}.svg")), plot.render())?;
    }
    say(&format!("{}: page.md, results.csv and plots", out.display()));
    if arguments.quick { Ok(()) } else { seal(&out) }
}

/// Measures all runs that the file of results does not have yet.
fn measure(paper: &Paper, text: &str, is_quick: bool, out: &Path) -> Result<Results, Box<dyn Error>> {
    let runs = paper.runs();
    let left_out = paper.cells.iter().filter(|cell| paper.missing(cell).is_some());
    let left_out: String =
        left_out.map(|cell| format!("left out: {} ({})\n", cell.setting, cell.tool)).collect();
    let quick = if is_quick { ", short" } else { "" };
    let description = format!(
        "{text}\nseed {}, seconds {}, command {}{quick}\n{left_out}",
        paper.seed,
        paper.seconds,
        paper.command.join(" ")
    );
    let columns = results::columns(paper);
    let (mut journal, lines) = Journal::open(&out.join("results.csv"), &description, &columns)?;
    let mut results = Results::read(&lines, paper, &runs)?;
    let (done, begin_ns) = (results.len(), now_ns());
    if done > 0 {
        say(&format!("resumed after {done} of {} runs", runs.len()));
    }
    for (number, run) in (1..).zip(&runs).skip(done) {
        let Some(cell) = paper.cells.get(run.cell) else { continue };
        let scratch = tempfile::tempdir()?;
        let values = cells::measure(paper, cell, scratch.path()).map_err(|error| {
            format!("cannot measure {}, {}: {error}; the same command resumes here", cell.setting, cell.tool)
        })?;
        journal.add(&results.add(paper, *run, &values))?;
        let each_ns = (now_ns() - begin_ns) / (number - done) as u64;
        let left_s = each_ns * (runs.len() - number) as u64 / SECOND_NS;
        let values: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
        say(&format!(
            "run {number} of {}, about {left_s} s remain: {}, {}: {}",
            runs.len(),
            cell.setting,
            cell.tool,
            values.join(", ")
        ));
    }
    Ok(results)
}

fn seal(out: &Path) -> Result<(), Box<dyn Error>> {
    let status = Command::new(program("polymeter")?).args(["bundle", "seal"]).arg(out).status()?;
    if status.success() { Ok(()) } else { Err(format!("cannot seal {}: {status}", out.display()).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_has_enough_replicates_and_published_values() {
        for (name, text) in PAPERS {
            let paper = Paper::parse(text).unwrap();
            assert!(paper.replicates >= if name.starts_with("colmet") { 10 } else { 5 }, "{name}");
            assert!(!paper.published.is_empty() && !paper.claims.is_empty(), "{name}");
        }
    }
}
