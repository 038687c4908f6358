//! Tests of the page: its structure, its size, and hostile names.

use polymeter_analysis::advice::Advice;
use polymeter_analysis::curve::Curve;
use polymeter_analysis::model::{
    LossReport, MarkedInstant, NodeReport, Outcome, PeriodUse, Phase, PlanChange, RefusedRequest, Resources,
    SeriesReport, StepReport, Submission, TaskReport,
};
use polymeter_proto::run::Run;

use super::*;
use crate::report::summary;

const HOSTILE: &str = "</script><img src=x onerror=\"alert('1')\">&amp;\u{202e}\u{0}";
const START_S: i64 = 1_795_348_800;

/// A thousand points of noise around waves, up to `most`.
fn series(
    seed: usize,
    node: &str,
    (metric, rate_unit, most): (&str, Option<&'static str>, f64),
    length_s: i64,
) -> SeriesReport {
    let mut random = u32::try_from(seed).unwrap().wrapping_mul(2_654_435_761) | 1;
    let mut noise = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(random >> 8) / f64::from(1 << 24)
    };
    let share = 0.4 + 0.5 * noise();
    let points: Vec<(i64, f64)> = (0..1000_i32)
        .map(|number| {
            let wave = 0.75 + 0.2 * (f64::from(number) / 60.0).sin();
            let time_s = START_S + i64::from(number) * length_s / 1000;
            (time_s * 1_000_000_000, most * share * wave * (0.9 + 0.1 * noise()))
        })
        .filter(|(time_ns, _)| !(400..460).contains(&((time_ns / 1_000_000_000 - START_S) * 1000 / length_s)))
        .collect();
    SeriesReport {
        metric: metric.to_owned(),
        node: node.to_owned(),
        unit: if metric == "gpu.utilization" { "percent" } else { "bytes" }.to_owned(),
        kind: if rate_unit.is_some() { "counter" } else { "gauge" }.to_owned(),
        rate_unit,
        samples: 1000,
        min: Some(0.0),
        mean: Some(most / 2.0),
        max: Some(most),
        growth: rate_unit.map(|_| 1e12),
        first_us: START_S * 1_000_000,
        last_us: (START_S + length_s) * 1_000_000,
        periods: vec![PeriodUse { period: "1s".to_owned(), seconds: 10.0 }],
        curve: Curve::of(&points),
        ..SeriesReport::default()
    }
}

