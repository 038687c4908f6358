use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::run::Run;
use polymeter_proto::units::to_f64;
use serde::Deserialize;

use super::*;
use crate::expression::Value;
use crate::testing::{busy, gauge, report};

/// Relative distance between the two values of an edge, and of each from the threshold.
const NEAR: f64 = 0.35;

#[derive(Deserialize)]
struct Case {
    facts: BTreeMap<String, toml::Value>,
    edges: Vec<Edge>,
}

/// Two values of a fact, on both sides of a threshold.
#[derive(Deserialize)]
struct Edge {
    threshold: String,
    fact: String,
    speaks: f64,
    silent: f64,
    /// Further facts.
    #[serde(default)]
    with: BTreeMap<String, toml::Value>,
}

fn cases() -> BTreeMap<String, Case> {
    toml::from_str(include_str!("rules_test.toml")).unwrap()
}

fn facts(case: &Case, edge: &Edge, number: f64) -> Facts {
    let mut facts = Facts::default();
    facts.set("elapsed", Some(Value::Number(3600.0)));
    for (name, value) in case.facts.iter().chain(&edge.with) {
        let value = match (value.as_bool(), value.as_str()) {
            (Some(truth), _) => Value::Truth(truth),
            (None, Some(text)) => Value::Text(text.to_owned()),
            (None, None) => Value::Number(
                value
                    .as_float()
                    .or_else(|| value.as_integer().map(|whole| to_f64(whole.try_into().unwrap())))
                    .unwrap(),
            ),
        };
        assert!(facts.set(name, Some(value)), "unknown fact {name}");
    }
    assert!(facts.set(&edge.fact, Some(Value::Number(number))), "unknown fact {}", edge.fact);
    facts
}

fn ids(advice: &Advice, facts: &Facts) -> Vec<String> {
    advice.findings(facts).into_iter().map(|finding| finding.id).collect()
}

#[test]
fn the_built_in_rules_have_no_faults() {
    let (set, faults) = RuleSet::default().with(Path::new("rules.toml"), RULES);
    assert_eq!(faults.to_string(), "");
    assert!(set.rules().len() > 25);
}

#[test]
fn each_rule_is_tested_on_both_sides_of_each_threshold() {
    let advice = Advice::built_in();
    let cases = cases();
    let tested: BTreeSet<&str> = cases.keys().map(String::as_str).collect();
    let known: BTreeSet<&str> = advice.rules().iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(tested, known, "rules with a test, and rules");
    for rule in advice.rules() {
        let case = &cases[&rule.id];
        let tested: BTreeSet<&str> = case.edges.iter().map(|edge| edge.threshold.as_str()).collect();
        let mut thresholds: BTreeSet<&str> = rule.thresholds.keys().map(String::as_str).collect();
        thresholds.extend((rule.elapsed_min_s > 0.0).then_some("elapsed_min"));
        assert_eq!(tested, thresholds, "thresholds with a test, and thresholds of {}", rule.id);
        for edge in &case.edges {
            let name = format!("{} at {}", rule.id, edge.threshold);
            let apart = (edge.speaks - edge.silent).abs();
            assert!(
                apart <= NEAR * edge.speaks.abs().max(edge.silent.abs()).max(1.0 / NEAR),
                "{name}: far apart"
            );
            let found = |value| ids(&advice, &facts(case, edge, value));
            assert!(found(edge.speaks).contains(&rule.id), "{name}: silent, found {:?}", found(edge.speaks));
            assert!(!found(edge.silent).contains(&rule.id), "{name}: speaks");
        }
    }
}

#[test]
fn moving_a_threshold_moves_the_edge() {
    // With the threshold far beyond both values, both are on the same side.
    let advice = Advice::built_in();
    for (id, case) in cases() {
        for edge in case.edges.iter().filter(|edge| edge.threshold != "elapsed_min") {
            let mut same = 0;
            for threshold in ["0.000000001", "1e15"] {
                let text = format!("[{id}]\nthresholds = {{ {} = \"{threshold}\" }}\n", edge.threshold);
                let (set, faults) = built_in_set().with(Path::new("a.toml"), &text);
                assert_eq!(faults.to_string(), "", "{id}");
                let advice = Advice::of(&set);
                let speaks = |value| ids(&advice, &facts(&case, edge, value)).contains(&id);
                same += usize::from(speaks(edge.speaks) == speaks(edge.silent));
            }
            assert!(same >= 1, "{id}: {} has no effect", edge.threshold);
        }
    }
    assert!(!advice.rules().is_empty());
}

