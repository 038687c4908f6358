//! Static parts of the page: the verdict, the job, meters, findings, the completeness of the data. Pure.

use polymeter_analysis::advice::facts::Facts;
use polymeter_analysis::device_text::device_text;
use polymeter_analysis::energy_text::energy_sources_text;
use polymeter_analysis::model::{Finding, Report};
use polymeter_proto::text::abridged_list;
use polymeter_service::time_text::to_the_second;

use super::element::{name, text};
use crate::report::summary::{self, Level, Meter, NODES_MAX};

pub(super) fn title(report: &Report) -> String {
    let name = report.submission.name.as_ref().map_or_else(String::new, |name| format!(": {name}"));
    format!("Job {}{name}", report.job)
}

/// Writes what is known of the job.
pub(super) fn header(page: &mut String, report: &Report) {
    let submission = &report.submission;
    let job_name = known(submission.name.as_deref())
        .map_or_else(String::new, |job| format!(" <span class=\"job-name\">{job}</span>"));
    page.push_str("<a class=\"skip\" href=\"#report\">Skip to the report</a>\n<header>\n");
    page.push_str(&format!(
        "<h1>Job {}{job_name}</h1>\n<p class=\"state\">{}</p>\n<dl>\n",
        name(&report.job),
        name(&report.verdict.text)
    ));
    let nodes: Vec<&str> = report.nodes.iter().map(String::as_str).collect();
    let resources = text(&summary::resources(report));
    let nodes = if nodes.is_empty() {
        resources
    } else {
        format!("{resources}: {}", name(&abridged_list(&nodes, NODES_MAX)))
    };
    let end = report.ended_us.map_or_else(|| "not ended".to_owned(), clock_time);
    let restarts = submission.restarts.filter(|restarts| *restarts > 0);
    let run = submission.run.as_ref();
    let variables = run.map(|run| run.assignments().join(" ")).filter(|variables| !variables.is_empty());
    for (term, value) in [
        ("Command", run.and_then(summary::command).map(|command| name(&command))),
        ("Directory", run.and_then(summary::place).map(|place| name(&place))),
        ("Variables", variables.map(|variables| name(&variables))),
        ("Shown as", summary::display_id(report).map(name)),
        ("User", known(report.owner.as_deref())),
        ("Account", known(submission.account.as_deref())),
        ("Queue", known(submission.queue.as_deref())),
        ("Cluster", known(submission.cluster.as_deref())),
        ("Resources", Some(nodes)),
        ("Start", Some(clock_time(report.started_us))),
        ("End", Some(end)),
        ("Elapsed", Some(text(&summary::elapsed(report)))),
        ("Network", summary::network(report).map(|network| text(&network))),
        ("File systems", summary::file_systems(report).map(|systems| text(&systems))),
        ("Energy", summary::energy(report).map(|energy| text(&energy))),
        ("Devices", device_text(report).map(|devices| text(&devices))),
        ("Energy by source", energy_sources_text(report).map(|sources| text(&sources))),
        ("Restarts", restarts.map(|restarts| restarts.to_string())),
    ] {
        if let Some(value) = value {
            page.push_str(&format!("<div><dt>{term}</dt><dd>{value}</dd></div>\n"));
        }
    }
    page.push_str("</dl>\n</header>\n");
}

/// Escapes a name; none for a blank one.
fn known(value: Option<&str>) -> Option<String> {
    value.filter(|value| !value.trim().is_empty()).map(name)
}

/// Text in UTC; the script replaces it by the time of the reader's zone.
fn clock_time(time_us: i64) -> String {
    let utc = to_the_second(time_us);
    format!("<time datetime=\"{}Z\" data-us=\"{time_us}\">{utc} UTC</time>", utc.replace(' ', "T"))
}

/// Kept intervals, the latest first, that are listed.
const KEPT_MAX: usize = 10;

/// Lists the kept intervals, each with a link that lets the charts show it.
pub(super) fn kept(page: &mut String, report: &Report) {
    if report.kept.is_empty() {
        return;
    }
    page.push_str("<ul class=\"kept\" aria-label=\"Kept intervals\">\n");
    for kept in report.kept.iter().rev().take(KEPT_MAX) {
        page.push_str(&format!(
            "<li>kept: <a href=\"#charts\" data-from=\"{:.6}\" data-until=\"{:.6}\">{}</a>: {}</li>\n",
            kept.begin_s,
            kept.end_s,
            name(&kept.text),
            name(&kept.reason)
        ));
    }
    if report.kept.len() > KEPT_MAX {
        page.push_str(&format!("<li>and {} more</li>\n", report.kept.len() - KEPT_MAX));
    }
    page.push_str("</ul>\n");
}

/// Triggers that fired, the latest first, that are listed.
const FIRINGS_MAX: usize = 20;

