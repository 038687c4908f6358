//! Metrics and periods of `polymeter run`. Pure.

use polymeter_agent::config;
use polymeter_agent::plan::Rule;
use polymeter_proto::period::Sampling;

use crate::failure::Failure;

/// Those that a machine does not have are left out.
const STANDARD: [&str; 16] = [
    "cpu.usage",
    "cpu.user",
    "cpu.system",
    "memory.current",
    "memory.peak",
    "memory.anon",
    "memory.shmem",
    "memory.file",
    "io.read.bytes",
    "io.write.bytes",
    "pids.current",
    "perf.page_faults",
    "perf.page_faults_major",
    "perf.context_switches",
    "perf.cpu_migrations",
    "perf.task_clock",
];

const OF_PROCESSES: &str = "process.*";

/// Rules for the standard metrics at the period `every`, and for the requested ones, `SELECTOR[=PERIOD]`. A
/// request replaces the standard rule of a metric.
pub(super) fn rules(every: Sampling, requested: &[String], has_cgroup: bool) -> Result<Vec<Rule>, Failure> {
    let every = every.to_string();
    let (mut rules, mut faults) = (Vec::new(), Vec::new());
    for text in requested {
        let (selector, period) = text.split_once('=').unwrap_or((text, &every));
        match config::rule(selector, period) {
            Ok(rule) => rules.push(rule),
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    if !faults.is_empty() {
        return Err(Failure::Usage(faults.join("\npolymeter: ")));
    }
    let of_processes = (!has_cgroup).then_some(OF_PROCESSES);
    let metrics = STANDARD.into_iter().chain(of_processes);
    let standard = metrics.map(|metric| (metric, every.as_str())).chain([("agent.*", "1s")]);
    let standard =
        standard.filter(|(metric, _)| !rules.iter().any(|rule: &Rule| rule.selector.matches(metric)));
    let standard: Vec<Rule> =
        standard.filter_map(|(metric, period)| config::rule(metric, period).ok()).collect();
    Ok(standard.into_iter().chain(rules).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(requested: &[&str]) -> Vec<String> {
        let requested: Vec<String> = requested.iter().map(|text| (*text).to_owned()).collect();
        let rules = rules("100ms".parse().unwrap(), &requested, true).unwrap();
        rules.iter().map(|rule| rule.selector.to_string()).collect()
    }

    #[test]
    fn every_standard_metric_has_a_rule() {
        assert_eq!(texts(&[]).len(), STANDARD.len() + 1);
    }

    fn has_process_rule(has_cgroup: bool) -> bool {
        let rules = rules("1s".parse().unwrap(), &[], has_cgroup).unwrap();
        rules.iter().any(|rule| rule.selector.to_string() == OF_PROCESSES)
    }

    #[test]
    fn processes_are_read_where_there_is_no_cgroup() {
        assert!(has_process_rule(false) && !has_process_rule(true));
    }

    #[test]
    fn a_request_replaces_the_standard_rule() {
        let texts = texts(&["cpu.usage=1ms", "pids.peak"]);
        assert_eq!(texts.iter().filter(|text| *text == "cpu.usage").count(), 1);
        assert_eq!(texts.len(), STANDARD.len() + 2);
    }

    #[test]
    fn all_faults_are_reported_together() {
        let requested = ["cpu.usge".to_owned(), "memory.current=fast".to_owned()];
        let Err(Failure::Usage(message)) = rules("1s".parse().unwrap(), &requested, true) else {
            panic!("accepted");
        };
        assert!(message.contains("cpu.usge") && message.contains("fast"), "{message}");
    }
}