/// A job of a day; the names of the `others` further metrics contain `name`.
#[expect(clippy::too_many_lines, reason = "a value with every field")]
fn report(nodes: usize, others: usize, name: &str) -> Report {
    let names: Vec<String> = (0..nodes).map(|node| format!("node{node:04}{name}")).collect();
    let used = Resources { cpu_s: Some(86_400.0), memory_bytes: Some(4e9), ..Resources::default() };
    let main = [
        ("cpu.usage", Some("cores"), 64.0),
        ("memory.anon", None, 2e11),
        ("memory.shmem", None, 1e9),
        ("memory.file", None, 8e9),
        ("io.read.bytes", Some("bytes/s"), 4e8),
        ("io.write.bytes", Some("bytes/s"), 2e9),
        ("pressure.cpu.some.total", Some("s/s"), 0.2),
        ("pressure.memory.some.total", Some("s/s"), 0.01),
        ("pressure.io.some.total", Some("s/s"), 0.5),
        ("gpu.utilization", None, 100.0),
        ("gpu.memory.used", None, 8e10),
        ("gpu.power", None, 700.0),
    ];
    let mut all = Vec::new();
    for (number, node) in names.iter().enumerate() {
        let seed = |metric: usize| number * 1000 + metric + 1;
        all.extend((0..).zip(main).map(|(metric, main)| series(seed(metric), node, main, 86_400)));
        all.extend((0..others).map(|other| {
            series(seed(20 + other), node, (&format!("user.{other:03}{name}"), None, 10.0), 86_400)
        }));
    }
    let text = || Some(name.to_owned());
    let mut report = Report {
        job: format!("4242{name}"),
        submission: Submission {
            name: text(),
            account: text(),
            queue: text(),
            cluster: text(),
            display_id: text(),
            ..Submission::default()
        },
        nodes: names.clone(),
        owner: text(),
        started_us: START_S * 1_000_000,
        ended_us: Some((START_S + 86_400) * 1_000_000),
        wall_s: 86_400.0,
        ended: true,
        outcome: Outcome { state: Some(format!("ODD{name}")), exit_code: Some(1), exit_signal: None },
        by_node: names
            .iter()
            .map(|node| NodeReport { node: node.clone(), used: used.clone(), ..NodeReport::default() })
            .collect(),
        steps: vec![StepReport { step: format!("0{name}"), ..StepReport::default() }],
        tasks: vec![TaskReport {
            step: "0".to_owned(),
            task: format!("1{name}"),
            used,
            ..TaskReport::default()
        }],
        series: all,
        losses: vec![LossReport {
            node: name.to_owned(),
            reason: name.to_owned(),
            source: text(),
            ..LossReport::default()
        }],
        phases: vec![Phase {
            name: format!("solve{name}"),
            begin_s: Some(10.0),
            end_s: Some(40_000.0),
            begin_us: Some((START_S + 10) * 1_000_000),
            end_us: Some((START_S + 40_000) * 1_000_000),
            node: names[0].clone(),
            ..Phase::default()
        }],
        marks: vec![MarkedInstant { name: format!("mark{name}"), at_s: 30.0, ..MarkedInstant::default() }],
        plan_changes: vec![PlanChange {
            metric: name.to_owned(),
            cause: "lease".to_owned(),
            actor: text(),
            ..PlanChange::default()
        }],
        refused_requests: vec![RefusedRequest {
            request: name.to_owned(),
            reason: name.to_owned(),
            ..RefusedRequest::default()
        }],
        notes: vec![format!("a note{name}")],
        ..Report::default()
    };
    Advice::built_in().advise(&mut report);
    report
}

/// Elements that are open at the end; panics if elements are not nested, or an attribute is not quoted.
fn open_elements(html: &str) -> Vec<String> {
    const VOID: [&str; 3] = ["meta", "br", "rect"];
    let mut open: Vec<String> = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("an element ends");
        let (inside, after) = (&rest[..end], &rest[end + 1..]);
        assert_eq!(inside.matches('"').count() % 2, 0, "<{inside}>");
        rest = after;
        if inside.starts_with('!') {
            continue;
        }
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "near {:.80}", rest);
            continue;
        }
        let name = inside.split([' ', '\n']).next().unwrap().to_owned();
        if name == "script" || name == "style" {
            let close = format!("</{name}>");
            rest = &rest[rest.find(&close).expect("it ends") + close.len()..];
        } else if !VOID.contains(&name.trim_end_matches('/')) && !inside.ends_with('/') {
            open.push(name);
        }
    }
    open
}

#[test]
fn a_page_is_well_formed_and_loads_nothing() {
    for report in [report(3, 2, ""), report(1, 0, ""), Report { job: "7".to_owned(), ..Report::default() }] {
        let page = page(&report, 0);
        assert_eq!(open_elements(&page), Vec::<String>::new());
        for address in
            ["http:", "https:", "src=", "url(", "@import", "javascript:", " onerror", " onclick", " style="]
        {
            let found = page.find(address).map(|at| page.get(at.saturating_sub(60)..at + 60));
            assert!(found.is_none(), "{address}: {found:?}");
        }
        let text = page.split("<script").next().unwrap();
        assert!(!text.contains("NaN") && !text.contains(">inf"), "a value is not a number");
    }
}