#[test]
fn nothing_is_found_where_nothing_is_known() {
    assert_eq!(ids(&Advice::built_in(), &Facts::default()), [""; 0]);
    let mut facts = Facts::default();
    facts.set("elapsed", Some(Value::Number(1e6)));
    facts.set("ended", Some(Value::Truth(true)));
    assert_eq!(ids(&Advice::built_in(), &facts), [""; 0]);
}

#[test]
fn suppression_is_not_mutual() {
    let advice = Advice::built_in();
    for rule in advice.rules() {
        for other in advice.rules().iter().filter(|other| rule.suppressed_by.contains(&other.id)) {
            assert!(
                !other.suppressed_by.contains(&rule.id),
                "{} and {} suppress each other",
                rule.id,
                other.id
            );
        }
    }
}

#[test]
fn the_most_severe_finding_is_first_and_others_may_be_suppressed() {
    let mut facts = Facts::default();
    for (name, number) in [
        ("elapsed", 3600.0),
        ("nodes", 1.0),
        ("cores", 16.0),
        ("cores_used", 1.0),
        ("cores_peak", 1.0),
        ("cpu_efficiency", 1.0 / 16.0),
        ("swap_peak", 1e9),
    ] {
        facts.set(name, Some(Value::Number(number)));
    }
    let findings = Advice::built_in().findings(&facts);
    let ids: Vec<_> = findings.iter().map(|finding| (finding.severity, finding.id.as_str())).collect();
    assert_eq!(ids, [(Severity::Critical, "serial-code"), (Severity::Warning, "swapping")]);
    let serial = &findings[0];
    assert_eq!(serial.sentence, "The program used one core of 16: it seems to be serial.");
    assert_eq!(serial.evidence, "cores in use: 1 on average, at most 1 at a time; 6.25 % of 16");
    assert_eq!(serial.figures["one_max"], 1.01);
    assert_eq!(
        serial.remedy(Some(Scheduler::Slurm)).as_deref(),
        Some("#SBATCH --ntasks=1 --cpus-per-task=1")
    );
    assert_eq!(
        serial.remedy(None).as_deref(),
        Some("Request one core, or run 16 independent cases in one job.")
    );
}

const SITE: &str = r#"
scheduler = "oar"

[low-cpu-efficiency]
thresholds = { low = "40 %" }
severity = "note"

[stragglers]
disabled = true

[own]
severity = "critical"
when = "highest('user.loss') > most and elapsed > 1 min"
sentence = "The loss reached {highest('user.loss')}."
evidence = "{elapsed}"
thresholds = { most = 3 }
remedy.any = "Stop."
"#;

#[test]
fn a_site_changes_disables_and_adds_rules() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("10-site.toml"), SITE).unwrap();
    fs::write(directory.path().join("20-site.toml"), "[own]\nthresholds.most = 5\n").unwrap();
    fs::write(directory.path().join("README"), "no rules").unwrap();
    let (advice, faults) = Advice::load(directory.path());
    assert_eq!((faults.to_string().as_str(), advice.scheduler()), ("", Some(Scheduler::Oar)));
    let rule = |id: &str| advice.rules().iter().find(|rule| rule.id == id);
    let changed = rule("low-cpu-efficiency").unwrap();
    assert_eq!((changed.thresholds["low"], changed.severity), (0.4, Severity::Note));
    assert!(rule("stragglers").is_none());
    let mut facts = Facts::default();
    facts.set("elapsed", Some(Value::Number(90.0)));
    let with_loss = |highest| facts::MetricFacts { highest: Some(highest), ..facts::MetricFacts::default() };
    facts.set_metric("user.loss", with_loss(6.0));
    assert_eq!(advice.findings(&facts)[0].sentence, "The loss reached 6.");
    facts.set_metric("user.loss", with_loss(5.0));
    assert_eq!(advice.findings(&facts), []);
}

