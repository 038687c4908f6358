//! Function whose time differs most between the processes of a program. Pure.

use std::collections::{BTreeMap, HashMap};

use polymeter_proto::units::to_f64;

use super::activities::activity_of;
use super::functions::FunctionTime;
use super::profile::ProcessId;
use super::stack_names::Function;
use super::tree::Weight;
use crate::model::FunctionImbalance;

/// Functions that are compared: those with the most time.
const FUNCTIONS: usize = 100;

/// Least excess of samples of a process over the mean, in standard deviations of a count: chance exceeds it
/// in fewer than one of ten thousand counts.
const DEVIATIONS: f64 = 4.0;

pub(super) type OwnTimes<'a> = BTreeMap<&'a ProcessId, HashMap<&'a Function, Weight>>;

fn is_compared(function: &Function) -> bool {
    let module = function.module.as_str();
    !module.starts_with('[') && !module.starts_with("libc.") && activity_of(function).is_none()
}

/// Finds the function of the program whose time differs most between the processes that execute the same
/// file. Functions in which processes wait or communicate are left out: they have the time that others need.
pub(super) fn imbalance(times: &OwnTimes<'_>, functions: &[FunctionTime<'_>]) -> Option<FunctionImbalance> {
    let compared = functions.iter().map(|time| time.function).filter(|function| is_compared(function));
    let found = compared.take(FUNCTIONS).filter_map(|function| of_function(times, function));
    found.max_by(|one, other| one.percent.total_cmp(&other.percent))
}

fn of_function(times: &OwnTimes<'_>, function: &Function) -> Option<FunctionImbalance> {
    let mut processes = Vec::new();
    for (process, own) in times {
        let executes = own.keys().any(|other| other.module == function.module);
        if let (node, Some(process)) = process
            && executes
        {
            let mut all = Weight::default();
            own.values().for_each(|weight| all += *weight);
            processes.push((own.get(function).copied().unwrap_or_default(), all, node, *process));
        }
    }
    let count = to_f64(processes.len() as u64);
    let mean = |of: fn(Weight, Weight) -> u64| {
        processes.iter().map(|(own, all, ..)| to_f64(of(*own, *all))).sum::<f64>() / count
    };
    let mean_samples = mean(|own, _| own.samples);
    let (mean_us, all_us) = (mean(|own, _| own.time_us), mean(|_, all| all.time_us));
    let (most, _, node, process) = processes.iter().max_by_key(|(own, ..)| own.time_us)?;
    let by_chance = DEVIATIONS * to_f64(most.samples).sqrt();
    let differs = processes.len() > 1 && to_f64(most.samples) - mean_samples > by_chance;
    differs.then(|| FunctionImbalance {
        function: function.label(),
        module: function.module.clone(),
        processes: processes.len(),
        most_s: most.seconds(),
        mean_s: mean_us / 1e6,
        percent: 100.0 * (to_f64(most.time_us) - mean_us) / all_us,
        node: (*node).clone(),
        process: *process,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the imbalance of processes, each with the samples of `solve` and of waiting.
    fn of(processes: &[(u64, u64)]) -> Option<FunctionImbalance> {
        let function =
            |name: &str, module: &str| Function { name: name.to_owned(), module: module.to_owned() };
        let (solve, wait) = (function("solve", "a.out"), function("MPI_Barrier", "libmpi.so.40"));
        let weight = |samples| Weight { samples, time_us: samples * 10_000 };
        let ids: Vec<ProcessId> =
            (0..).take(processes.len()).map(|process| ("n1".to_owned(), Some(process))).collect();
        let own =
            |(one, other): &(u64, u64)| HashMap::from([(&solve, weight(*one)), (&wait, weight(*other))]);
        let times: OwnTimes<'_> = ids.iter().zip(processes.iter().map(own)).collect();
        let time = |function| FunctionTime { function, own: weight(1), total: weight(1) };
        imbalance(&times, &[time(&wait), time(&solve)])
    }

    #[test]
    fn the_function_and_the_process_with_more_time_are_found() {
        let found = of(&[(500, 500), (1000, 0), (500, 500), (400, 600)]).unwrap();
        assert_eq!((found.function.as_str(), found.process, found.processes), ("solve", 1, 4));
        assert!((found.most_s - 10.0).abs() < 1e-9 && (found.mean_s - 6.0).abs() < 1e-9, "{found:?}");
        assert!((found.percent - 40.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn chance_is_no_imbalance() {
        assert_eq!(of(&[(1000, 0)]), None, "one process");
        assert_eq!(of(&[(1000, 0), (1040, 0), (980, 0)]), None);
        assert_eq!(of(&[(3, 7), (10, 0)]), None, "few samples");
        assert!(of(&[(1000, 0), (1400, 0), (980, 0)]).is_some());
    }
}
