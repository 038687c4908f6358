//! Exit status or signal of a job as text. Pure.

use crate::model::Outcome;

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

/// Signals that may end a job: signal(7).
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

    #[test]
    fn an_exit_status_or_a_signal_is_described() {
        for (code, signal, expected) in [
            (Some(0), Some(0), Some("exit status 0")),
            (Some(3), None, Some("exit status 3")),
            (Some(0), Some(15), Some("killed by signal 15 (SIGTERM)")),
            (None, Some(40), Some("killed by signal 40")),
            (Some(0), Some(125), Some("killed for lack of memory (Slurm's signal 125)")),
            (None, Some(0), None),
            (None, None, None),
        ] {
            assert_eq!(exit_text(code, signal).as_deref(), expected);
        }
    }
}
