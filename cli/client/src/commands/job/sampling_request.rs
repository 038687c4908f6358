//! Sampling request of a job's owner, as written at submission:
//! `cpu.*=10ms, perf.instructions=100ms for 1h`. Periods behind `steps:` or `tasks:` are those of each step
//! or task of the job, those behind `ring:` of its ring. `trigger NAME when CONDITION`,
//! up to a comma, is a trigger. `pmu release` closes the hardware events of the job. Pure.

use std::collections::BTreeMap;

use polymeter_proto::control::RING_PREFIX;
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::trigger::{InvalidTrigger, RuleFields, TRIGGER_WORD};

const PREFIX: &str = "polymeter:";

/// Maximum size of a request: a comment can contain anything.
const BYTES_MAX: usize = 4096;

/// The agent checks its metrics and periods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SamplingRequest {
    /// Periods by selector, here and for each step and task.
    pub(super) plan: BTreeMap<String, String>,
    pub(super) steps: BTreeMap<String, String>,
    pub(super) tasks: BTreeMap<String, String>,
    pub(super) ring: BTreeMap<String, String>,
    pub(super) triggers: Vec<RuleFields>,
    pub(super) pmu_release: bool,
    /// Duration of the lease and of the release.
    pub(super) duration: Option<String>,
}

/// What the periods behind a prefix are of.
#[derive(Debug, Clone, Copy)]
enum Part {
    Job,
    Level(StepLevel),
    Ring,
}

impl Part {
    /// Part whose prefix a word has, and the rest of the word.
    fn of(word: &str) -> Option<(Self, &str)> {
        if let Some(rest) = word.strip_prefix(RING_PREFIX) {
            return Some((Self::Ring, rest));
        }
        StepLevel::ALL.into_iter().find_map(|level| {
            let rest = word.strip_prefix(level.selector_prefix())?;
            Some((Self::Level(level), rest))
        })
    }
}

/// Finds the request in a comment, up to a semicolon or the end of the line.
pub(super) fn in_comment(comment: &str) -> Option<&str> {
    let (_, rest) = comment.split_once(PREFIX)?;
    rest.split([';', '\n']).next()
}

#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidRequest {
    #[error("it has more than {BYTES_MAX} bytes")]
    TooLong,
    #[error("`for` has no duration; write `for 1h`")]
    NoDuration,
    #[error("`pmu` is not followed by `release`; write `pmu release`")]
    NoRelease,
    #[error("`{0}` has no period; write {0}=10ms")]
    NoPeriod(String),
    #[error(transparent)]
    Trigger(#[from] InvalidTrigger),
}

pub(super) fn parse(text: &str) -> Result<SamplingRequest, InvalidRequest> {
    if text.len() > BYTES_MAX {
        return Err(InvalidRequest::TooLong);
    }
    let mut request = SamplingRequest::default();
    let mut words = Vec::new();
    for part in text.split(',') {
        let (sampling, trigger) = split_trigger(part);
        words.extend(sampling.split_whitespace());
        if let Some(trigger) = trigger {
            request.triggers.push(RuleFields::of_request(trigger)?);
        }
    }
    let mut words = words.into_iter();
    let mut part = Part::Job;
    while let Some(mut word) = words.next() {
        if word == "for" {
            let duration = words.next().ok_or(InvalidRequest::NoDuration)?;
            request.duration = Some(duration.to_owned());
            continue;
        }
        if word == "pmu" {
            request.pmu_release = words.next() == Some("release");
            if !request.pmu_release {
                return Err(InvalidRequest::NoRelease);
            }
            continue;
        }
        if let Some((of, rest)) = Part::of(word) {
            (part, word) = (of, rest);
        }
        if word.is_empty() {
            continue;
        }
        let (selector, period) =
            word.split_once('=').ok_or_else(|| InvalidRequest::NoPeriod(word.to_owned()))?;
        let plan = match part {
            Part::Job => &mut request.plan,
            Part::Level(StepLevel::Step) => &mut request.steps,
            Part::Level(StepLevel::Task) => &mut request.tasks,
            Part::Ring => &mut request.ring,
        };
        plan.insert(selector.to_owned(), period.to_owned());
    }
    Ok(request)
}

