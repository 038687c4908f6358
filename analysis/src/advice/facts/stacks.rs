//! Facts about the functions in which a job spent its CPU time. Pure.

use polymeter_proto::units::to_f64;

use super::values::Facts;
use crate::model::{ActivityReport, FunctionShare, Report, StackReport};
use crate::stacks::activities::NO_SYMBOL;
use crate::stacks::profile::CPU;

/// An activity, and the names of the facts about its share and its functions.
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

/// Adds the facts, if call stacks were sampled on CPUs.
pub(super) fn add(facts: &mut Facts, report: &Report) {
    let Some(stacks) = report.call_stacks.iter().find(|stacks| stacks.metric == CPU && stacks.samples > 0)
    else {
        return;
    };
    let samples = to_f64(stacks.samples);
    facts.set_number("stack_samples", Some(samples));
    // The widest interval, which is that of a share of one half.
    facts.set_number("stack_uncertainty", Some(1.0 / samples.sqrt()));
    for ActivityFacts { activity, share, functions } in ACTIVITY_FACTS {
        let found = stacks.activities.iter().find(|of| of.activity == activity);
        facts.set_number(share, Some(found.map_or(0.0, |found| found.percent / 100.0)));
        facts.set_text(functions, found.map(names));
    }
    add_imbalance(facts, stacks);
}

/// Returns the functions of an activity with their shares.
fn names(activity: &ActivityReport) -> String {
    let name = |share: &FunctionShare| format!("{} {:.1} %", share.function, share.self_percent);
    activity.functions.iter().map(name).collect::<Vec<_>>().join(", ")
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
