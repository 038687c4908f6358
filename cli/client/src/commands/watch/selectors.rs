//! Check of the metrics that are to be watched: an unknown one would be waited for in vain.

use polymeter_proto::catalogue::{self, Scope};
use polymeter_proto::control::{Answer, PlanAnswer};
use polymeter_proto::name::Selector;

use crate::failure::Failure;

const USER_SUPPLIED: &str = "user.";

/// There is no list of user-supplied metrics.
fn may_be_user_supplied(selector: &Selector) -> bool {
    let literal = selector.literal();
    literal.starts_with(USER_SUPPLIED) || (!selector.is_exact() && USER_SUPPLIED.starts_with(literal))
}

/// Refuses selectors that match no metric of a job, or of the node.
pub(super) fn check(selectors: &[Selector], of_job: bool) -> Result<(), Failure> {
    for selector in selectors {
        let known = catalogue::select(selector);
        if may_be_user_supplied(selector)
            || known.iter().any(|known| (known.metric.scope == Scope::Job) == of_job)
        {
            continue;
        }
        if catalogue::derived::select(selector).next().is_some() {
            return Err(Failure::Usage(format!(
                "cannot watch {selector}: it is computed by `polymeter report` from other metrics; `polymeter metrics {selector}` names them"
            )));
        }
        let cause = match (known.is_empty(), catalogue::nearest(selector.as_str())) {
            (true, Some(nearest)) => format!("there is no such metric; did you mean `{nearest}`?"),
            (true, None) => "there is no such metric; `polymeter metrics` lists all".to_owned(),
            (false, _) if of_job => "the node has it, and no job; watch the node with --node".to_owned(),
            (false, _) => "jobs have it, and not the node; name a job with --job".to_owned(),
        };
        return Err(Failure::Usage(format!("cannot watch {selector}: {cause}")));
    }
    Ok(())
}

/// `first` is the first line of a stream: the plan.
pub(super) fn hints(selectors: &[Selector], first: &Answer) -> Vec<String> {
    let Answer::Plan(PlanAnswer { plan, .. }) = first else { return Vec::new() };
    let waiting = selectors.iter().filter(|selector| {
        !plan.iter().any(|line| selector.matches(&line.metric)) && !may_be_user_supplied(selector)
    });
    waiting
        .map(|selector| {
            format!("polymeter: {selector} is not sampled now; `polymeter set '{selector}=1s'` samples it\n")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(selector: &str, of_job: bool) -> Option<String> {
        check(&[selector.parse().unwrap()], of_job).err().map(|failure| failure.to_string())
    }

    #[test]
    fn unknown_metrics_are_refused_with_a_remedy() {
        for known in ["cpu.usage", "memory.*", "*", "user.loss", "us*", "?ser.x", "perf.instructions"] {
            assert_eq!(refused(known, true), None, "{known}");
        }
        assert_eq!(refused("node.cpu.user", false), None);
        for (selector, of_job, remedy) in [
            ("cpu.usgae", true, "did you mean `cpu.usage`"),
            ("memory.curent", true, "did you mean `memory.current`"),
            ("zzz*", true, "`polymeter metrics` lists all"),
            ("users.loss", true, "no such metric"),
            ("node.cpu.user", true, "--node"),
            ("cpu.usage", false, "--job"),
        ] {
            let text = refused(selector, of_job).unwrap();
            assert!(
                text.starts_with(&format!("cannot watch {selector}: ")) && text.contains(remedy),
                "{text}"
            );
        }
    }

    #[test]
    fn a_metric_that_is_not_sampled_has_a_hint() {
        let plan = r#"{"answer":"plan","plan":[{"metric":"cpu.usage","period":"1s","cause":"baseline"}],"unavailable":[]}"#;
        let plan = serde_json::from_str(plan).unwrap();
        let selectors = ["cpu.*", "memory.current", "user.loss"].map(|text| text.parse().unwrap());
        let hints = hints(&selectors, &plan);
        assert!(hints.len() == 1 && hints[0].contains("`polymeter set 'memory.current=1s'`"), "{hints:?}");
    }
}