#[test]
fn hostile_names_stay_text() {
    let page = page(&report(2, 2, HOSTILE), 0);
    assert_eq!(open_elements(&page), Vec::<String>::new());
    assert!(!page.contains("<img") && !page.contains("</script><img"), "a name became an element");
    assert!(!page.contains('\u{202e}') && !page.contains('\u{0}'));
    let names = page
        .matches("&lt;/script&gt;&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;amp;")
        .count();
    assert!(names > 20, "{names}");
    assert_eq!(page.matches("</script>").count(), 3);
}

#[test]
fn a_page_has_the_content_of_the_first_screen() {
    let report = report(2, 0, "");
    let page = page(&report, 0);
    let facts = Facts::of(&report);
    for meter in summary::meters(&report, &facts) {
        assert!(page.contains(&element::text(&meter.text)), "{}", meter.text);
    }
    assert!(!report.findings.is_empty());
    for finding in &report.findings {
        assert!(
            page.contains(&element::text(&finding.sentence))
                && page.contains(&element::text(&finding.evidence))
        );
    }
    assert!(page.contains(&element::text(&summary::completeness(&report, &facts))));
    for part in [
        "<h2 id=\"usage\">",
        "<caption>Nodes</caption>",
        "<caption>Quantities</caption>",
        "ODD, exit status 1",
        "2026-11-23 12:00:00 UTC",
    ] {
        assert!(page.contains(part), "no {part}");
    }
}

#[test]
fn what_is_not_known_is_left_out() {
    let mut report = Report { job: "7".to_owned(), wall_s: 0.05, ended: true, ..Report::default() };
    Advice::built_in().advise(&mut report);
    let page = page(&report, 0);
    for part in ["<p>No samples.</p>", "none: no samples", "<dd>50 ms</dd>", "ENDED - no samples"] {
        assert!(page.contains(part), "no {part}");
    }
    let body = page.split("<body>").nth(1).unwrap().split("<script").next().unwrap();
    assert!(!body.contains("unknown") && !body.contains("<dt>Account"), "{body}");
    assert!(!page.contains("id=\"figures\""));
}

#[test]
fn answers_come_before_charts() {
    let mut report = report(2, 0, "");
    let run =
        Run::of([b"./a.out".as_slice(), b"<b>"].into_iter(), Some(b"/srv"), Some(b"n1"), std::iter::empty());
    report.submission.run = Some(run);
    let page = page(&report, 0);
    let parts = [
        format!("<p class=\"state\"><bdi>{}</bdi></p>", element::text(&report.verdict.text)),
        "<dt>Command</dt><dd><bdi>./a.out &#39;&lt;b&gt;&#39;</bdi></dd>".to_owned(),
        "<h2 id=\"findings\">".to_owned(),
        "<h2 id=\"usage\">".to_owned(),
        "<h2 id=\"phases\">".to_owned(),
        "<h2 id=\"charts\">".to_owned(),
        "<details>\n<summary>Changes of the sampling plan (1)</summary>".to_owned(),
    ];
    let places: Vec<usize> =
        parts.iter().map(|part| page.find(part).unwrap_or_else(|| panic!("no {part}"))).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn a_page_stays_small() {
    for (nodes, others, limit_bytes) in [(1, 100, 1_000_000), (100, 40, 2_000_000), (400, 2, 2_000_000)] {
        let bytes = page(&report(nodes, others, ""), 0).len();
        assert!(bytes < limit_bytes, "{bytes} bytes for {nodes} nodes and {others} other metrics");
    }
}

#[test]
fn long_tables_show_both_ends() {
    let mut report = report(1, 0, "");
    report.tasks = (0..5000)
        .map(|task| TaskReport { step: "0".to_owned(), task: format!("task{task}"), ..TaskReport::default() })
        .collect();
    let page = page(&report, 0);
    assert!(page.contains("Not shown: 4000 rows in the middle"));
    assert!(page.contains("task499<") && !page.contains("task500<") && page.contains("task4999<"));
}
