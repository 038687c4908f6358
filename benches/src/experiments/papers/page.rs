//! The page of an experiment: the table with the published values beside ours, the plots, and the verdict.

use std::collections::BTreeMap;

use polymeter_benches::machine;
use polymeter_benches::plot::{Plot, Series};
use polymeter_benches::statistics::Estimate;
use polymeter_benches::table;

use super::paper::{Claim, Figure, Overlay, Paper};
use super::results::Results;
use super::verdict::{self, Judged};

/// Writes the page in Markdown. `file` is the path of the description in the repository.
pub(crate) fn write(paper: &Paper, results: &Results, file: &str) -> String {
    let judged = verdict::judge(paper, results);
    let store = paper.cells.iter().find_map(|cell| cell.measure.store());
    let store = store.map(|kind| format!("; the store is {kind}")).unwrap_or_default();
    let mut page = format!("# {}\n\n{}\n\n", paper.title, paper.question);
    page.push_str(&format!(
        "Published: {}\n\nMeasured: {}; revision {}{store}; seed {}; {} runs of each cell in random order, with 95 % \
         intervals (t); described by `{file}`. `results.csv` has every run.\n\n",
        paper.source,
        machine::description(),
        machine::revision(),
        paper.seed,
        paper.replicates,
    ));
    let titles = paper.figures.iter().map(|figure| figure.title.as_str());
    let head: Vec<&str> = ["setting", "tool", "runs"].into_iter().chain(titles).collect();
    page.push_str(&table::markdown(&head, &rows(paper, results)));
    let mut left_out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for cell in &paper.cells {
        if let Some(missing) = paper.missing(cell) {
            left_out.entry(missing).or_default().push(format!("{} ({})", cell.setting, cell.tool));
        }
    }
    for (missing, cells) in left_out {
        page.push_str(&format!("\nLeft out, since {missing}: {}.\n", cells.join(", ")));
    }
    for (name, plot) in plots(paper, results) {
        page.push_str(&format!("\n![{}]({name}.svg)\n", plot.title));
    }
    page.push_str(&format!("\n**{}**\n\n", verdict::sentence(&judged)));
    let claims: Vec<Vec<String>> = judged.iter().map(claim_row).collect();
    page.push_str(&table::markdown(&["claim of the paper", "published", "measured", "verdict"], &claims));
    let of_shares = if paper.figures.iter().any(|figure| figure.is_share) {
        " Shares of the runs have exact binomial intervals."
    } else {
        ""
    };
    format!("{page}\n{}{of_shares}\n", verdict::RULE)
}

fn claim_row(judged: &Judged<'_>) -> Vec<String> {
    let Claim { text, least, most, .. } = judged.claim;
    let published = match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => "-".to_owned(),
    };
    let ours = judged.ours.map_or_else(|| "-".to_owned(), |ours| ours.to_string());
    vec![text.clone(), published, ours, judged.verdict.to_string()]
}

/// The settings of cells and published values, in the order of the file.
fn settings(paper: &Paper) -> Vec<&str> {
    let cells = paper.cells.iter().map(|cell| cell.setting.as_str());
    let mut settings: Vec<&str> = Vec::new();
    for setting in cells.chain(paper.published.iter().map(|value| value.setting.as_str())) {
        if !settings.contains(&setting) {
            settings.push(setting);
        }
    }
    settings
}

/// The tools of the published values of a setting.
fn published_tools<'a>(paper: &'a Paper, setting: Option<&str>) -> Vec<&'a str> {
    let mut tools: Vec<&str> = Vec::new();
    for value in &paper.published {
        if setting.is_none_or(|setting| value.setting == setting) && !tools.contains(&value.tool.as_str()) {
            tools.push(&value.tool);
        }
    }
    tools
}

fn published(paper: &Paper, setting: &str, tool: &str, figure: &Figure) -> Option<Estimate> {
    let mut of = paper.published.iter();
    let value =
        of.find(|value| value.setting == setting && value.tool == tool && value.figure == figure.name)?;
    Some(Estimate { mean: value.mean, half: value.half.unwrap_or(f64::INFINITY) })
}

