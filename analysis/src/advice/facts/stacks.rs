//! Facts about the functions in which a job spent its CPU time, and in which its threads waited. Pure.

use polymeter_proto::units::to_f64;

use super::values::Facts;
use crate::model::{ActivityReport, Report, StackReport};
use crate::stacks::activities::NO_SYMBOL;
use crate::stacks::profile::{CPU, WAIT};

/// Activity, and the names of the facts about its share and its functions.
struct ActivityFacts {
    activity: &'static str,
    share: &'static str,
    functions: &'static str,
}

const fn facts(activity: &'static str, share: &'static str, functions: &'static str) -> ActivityFacts {
    ActivityFacts { activity, share, functions }
}

const ACTIVITY_FACTS: [ActivityFacts; 8] = [
    facts("mpi", "mpi_share", "mpi_functions"),
    facts("openmp", "openmp_share", "openmp_functions"),
    facts("locks", "lock_share", "lock_functions"),
    facts("io", "io_share", "io_functions"),
    facts("page-faults", "page_fault_share", "page_fault_functions"),
    facts("interpreter", "interpreter_share", "interpreter_functions"),
    facts("numerical-libraries", "numerical_share", "numerical_functions"),
    facts(NO_SYMBOL, "no_symbol_share", "no_symbol_modules"),
];

/// Waits that can be changed. A thread may wait for others since it has nothing to do.
const WAIT_FACTS: [ActivityFacts; 2] = [
    facts("locks", "wait_lock_share", "wait_lock_functions"),
    facts("io", "wait_io_share", "wait_io_functions"),
];

pub(super) fn add(facts: &mut Facts, report: &Report) {
    let of_metric = |metric| report.call_stacks.iter().find(|of| of.metric == metric && of.samples > 0);
    if let Some(waits) = of_metric(WAIT) {
        facts.set_number("wait_samples", Some(to_f64(waits.samples)));
        add_activities(facts, waits, &WAIT_FACTS);
    }
    let Some(stacks) = of_metric(CPU) else { return };
    let samples = to_f64(stacks.samples);
    facts.set_number("stack_samples", Some(samples));
    // The widest interval, which is that of a share of one half.
    facts.set_number("stack_uncertainty", Some(1.0 / samples.sqrt()));
    add_activities(facts, stacks, &ACTIVITY_FACTS);
    add_imbalance(facts, stacks);
}

fn add_activities(facts: &mut Facts, stacks: &StackReport, activities: &[ActivityFacts]) {
    for ActivityFacts { activity, share, functions } in activities {
        let found = stacks.activities.iter().find(|of| of.activity == *activity);
        facts.set_number(share, Some(found.map_or(0.0, |found| found.percent / 100.0)));
        facts.set_text(functions, found.map(names));
    }
}

/// Names with their shares.
fn names(activity: &ActivityReport) -> String {
    activity
        .functions
        .iter()
        .map(|share| format!("{} {:.1} %", share.function, share.self_percent))
        .collect::<Vec<_>>()
        .join(", ")
}

fn add_imbalance(facts: &mut Facts, stacks: &StackReport) {
    let Some(found) = &stacks.imbalance else { return };
    facts.set_number("function_imbalance", Some(found.percent / 100.0));
    facts.set_text("imbalanced_function", Some(found.function.as_str()));
    facts.set_text("imbalanced_process", Some(format!("{} on {}", found.process, found.node)));
    facts.set_number("imbalanced_most", Some(found.most_s));
    facts.set_number("imbalanced_mean", Some(found.mean_s));
    facts.set_number("imbalanced_processes", Some(to_f64(found.processes as u64)));
}
