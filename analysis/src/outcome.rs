//! The final state of a job as text. Pure.

use crate::model::Outcome;

/// Describes the end of a job; none if nothing is known.
pub fn outcome_text(outcome: &Outcome) -> Option<String> {
    let state = outcome.state.as_deref().map(state_text);
    let exit = exit_text(outcome.exit_code, outcome.exit_signal);
    let parts: Vec<String> = state.into_iter().chain(exit).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Describes the state that a scheduler reports.
fn state_text(state: &str) -> String {
    match state {
        "COMPLETED" => "completed",
        "FAILED" => "failed",
        "TIMEOUT" => "reached its time limit",
        "DEADLINE" => "reached its deadline",
        "CANCELLED" => "was cancelled",
        "OUT_OF_MEMORY" => "ran out of memory",
        "NODE_FAIL" => "failed because a node failed",
        "PREEMPTED" => "was preempted",
        "BOOT_FAIL" => "failed because a node did not boot",
        other => other,
    }
    .to_owned()
}

/// Describes the exit status or the signal of a job.
pub(crate) fn exit_text(code: Option<i64>, signal: Option<i64>) -> Option<String> {
    match (code, signal) {
        (_, Some(Outcome::SIGNAL_OUT_OF_MEMORY)) => {
            Some("killed for lack of memory (Slurm's signal 125)".to_owned())
        }
        (_, Some(signal)) if signal > 0 => {
            let name = signal_name(signal).map_or_else(String::new, |name| format!(" ({name})"));
            Some(format!("killed by signal {signal}{name}"))
        }
        (Some(code), _) => Some(format!("exit status {code}")),
        (None, _) => None,
    }
}

/// Returns the name of a signal that may end a job: signal(7).
fn signal_name(signal: i64) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(state: Option<&str>, exit_code: Option<i64>, exit_signal: Option<i64>) -> Option<String> {
        outcome_text(&Outcome { state: state.map(str::to_owned), exit_code, exit_signal })
    }

    #[test]
    fn known_parts_of_an_outcome_are_described() {
        for (state, code, signal, expected) in [
            (Some("COMPLETED"), Some(0), Some(0), "completed, exit status 0"),
            (Some("FAILED"), Some(3), Some(0), "failed, exit status 3"),
            (Some("TIMEOUT"), Some(0), Some(15), "reached its time limit, killed by signal 15 (SIGTERM)"),
            (Some("CANCELLED"), Some(0), Some(15), "was cancelled, killed by signal 15 (SIGTERM)"),
            (
                Some("OUT_OF_MEMORY"),
                Some(0),
                Some(125),
                "ran out of memory, killed for lack of memory (Slurm's signal 125)",
            ),
            (None, Some(0), Some(125), "killed for lack of memory (Slurm's signal 125)"),
            (None, Some(3), None, "exit status 3"),
            (None, Some(0), Some(40), "killed by signal 40"),
            (Some("REVOKED"), None, None, "REVOKED"),
        ] {
            assert_eq!(text(state, code, signal).as_deref(), Some(expected));
        }
        assert_eq!(text(None, None, None), None);
        assert_eq!(text(None, None, Some(0)), None);
    }
}