fn rows(paper: &Paper, results: &Results) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for setting in settings(paper) {
        for (index, cell) in paper.cells.iter().enumerate().filter(|(_, cell)| cell.setting == setting) {
            let mut row = vec![setting.to_owned(), cell.tool.clone(), results.runs_of(index).to_string()];
            row.extend(paper.figures.iter().map(|figure| measured(paper, results, index, figure)));
            rows.push(row);
        }
        for tool in published_tools(paper, Some(setting)) {
            let mut row = vec![setting.to_owned(), format!("*{tool}, published*"), "-".to_owned()];
            row.extend(paper.figures.iter().map(|figure| match published(paper, setting, tool, figure) {
                None => "-".to_owned(),
                Some(value) if value.half.is_finite() => format!("{value:.*}", figure.digits),
                Some(value) => format!("{:.*}", figure.digits, value.mean),
            }));
            rows.push(row);
        }
    }
    rows
}

fn measured(paper: &Paper, results: &Results, cell: usize, figure: &Figure) -> String {
    let text = if figure.is_share {
        verdict::share(&results.values(cell, &figure.name)).map(|share| share.to_string())
    } else {
        results.estimate(paper, cell, figure).map(|value| format!("{value:.*}", figure.digits))
    };
    text.unwrap_or_else(|| "-".to_owned())
}

/// All plots, by the name of their files.
pub(crate) fn plots<'a>(paper: &'a Paper, results: &Results) -> Vec<(&'a str, Plot)> {
    let overlays =
        paper.overlays.iter().map(|overlay| (overlay.name.as_str(), overlaid(paper, results, overlay)));
    let figures = paper.figures.iter().map(|figure| (figure.name.as_str(), plot(paper, results, figure)));
    overlays.chain(figures).collect()
}

/// Plots figures of one setting: one position for each figure, one colour for each tool.
fn overlaid(paper: &Paper, results: &Results, overlay: &Overlay) -> Plot {
    let named = |name: &String| paper.figures.iter().find(|figure| figure.name == *name);
    let figures: Vec<&Figure> = overlay.figures.iter().filter_map(named).collect();
    let mut series = Vec::new();
    for (index, cell) in paper.cells.iter().enumerate().filter(|(_, cell)| cell.setting == overlay.setting) {
        let points = figures.iter().map(|figure| results.estimate(paper, index, figure)).collect();
        series.push(Series { name: cell.tool.clone(), points });
    }
    for tool in published_tools(paper, Some(&overlay.setting)) {
        let points = figures.iter().map(|figure| published(paper, &overlay.setting, tool, figure)).collect();
        series.push(Series { name: format!("{tool}, published"), points });
    }
    series.retain(|series| series.points.iter().any(Option::is_some));
    Plot {
        title: format!("{}, with 95 % intervals", overlay.title),
        y_label: String::new(),
        places: figures.into_iter().map(|figure| figure.title.clone()).collect(),
        series,
        is_logarithmic: true,
    }
}