/// Lists the triggers that fired.
pub(super) fn firings(page: &mut String, report: &Report) {
    if report.firings.is_empty() {
        return;
    }
    page.push_str("<section aria-labelledby=\"firings\">\n<h2 id=\"firings\">Triggers that fired</h2>\n<ul class=\"firings\">\n");
    for fired in report.firings.iter().rev().take(FIRINGS_MAX) {
        page.push_str(&format!("<li>{} {}</li>\n", clock_time(fired.at_us), name(&fired.text)));
    }
    if report.firings.len() > FIRINGS_MAX {
        page.push_str(&format!("<li>and {} more</li>\n", report.firings.len() - FIRINGS_MAX));
    }
    page.push_str("</ul>\n</section>\n");
}

pub(super) fn meters(page: &mut String, report: &Report, facts: &Facts) {
    page.push_str("<section aria-labelledby=\"usage\">\n<h2 id=\"usage\">Use of the resources</h2>\n<ul class=\"meters\">\n");
    summary::meters(report, facts).iter().for_each(|row| meter(page, row));
    page.push_str("</ul>\n</section>\n");
}

fn meter(page: &mut String, meter: &Meter) {
    let class = match meter.level {
        Level::Plain => "plain",
        Level::Good => "good",
        Level::Warning => "warning",
        Level::Critical => "critical",
    };
    let word = meter.word;
    let share = meter.share.filter(|share| share.is_finite());
    let judged =
        if word.is_empty() { String::new() } else { format!("<span class=\"level {class}\">{word}</span>") };
    page.push_str(&format!(
        "<li><span class=\"label\">{}</span><span class=\"share\">{}</span>{}{judged}<span class=\"text\">{}</span></li>\n",
        text(meter.label),
        share.map_or_else(String::new, summary::percent),
        share.map_or_else(String::new, |share| bar(share, class)),
        text(&meter.text)
    ));
}

fn bar(share: f64, class: &str) -> String {
    let width = share.clamp(0.0, 1.0) * 100.0;
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect class=\"track\" width=\"100\" height=\"8\"/><rect class=\"{class}\" width=\"{width:.1}\" height=\"8\"/></svg>"
    )
}

pub(super) fn findings(page: &mut String, report: &Report) {
    page.push_str("<section aria-labelledby=\"findings\">\n<h2 id=\"findings\">Findings</h2>\n");
    if report.findings.is_empty() {
        page.push_str(&format!("<p>{}</p>\n</section>\n", text(&report.no_findings())));
        return;
    }
    page.push_str("<ul class=\"findings\">\n");
    report.findings.iter().for_each(|each| finding(page, each, report));
    page.push_str("</ul>\n</section>\n");
}

fn finding(page: &mut String, finding: &Finding, report: &Report) {
    let class = finding.severity.name();
    page.push_str(&format!(
        "<li class=\"{class}\">\n<h3><span class=\"level {class}\">{class}</span> {}</h3>\n<p class=\"evidence\">{}</p>\n",
        name(&finding.sentence),
        name(&finding.evidence)
    ));
    if let Some(remedy) = finding.remedy(report.scheduler) {
        page.push_str(&format!("<p class=\"remedy\"><b>Next time:</b> {}</p>\n", with_code(&remedy)));
    }
    page.push_str("</li>\n");
}

/// Marks up a text whose parts between backticks are code.
fn with_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let markup = parts.map(|(number, part)| match number % 2 {
        1 => format!("<code>{}</code>", name(part)),
        _ => name(part),
    });
    markup.collect()
}

pub(super) fn data_section(page: &mut String, report: &Report, facts: &Facts) {
    page.push_str("<section aria-labelledby=\"data\">\n<h2 id=\"data\">Data</h2>\n");
    page.push_str(&format!("<p>Samples: {}.</p>\n", text(&summary::completeness(report, facts))));
    if let Some(cost) = &report.measuring {
        let cost = summary::measuring_cost(cost, report.nodes.len());
        page.push_str(&format!("<p>Cost of measuring: {}.</p>\n", text(&cost)));
    }
    if let Some(ring) = summary::ring(report) {
        page.push_str(&format!("<p>Samples of rings: {}.</p>\n", text(&ring)));
    }
    for note in &report.notes {
        page.push_str(&format!("<p class=\"remark\">{}</p>\n", name(note)));
    }
    let ledger = &report.ledger;
    let counts = [
        ("due", ledger.due),
        ("taken", ledger.taken),
        ("late", ledger.late),
        ("missed", ledger.missed),
        ("absent in their source", ledger.absent),
        ("dropped by the agent", ledger.dropped + report.skipped),
        ("rejected", report.rejected),
        ("quarantined", report.quarantined),
        ("with unknown fate", report.unknown),
        ("stored", report.stored),
    ];
    page.push_str("<dl class=\"ledger\">\n");
    for (term, samples) in counts.into_iter().filter(|(_, samples)| *samples > 0) {
        page.push_str(&format!("<div><dt>{term}</dt><dd>{samples}</dd></div>\n"));
    }
    page.push_str("</dl>\n</section>\n");
}

pub(super) fn footer(page: &mut String, now_us: i64) {
    page.push_str(&format!(
        "<footer><p>Made by polymeter {} at {}.</p></footer>\n",
        env!("CARGO_PKG_VERSION"),
        clock_time(now_us)
    ));
}
