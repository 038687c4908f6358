//! Rules and facts as a page of the documents. Pure.

use super::facts::FACTS;
use super::rule::Rule;
use crate::expression::{QUANTITY_UNITS, Statistic};
use crate::model::{Scheduler, Severity};
use crate::stacks::activities::ACTIVITIES;

const HEAD: &str = include_str!("reference.txt");

/// Returns docs/reference/advice.md.
pub fn reference(rules: &[Rule]) -> String {
    let mut text = format!("{HEAD}## Rules\n\n");
    for severity in Severity::ALL {
        for rule in rules.iter().filter(|rule| rule.severity == severity) {
            text.push_str(&of_rule(rule));
        }
    }
    text.push_str("## Facts\n\n| fact | unit | meaning |\n| --- | --- | --- |\n");
    for fact in FACTS {
        text.push_str(&format!("| `{}` | {} | {} |\n", fact.name, fact.unit.name(), fact.help));
    }
    let units: Vec<String> = QUANTITY_UNITS.iter().map(|(unit, _)| format!("`{unit}`")).collect();
    let statistics: Vec<String> =
        Statistic::ALL.iter().map(|statistic| format!("`{}`", statistic.name())).collect();
    text.push_str(&format!(
        "\nUnits of numbers: {}. Statistics of a metric, as in `mean('gpu.utilization')`: {}.\n",
        units.join(", "),
        statistics.join(", ")
    ));
    text.push_str(&activities());
    text
}

/// Lists the activities with the functions by which they are known.
fn activities() -> String {
    let mut text = include_str!("activities.txt").to_owned();
    for activity in &ACTIVITIES {
        let [total, own] = [activity.total, activity.own].map(|patterns| {
            patterns
                .iter()
                .map(|pattern| {
                    let functions: Vec<String> =
                        pattern.functions.iter().map(|function| format!("`{function}`")).collect();
                    format!("{} in `{}`", functions.join(" "), pattern.module)
                })
                .collect::<Vec<_>>()
                .join("; ")
        });
        text.push_str(&format!("| `{}` | {} | {total} | {own} |\n", activity.name, activity.text));
    }
    text
}

fn of_rule(rule: &Rule) -> String {
    let mut text = format!("### `{}`\n\n{}: {}\n\n", rule.id, rule.severity.name(), rule.sentence.source());
    text.push_str(&format!("- condition: `{}`\n", rule.condition));
    let thresholds: Vec<String> =
        rule.thresholds.iter().map(|(name, number)| format!("`{name}` = {number}")).collect();
    text.push_str(&format!("- thresholds: {}\n", thresholds.join(", ")));
    if rule.elapsed_min_s > 0.0 {
        text.push_str(&format!(
            "- for jobs of at least {}\n",
            polymeter_proto::units::elapsed(rule.elapsed_min_s)
        ));
    }
    let listed =
        |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if let Some(resource) = rule.resource {
        text.push_str(&format!("- about: `{}`\n", resource.name()));
    }
    if !rule.except_states.is_empty() {
        text.push_str(&format!("- not in the states {}\n", listed(&rule.except_states)));
    }
    if !rule.suppressed_by.is_empty() {
        text.push_str(&format!("- suppressed by {}\n", listed(&rule.suppressed_by)));
    }
    text.push_str(&format!("- evidence: {}\n", rule.evidence.source()));
    for scheduler in Scheduler::ALL {
        if let Some(remedy) = rule.remedies.get(&scheduler) {
            text.push_str(&format!("- remedy ({}): `{}`\n", scheduler.name(), remedy.source()));
        }
    }
    text.push('\n');
    text
}