/// Plots a figure: one position for each setting, one colour for each tool, and for each published one.
fn plot(paper: &Paper, results: &Results, figure: &Figure) -> Plot {
    let settings = settings(paper);
    let mut tools: Vec<&str> = Vec::new();
    for cell in &paper.cells {
        if !tools.contains(&cell.tool.as_str()) {
            tools.push(&cell.tool);
        }
    }
    let mut series = Vec::new();
    for tool in tools {
        let measured = |setting: &&str| results.estimate(paper, paper.cell(setting, tool)?, figure);
        series.push(Series { name: tool.to_owned(), points: settings.iter().map(measured).collect() });
    }
    for tool in published_tools(paper, None) {
        let of_paper = |setting: &&str| published(paper, setting, tool, figure);
        let points = settings.iter().map(of_paper).collect();
        series.push(Series { name: format!("{tool}, published"), points });
    }
    series.retain(|series| series.points.iter().any(Option::is_some));
    let intervals = if figure.is_share { "" } else { ", with 95 % intervals" };
    Plot {
        title: format!("{}{intervals}", figure.title),
        y_label: String::new(),
        places: settings.into_iter().map(str::to_owned).collect(),
        series,
        is_logarithmic: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        title = 'T'
        source = 'S'
        question = 'Q?'
        replicates = 2
        seed = 7
        seconds = 1
        needs = ['sh']
        figure = [
            { name = 'wall_s', title = 'wall s', digits = 1 },
            { name = 'slowdown_percent', title = 'slowdown %', digits = 1,
              percent_over = { figure = 'wall_s', setting = 'without', tool = 'nothing' } },
        ]
        overlay = [
            { name = 'together', title = 'Together', setting = '1 ms', figures = ['wall_s', 'slowdown_percent'] },
        ]
        cell = [
            { setting = 'without', tool = 'nothing', measure = { command = {} } },
            { setting = '1 ms', tool = 'polymeter', measure = { command = { period_us = 1000, metrics = 3 } } },
            { setting = '1 ms', tool = 'absent', measure = { command = { period_us = 1000 } } },
        ]
        published = [
            { setting = '1 ms', tool = 'theirs', figure = 'slowdown_percent', mean = 5.04, half = 0.5 },
            { setting = '5 s', tool = 'theirs', figure = 'wall_s', mean = 120 },
        ]
        claim = [
            { text = 'C', figure = 'wall_s', of = ['1 ms', 'polymeter'], to = ['without', 'nothing'], most = 9.0 },
        ]
        [[tool]]
        name = 'absent'
        start = 'x'
        needs = 'no-such-program-anywhere'
    ";

    #[test]
    fn published_values_stand_beside_ours_and_missing_tools_are_named() {
        let paper = Paper::parse(TEXT).unwrap();
        let runs = paper.runs();
        let mut results = Results::read(&[], &paper, &runs).unwrap();
        let mut lines = Vec::new();
        for run in &runs {
            let wall_s = if run.cell == 0 { 10.0 } else { 11.0 };
            lines.push(results.add(&paper, *run, &vec![("wall_s", wall_s + f64::from(run.replicate))]));
        }
        assert_eq!(Results::read(&lines, &paper, &runs).unwrap().values(1, "wall_s"), [12.0, 13.0]);
        let page = write(&paper, &results, "t.toml");
        // Both spread by half a second: Welch's interval has two degrees of freedom, t is 4.303.
        let half = 4.302_653 * (0.25_f64 + 0.25).sqrt();
        let ours = format!(
            "| 1 ms | polymeter | 2 | 12.5 ± 6.4 | {:.1} ± {:.1} |",
            100.0 / 11.5,
            half * 100.0 / 11.5
        );
        for wanted in [
            ours.as_str(),
            "| without | nothing | 2 | 11.5 ± 6.4 | - |",
            "| 1 ms | absent | 0 | - | - |",
            "| 1 ms | *theirs, published* | - | - | 5.0 ± 0.5 |",
            "| 5 s | *theirs, published* | - | 120.0 | - |",
            "Left out, since `no-such-program-anywhere` is not installed: 1 ms (absent).",
            "![Together, with 95 % intervals](together.svg)",
            "seed 7; 2 runs",
            "**Agrees: 1 of 1 claims of the paper agree.**",
        ] {
            assert!(page.contains(wanted), "{wanted} is missing in {page}");
        }
        let names = |figure| -> Vec<String> {
            plot(&paper, &results, figure).series.into_iter().map(|series| series.name).collect()
        };
        assert_eq!(names(&paper.figures[0]), ["nothing", "polymeter", "theirs, published"]);
        assert_eq!(names(&paper.figures[1]), ["polymeter", "theirs, published"]);
        let together = overlaid(&paper, &results, &paper.overlays[0]);
        assert_eq!(together.places, ["wall s", "slowdown %"]);
        let counts: Vec<_> =
            together.series.iter().map(|series| series.points.iter().flatten().count()).collect();
        assert_eq!(counts, [2, 1], "ours has both, theirs the slowdown");
    }
}
