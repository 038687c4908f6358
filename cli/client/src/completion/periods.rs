//! Periods and durations.

use std::ffi::OsStr;

use clap_complete::engine::CompletionCandidate;

use super::beginning_with;

/// Shortest first.
const PERIODS: [&str; 9] = ["100us", "1ms", "10ms", "100ms", "1s", "10s", "1min", "10min", "1h"];

const DURATIONS: [&str; 6] = ["1min", "10min", "30min", "1h", "8h", "24h"];

const UNITS: [&str; 5] = ["us", "ms", "s", "min", "h"];

pub fn period(current: &OsStr) -> Vec<CompletionCandidate> {
    usual(current, &PERIODS)
}

pub fn duration(current: &OsStr) -> Vec<CompletionCandidate> {
    usual(current, &DURATIONS)
}

/// Lists usual values; without one that begins with `current`: `current` with each unit.
fn usual(current: &OsStr, values: &[&'static str]) -> Vec<CompletionCandidate> {
    let found = beginning_with(current, values.iter().map(CompletionCandidate::new));
    let number = current.to_string_lossy();
    let number = number.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    if !found.is_empty() || number.is_empty() || number.parse::<u32>().is_err() {
        return found;
    }
    beginning_with(current, UNITS.iter().map(|unit| CompletionCandidate::new(format!("{number}{unit}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(candidates: &[CompletionCandidate]) -> Vec<&str> {
        candidates.iter().map(|candidate| candidate.get_value().to_str().unwrap()).collect()
    }

    #[test]
    fn usual_values_come_first_and_numbers_get_units() {
        assert_eq!(values(&period(OsStr::new("10"))), ["100us", "10ms", "100ms", "10s", "10min"]);
        assert_eq!(values(&period(OsStr::new("25"))), ["25us", "25ms", "25s", "25min", "25h"]);
        assert_eq!(values(&period(OsStr::new("25m"))), ["25ms", "25min"]);
        assert_eq!(values(&duration(OsStr::new("3"))), ["30min"]);
        assert_eq!(values(&period(OsStr::new("x"))), [""; 0]);
        assert_eq!(values(&period(OsStr::new(""))).len(), PERIODS.len());
    }
}
