//! Verdict on a job: its end, its use of resources and the number of findings. Pure.

use polymeter_proto::units;

use super::facts::Facts;
use crate::model::{Outcome, Report, Verdict};
use crate::outcome::exit_text;

pub(super) fn verdict(report: &Report, facts: &Facts) -> Verdict {
    let state = state(report);
    let used = used(facts);
    let things = report.findings.len() as u64;
    let end = end(report).map_or_else(|| state.clone(), |end| format!("{state}, {end}"));
    let mut parts = vec![end];
    parts.extend(used.as_ref().map(|used| format!("used {used}")));
    parts.push(match (things, report.advice_from_s) {
        (1.., _) => format!("{} to change", units::counted(things, "thing")),
        (0, _) if report.series.is_empty() => "no samples".to_owned(),
        (0, Some(_)) => "too short for advice".to_owned(),
        (0, None) if lacks_gpus(report) => "its GPUs were not sampled".to_owned(),
        (0, None) => "nothing to change".to_owned(),
    });
    Verdict { state, used, things, text: parts.join(" - ") }
}

/// Tells whether the job requested GPUs of which no sample is there: its cores are not judged.
fn lacks_gpus(report: &Report) -> bool {
    let has_requested = report.submission.gpus.is_some_and(|gpus| gpus > 0) && !report.submission.is_run();
    has_requested && !report.series.iter().any(|series| series.metric.starts_with("gpu."))
}

fn state(report: &Report) -> String {
    match &report.outcome.state {
        _ if !report.ended => "RUNNING".to_owned(),
        Some(state) => state.clone(),
        None => "ENDED".to_owned(),
    }
}

/// What the state leaves open: the exit status or signal, or that nobody saw the end.
fn end(report: &Report) -> Option<String> {
    let outcome = &report.outcome;
    match report.lost_nodes.as_slice() {
        [node] if outcome.state.is_none() => Some(format!("lost contact with {node}")),
        [_, _, ..] if outcome.state.is_none() => {
            Some(format!("lost contact with {} nodes", report.lost_nodes.len()))
        }
        _ if outcome.state.as_deref().is_some_and(Outcome::is_cause) || !report.ended => None,
        _ => exit_text(outcome.exit_code.filter(|code| *code != 0), outcome.exit_signal),
    }
}

fn used(facts: &Facts) -> Option<String> {
    let cores = facts.number("cores_used").map(|used| match facts.number("cores") {
        Some(all) => format!("{} of {}", cores_text(used), units::counted(format!("{all:.0}"), "core")),
        None => units::counted(cores_text(used), "core"),
    });
    let gpus = facts.number("gpu_utilization").zip(facts.number("gpus_sampled"));
    let gpus = gpus.map(|(share, gpus)| {
        format!("{:.0} % of {}", share * 100.0, units::counted(format!("{gpus:.0}"), "GPU"))
    });
    let parts: Vec<String> = cores.into_iter().chain(gpus).collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

pub(crate) fn cores_text(cores: f64) -> String {
    if cores < 10.0 { format!("{cores:.2}") } else { format!("{cores:.1}") }
}

#[cfg(test)]
mod tests {
    use crate::advice::Advice;
    use crate::model::{Outcome, Report};
    use crate::testing::{busy, gauge, report};

    fn verdict(mut report: Report) -> (String, Option<String>, u64, String) {
        Advice::built_in().advise(&mut report);
        let verdict = report.verdict;
        (verdict.state, verdict.used, verdict.things, verdict.text)
    }

    fn text(report: Report) -> String {
        verdict(report).3
    }

    fn full() -> Report {
        report(60, 8, vec![busy("n1", &[7.9; 60])])
    }

    fn of_end(state: Option<&str>, exit_code: Option<i64>, exit_signal: Option<i64>) -> String {
        let outcome = Outcome { state: state.map(str::to_owned), exit_code, exit_signal };
        text(Report { outcome, ..full() }).split(" - ").next().unwrap().to_owned()
    }

    fn lost(lost_nodes: &[&str]) -> String {
        let lost_nodes = lost_nodes.iter().map(|node| (*node).to_owned()).collect();
        text(Report { lost_nodes, outcome: Outcome::default(), ..full() })
    }

    #[test]
    fn a_verdict_has_the_end_the_use_and_the_number_of_findings() {
        let serial = report(60, 2, vec![busy("n1", &[0.88; 60])]);
        let expected = ("COMPLETED".to_owned(), Some("0.88 of 2 cores".to_owned()), 1);
        let found = verdict(serial);
        assert_eq!((found.0, found.1, found.2), expected);
        assert_eq!(found.3, "COMPLETED - used 0.88 of 2 cores - 1 thing to change");
        assert_eq!(text(full()), "COMPLETED - used 7.90 of 8 cores - nothing to change");
        assert_eq!(of_end(Some("FAILED"), Some(3), None), "FAILED, exit status 3");
        assert_eq!(of_end(Some("FAILED"), Some(0), Some(9)), "FAILED, killed by signal 9 (SIGKILL)");
        assert_eq!(of_end(Some("OUT_OF_MEMORY"), Some(0), Some(125)), "OUT_OF_MEMORY");
        assert_eq!(of_end(Some("TIMEOUT"), Some(0), Some(15)), "TIMEOUT");
        assert_eq!(of_end(None, Some(0), Some(15)), "ENDED, killed by signal 15 (SIGTERM)");
        assert_eq!(of_end(Some("COMPLETED"), Some(0), Some(0)), "COMPLETED");
        assert_eq!(of_end(None, None, None), "ENDED");
        assert!(text(Report { ended: false, ..full() }).starts_with("RUNNING - used 7.90"));
        assert!(lost(&["n1"]).starts_with("ENDED, lost contact with n1 - "), "{}", lost(&["n1"]));
        assert!(lost(&["n1", "n2"]).starts_with("ENDED, lost contact with 2 nodes - "));
    }

    #[test]
    fn what_is_unknown_is_left_out() {
        assert_eq!(text(Report { ended: true, ..Report::default() }), "ENDED - no samples");
        let short = report(1, 2, vec![busy("n1", &[0.5])]);
        assert_eq!(text(short), "COMPLETED - used 0.50 of 2 cores - too short for advice");
        let mut unrequested = report(60, 2, vec![busy("n1", &[1.0; 60])]);
        unrequested.submission.cores = None;
        assert_eq!(text(unrequested), "COMPLETED - used 1.00 cores - nothing to change");
        let gpu = crate::model::SeriesReport {
            labels: "gpu=0,uuid=GPU-a".to_owned(),
            ..gauge("gpu.utilization", &[90.0; 60])
        };
        let mut requested = report(60, 8, vec![busy("n1", &[0.0; 60])]);
        requested.submission.gpus = Some(4);
        assert_eq!(text(requested), "COMPLETED - used 0.00 of 8 cores - its GPUs were not sampled");
        let both = report(60, 8, vec![busy("n1", &[7.9; 60]), gpu]);
        assert_eq!(text(both), "COMPLETED - used 7.90 of 8 cores and 90 % of 1 GPU - nothing to change");
    }
}
