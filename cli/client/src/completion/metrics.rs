//! Metrics of the catalogue, also with periods.

use std::ffi::OsStr;

use clap_complete::engine::CompletionCandidate;
use polymeter_proto::catalogue::{self, derived};

use super::beginning_with;
use super::periods;

pub fn metric(current: &OsStr) -> Vec<CompletionCandidate> {
    let named = catalogue::all().filter(|metric| !metric.name.ends_with('*'));
    let derived = derived::all()
        .filter(|derived| !derived.name.ends_with('*'))
        .map(|derived| CompletionCandidate::new(derived.name).help(Some(derived.help.into())));
    beginning_with(
        current,
        named
            .map(|metric| CompletionCandidate::new(metric.name).help(Some(metric.help.into())))
            .chain(derived),
    )
}

/// Such as `cpu.usage=10ms`.
pub fn metric_with_period(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    let Some((selector, period)) = text.split_once('=') else {
        return metric(current)
            .into_iter()
            .map(|candidate| {
                let help = candidate.get_help().cloned();
                let name = candidate.get_value().to_string_lossy().into_owned();
                CompletionCandidate::new(name + "=").help(help)
            })
            .collect();
    };
    let prefix = format!("{selector}=");
    let periods = periods::period(OsStr::new(period)).into_iter();
    periods.map(|candidate| candidate.add_prefix(prefix.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(candidates: &[CompletionCandidate]) -> Vec<&str> {
        candidates.iter().map(|candidate| candidate.get_value().to_str().unwrap()).collect()
    }

    #[test]
    fn metrics_are_completed_and_then_their_periods() {
        assert_eq!(values(&metric(OsStr::new("memory.curr"))), ["memory.current"]);
        assert_eq!(values(&metric_with_period(OsStr::new("memory.curr"))), ["memory.current="]);
        assert_eq!(
            values(&metric_with_period(OsStr::new("cpu.usage=1m"))),
            ["cpu.usage=1ms", "cpu.usage=1min"]
        );
        assert_eq!(values(&metric_with_period(OsStr::new("cpu.*=100u"))), ["cpu.*=100us"]);
        assert!(values(&metric(OsStr::new(""))).len() > 100);
        assert_eq!(values(&metric(OsStr::new("nonsense"))), [""; 0]);
    }
}