/// Splits a part of a request at the word `trigger`.
fn split_trigger(part: &str) -> (&str, Option<&str>) {
    for (at, word) in part.match_indices(TRIGGER_WORD) {
        let (before, rest) = part.split_at(at);
        let after = rest.strip_prefix(word).unwrap_or_default();
        let is_word = before.chars().next_back().is_none_or(char::is_whitespace)
            && after.chars().next().is_none_or(char::is_whitespace);
        if is_word {
            return (before, Some(after));
        }
    }
    (part, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_periods_and_a_duration() {
        let request = parse(" cpu.*=10ms, perf.instructions=100ms  for 1h ").unwrap();
        assert_eq!(request.plan.len(), 2);
        assert_eq!(request.plan["perf.instructions"], "100ms");
        assert_eq!(request.duration.as_deref(), Some("1h"));
        assert_eq!(parse("cpu.*=10ms,memory.anon=1s").unwrap().plan.len(), 2);
        assert_eq!(parse("").unwrap(), SamplingRequest::default());
    }

    #[test]
    fn periods_behind_a_level_are_those_of_steps_or_tasks() {
        let request =
            parse("cpu.*=1s steps: cpu.usage=10ms,cpu.user=20ms tasks:pids.current=1s for 5min").unwrap();
        let names = |plan: &BTreeMap<String, String>| plan.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&request.plan), ["cpu.*"]);
        assert_eq!(names(&request.steps), ["cpu.usage", "cpu.user"]);
        assert_eq!(
            (names(&request.tasks), request.tasks["pids.current"].as_str()),
            (vec!["pids.current".to_owned()], "1s")
        );
        assert_eq!(request.duration.as_deref(), Some("5min"));
        let request = parse("cpu.*=1s ring: cpu.*=10ms memory.*=20ms").unwrap();
        assert_eq!(
            (names(&request.plan).len(), names(&request.ring)),
            (1, names(&parse("cpu.*=1s memory.*=1s").unwrap().plan))
        );
        assert!(parse("steps: cpu").unwrap_err().to_string().contains("cpu=10ms"));
    }

    #[test]
    fn the_counters_are_released_with_other_requests_or_alone() {
        let request = parse(" pmu release").unwrap();
        assert_eq!(request, SamplingRequest { pmu_release: true, ..SamplingRequest::default() });
        let request = parse("cpu.*=1s, pmu release for 10min").unwrap();
        assert_eq!((request.plan.len(), request.pmu_release), (1, true));
        assert_eq!(request.duration.as_deref(), Some("10min"));
        for invalid in ["pmu", "pmu resume", "cpu.*=1s pmu"] {
            assert!(parse(invalid).unwrap_err().to_string().contains("`pmu release`"), "{invalid}");
        }
        assert!(!parse("pmu.x=1s").unwrap().pmu_release);
    }

    #[test]
    fn triggers_end_with_a_comma_and_stand_among_other_requests() {
        let request = parse(
            "cpu.*=1s ring: cpu.*=10ms for 1h trigger oom when oom keep 30s, memory.*=20ms, trigger stall \
             when rate(cpu.usage) < 1000 for 30s notice",
        )
        .unwrap();
        assert_eq!((request.plan.len(), request.ring.len(), request.duration.as_deref()), (1, 2, Some("1h")));
        let [oom, stall] = &request.triggers[..] else { panic!("{request:?}") };
        assert_eq!((oom.name.as_str(), oom.when.as_str(), oom.keep.as_deref()), ("oom", "oom", Some("30s")));
        assert_eq!(stall.when, "rate(cpu.usage) < 1000 for 30s");
        let named = parse("user.trigger=1s, x.trigger.y=1s").unwrap();
        assert_eq!((named.plan.len(), named.triggers.len()), (2, 0));
        assert!(parse("trigger").unwrap_err().to_string().contains("no name"));
        assert!(parse("cpu.*=1s trigger x").unwrap_err().to_string().contains("no condition"));
    }

    #[test]
    fn an_invalid_request_is_described() {
        assert!(parse("cpu.*").unwrap_err().to_string().contains("cpu.*=10ms"));
        assert!(parse("cpu.*=1s for").unwrap_err().to_string().contains("for 1h"));
        assert!(parse(&"x=1s ".repeat(2000)).unwrap_err().to_string().contains("more than 4096 bytes"));
    }

    #[test]
    fn a_request_is_found_in_a_comment() {
        assert_eq!(in_comment("polymeter: a=1s"), Some(" a=1s"));
        assert_eq!(in_comment("grant 7; polymeter: a=1s; more"), Some(" a=1s"));
        assert_eq!(in_comment("polymeter is nice"), None);
    }
}