#[test]
fn a_file_with_a_fault_is_rejected_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    file(
        "a.toml",
        "[stragglers]\ndisabled = true\n[own]\nwhen = \"\"\"\ncores > 1\n  and core > 2\"\"\"\nsentence = \"s\"\nevidence = \"e\"\nseverity = \"note\"\n",
    );
    file(
        "b.toml",
        "[swapping]\nthresholds = { byte = 1 }\nwhe = 1\n[x]\nseverity = \"bad\"\n[low-gpu]\nthresholds.low = \"15 parsec\"\nsuppressed_by = [\"unused-cpu\"]\n[y]\nwhen = \"cores + 1\"\nsentence = \"{cores\"\nevidence = \"\"\nseverity = \"note\"\n",
    );
    let (advice, faults) = Advice::load(directory.path());
    assert!(advice.rules().iter().any(|rule| rule.id == "stragglers"), "the file was applied in part");
    let lines: Vec<String> = faults.0.iter().map(ToString::to_string).collect();
    let has = |name: &str, text: &str| {
        let line = format!("{}{text}", directory.path().join(name).display());
        assert!(lines.iter().any(|found| found.starts_with(&line)), "no `{text}` in {lines:#?}");
    };
    has("a.toml", ":6: `when` of `own`, character 17: unknown fact `core`; did you mean `cores`?");
    has("b.toml", ":1: `suppressed_by` of `low-gpu`: unknown rule `unused-cpu`; did you mean `unused-gpu`?");
    has("b.toml", ":2: unknown threshold `byte`: the rule has bytes");
    has("b.toml", ":3: unknown key `whe` in [swapping]; did you mean `when`?");
    has("b.toml", ":4: rule `x` lacks when, sentence, evidence, severity");
    has("b.toml", ":5: `severity`: unknown value `bad`: expected critical, warning, note");
    has("b.toml", ":7: `low`: expected a number with an optional unit");
    has("b.toml", ":10: `when` of `y`, character 1: expected a condition, found a number");
    has("b.toml", ":11: `sentence` of `y`, character 2: `{` without `}`");
}

#[test]
fn a_missing_directory_has_no_files() {
    let (advice, faults) = Advice::load(Path::new("/nonexistent/advice.d"));
    assert_eq!((advice.rules().len(), faults), (Advice::built_in().rules().len(), Faults::default()));
}

#[test]
fn the_page_of_the_rules_is_current() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/advice.md");
    let text = reference(Advice::built_in().rules());
    if std::env::var_os("POLYMETER_BLESS").is_some() {
        return fs::write(page, text).unwrap();
    }
    let current = fs::read_to_string(page).unwrap_or_default();
    assert!(current == text, "{page} is old: run `make bless`");
}

#[test]
fn the_example_of_a_site_is_valid() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/advice.md");
    let page = fs::read_to_string(page).unwrap();
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect();
    assert!(!examples.is_empty());
    let mut set = built_in_set();
    for example in examples {
        let (next, faults) = set.with(Path::new("advice.md"), example);
        assert_eq!(faults.to_string(), "", "{example}");
        set = next;
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_rule_or_a_fault(noise in "\\PC{0,40}", line in 0..400_usize, at in 0..80_usize, byte in 0..=255_u8) {
        // The built-in rules with a piece of noise somewhere.
        let mut lines: Vec<String> = RULES.lines().map(str::to_owned).collect();
        let count = lines.len();
        let line = &mut lines[line % count];
        let at = line.char_indices().map(|(at, _)| at).nth(at).unwrap_or(line.len());
        line.insert_str(at, &noise);
        let (advice, faults) = Advice::with_file(Path::new("a"), &lines.join("\n"));
        proptest::prop_assert!(faults.0.iter().all(|fault| fault.place.starts_with("a:")), "{}", faults);
        let mut facts = Facts::default();
        for (number, fact) in facts::FACTS.iter().enumerate().filter(|(number, _)| (usize::from(byte) >> (number % 8)) & 1 == 1) {
            let number = Value::Number(to_f64(number as u64) - 20.0);
            let values = [number, Value::Truth(true), Value::Text("COMPLETED".to_owned())];
            assert!(values.into_iter().any(|value| facts.set(fact.name, Some(value))));
        }
        for finding in advice.findings(&facts) {
            proptest::prop_assert!(finding.figures.values().all(|figure| figure.is_finite()));
        }
    }
}

/// Two ranks, one of which waits for the other, on a machine with much memory and a GPU that nobody uses.
#[test]
fn a_run_has_findings_about_cores_and_none_about_what_it_did_not_request() {
    let of = |run: Option<Run>, minutes: u32| {
        let cpu = busy("n1", &vec![0.97; minutes as usize]);
        let mut job = report(minutes, 2, vec![cpu, gauge("memory.anon", &[1e9; 10])]);
        (job.submission.memory_bytes, job.submission.gpus) = (Some(64 << 30), Some(1));
        job.submission.run = run;
        Advice::built_in().advise(&mut job);
        let ids: Vec<String> = job.findings.iter().map(|finding| finding.id.clone()).collect();
        (ids, job.no_findings(), job.verdict.text)
    };
    let (ids, _, verdict) = of(Some(Run::default()), 10);
    assert_eq!(ids, ["serial-code"]);
    assert_eq!(verdict, "COMPLETED - used 0.97 of 2 cores - 1 thing to change");
    assert_eq!(of(None, 10).0, ["memory-below-request"], "a job asked for the GPU and the memory");
    let (ids, none, verdict) = of(Some(Run::default()), 1);
    assert!(ids.is_empty() && none.contains("too short for advice"), "{none}");
    assert!(verdict.ends_with("too short for advice"), "{verdict}");
}
