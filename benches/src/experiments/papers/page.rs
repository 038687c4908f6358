//! The page of an experiment: the table with the published values beside ours, the plots, and the verdict.

use polymeter_benches::machine;
use polymeter_benches::plot::{Plot, Series};
use polymeter_benches::statistics::Estimate;
use polymeter_benches::table;

use super::paper::{Claim, Figure, Paper};
use super::results::Results;
use super::verdict::{self, Judged};

/// Writes the page in Markdown. `file` is the path of the description in the repository.
pub(crate) fn write(paper: &Paper, results: &Results, file: &str) -> String {
    let judged = verdict::judge(paper, results);
    let mut page = format!("# {}\n\n{}\n\n", paper.title, paper.question);
    page.push_str(&format!(
        "Published: {}\n\nMeasured: {}; revision {}; seed {}; {} runs of each cell in random order, with 95 % \
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
    for cell in &paper.cells {
        if let Some(missing) = paper.missing(cell) {
            page.push_str(&format!("\nLeft out: {}, {}: no `{missing}` here.\n", cell.setting, cell.tool));
        }
    }
    for figure in &paper.figures {
        page.push_str(&format!("\n![{}]({}.svg)\n", figure.title, figure.name));
    }
    page.push_str(&format!("\n**{}**\n\n", verdict::sentence(&judged)));
    let claims: Vec<Vec<String>> = judged.iter().map(claim_row).collect();
    page.push_str(&table::markdown(&["claim of the paper", "published", "measured", "verdict"], &claims));
    format!("{page}\n{}\n", verdict::RULE)
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
            row.extend(paper.figures.iter().map(|figure| {
                let estimate = results.estimate(index, &figure.name);
                estimate.map_or_else(|| "-".to_owned(), |value| format!("{value:.*}", figure.digits))
            }));
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

/// Plots a figure: one position for each setting, one colour for each tool, and for each published one.
pub(crate) fn plot(paper: &Paper, results: &Results, figure: &Figure) -> Plot {
    let settings = settings(paper);
    let mut tools: Vec<&str> = Vec::new();
    for cell in &paper.cells {
        if !tools.contains(&cell.tool.as_str()) {
            tools.push(&cell.tool);
        }
    }
    let mut series = Vec::new();
    for tool in tools {
        let measured = |setting: &&str| results.estimate(paper.cell(setting, tool)?, &figure.name);
        series.push(Series { name: tool.to_owned(), points: settings.iter().map(measured).collect() });
    }
    for tool in published_tools(paper, None) {
        let of_paper = |setting: &&str| published(paper, setting, tool, figure);
        let points = settings.iter().map(of_paper).collect();
        series.push(Series { name: format!("{tool}, published"), points });
    }
    series.retain(|series| series.points.iter().any(Option::is_some));
    Plot {
        title: format!("{}, with 95 % intervals", figure.title),
        y_label: String::new(),
        places: settings.into_iter().map(str::to_owned).collect(),
        series,
    }
}
