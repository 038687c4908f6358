//! The comparison of measured values with the claims of a paper.

use std::fmt;

use polymeter_benches::statistics::{Estimate, binomial_interval};

use super::paper::{Claim, Paper};
use super::results::Results;

/// How [`Judged::verdict`] follows from the measured values.
pub(crate) const RULE: &str = "The rule: a claim agrees if the whole 95 % interval of the measured value is \
    within the published range, and differs if the whole interval is outside. It cannot be judged here if the \
    interval crosses an end of the range, and if a cell was not measured or has fewer than two runs. A ratio \
    is that of the geometric means; its interval is Welch's for the logarithms.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Agrees,
    Differs,
    CannotBeJudged,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::CannotBeJudged => "cannot be judged here",
        })
    }
}

/// A value with its 95 % interval, which need not be symmetric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, least, most } = *self;
        write!(f, "{} ({} to {})", short(value), short(least), short(most))
    }
}

/// A number with at least three digits.
fn short(value: f64) -> String {
    let digits = if value.abs() < 10.0 { 3 } else { usize::from(value.abs() < 1000.0) };
    format!("{value:.digits$}")
}

#[derive(Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) ours: Option<Interval>,
    pub(crate) verdict: Verdict,
}

pub(crate) fn judge<'a>(paper: &'a Paper, results: &Results) -> Vec<Judged<'a>> {
    let mut judged = Vec::new();
    for claim in &paper.claims {
        let of = |(setting, tool): &(String, String)| {
            paper.cell(setting, tool).map(|cell| results.values(cell, &claim.figure)).unwrap_or_default()
        };
        let is_share = paper.figures.iter().any(|figure| figure.is_share && figure.name == claim.figure);
        let ours = match &claim.to {
            Some(to) => ratio(&of(&claim.of), &of(to)),
            None if is_share => share(&of(&claim.of)),
            None => interval(Estimate::of(&of(&claim.of))),
        };
        let verdict = ours.map_or(Verdict::CannotBeJudged, |ours| compare(ours, claim));
        judged.push(Judged { claim, ours, verdict });
    }
    judged
}

fn compare(ours: Interval, claim: &Claim) -> Verdict {
    let (least, most) = (claim.least.unwrap_or(f64::NEG_INFINITY), claim.most.unwrap_or(f64::INFINITY));
    if ours.most < least || ours.least > most {
        Verdict::Differs
    } else if ours.least >= least && ours.most <= most {
        Verdict::Agrees
    } else {
        Verdict::CannotBeJudged
    }
}

fn interval(Estimate { mean, half }: Estimate) -> Option<Interval> {
    let is_known = mean.is_finite() && half.is_finite();
    is_known.then_some(Interval { value: mean, least: mean - half, most: mean + half })
}

/// The part of the runs that have it, in percent; none without runs.
pub(crate) fn share(values: &[f64]) -> Option<Interval> {
    let runs = u32::try_from(values.len()).ok().filter(|runs| *runs > 0)?;
    let hits = u32::try_from(values.iter().filter(|value| **value > 0.0).count()).ok()?;
    let (least, most) = binomial_interval(hits, runs);
    let value = 100.0 * f64::from(hits) / f64::from(runs);
    Some(Interval { value, least: 100.0 * least, most: 100.0 * most })
}

/// The ratio of the geometric means; none if a value is not positive.
fn ratio(of: &[f64], to: &[f64]) -> Option<Interval> {
    let logarithms = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let Interval { value, least, most } = interval(Estimate::difference(&logarithms(of), &logarithms(to)))?;
    Some(Interval { value: value.exp(), least: least.exp(), most: most.exp() })
}

/// The sentence about the whole experiment.
pub(crate) fn sentence(judged: &[Judged<'_>]) -> String {
    let count = |verdict| judged.iter().filter(|judged| judged.verdict == verdict).count();
    let (agreed, differing) = (count(Verdict::Agrees), count(Verdict::Differs));
    let of = agreed + differing;
    if of == 0 {
        return format!(
            "Cannot be judged here: the runs decide none of {} claims of the paper.",
            judged.len()
        );
    }
    let open = match judged.len() - of {
        0 => String::new(),
        open => format!("; {open} cannot be judged here"),
    };
    if differing == 0 {
        format!("Agrees: {agreed} of {of} claims of the paper agree{open}.")
    } else {
        format!("Differs: {differing} of {of} claims of the paper differ{open}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(least: Option<f64>, most: Option<f64>) -> Claim {
        let place = (String::new(), String::new());
        Claim { text: String::new(), figure: String::new(), of: place, to: None, least, most }
    }

    #[test]
    fn only_an_interval_that_crosses_no_end_of_the_published_range_decides() {
        let ours = Interval { value: 2.0, least: 1.0, most: 3.0 };
        for (least, most, verdict) in [
            (Some(1.0), Some(3.0), Verdict::Agrees),
            (Some(0.9), None, Verdict::Agrees),
            (None, Some(3.1), Verdict::Agrees),
            (None, None, Verdict::Agrees),
            (Some(3.1), Some(5.0), Verdict::Differs),
            (Some(3.1), None, Verdict::Differs),
            (Some(0.0), Some(0.9), Verdict::Differs),
            (None, Some(0.9), Verdict::Differs),
            (Some(2.9), Some(5.0), Verdict::CannotBeJudged),
            (Some(1.5), Some(2.5), Verdict::CannotBeJudged),
            (None, Some(2.9), Verdict::CannotBeJudged),
            (Some(1.1), None, Verdict::CannotBeJudged),
        ] {
            assert_eq!(compare(ours, &claim(least, most)), verdict, "{least:?} {most:?}");
        }
    }

    /// Compares with `numpy.exp` of the interval of `scipy.stats.ttest_ind(numpy.log(a), numpy.log(b),
    /// equal_var=False)`.
    #[test]
    fn a_ratio_has_the_interval_of_scipy() {
        let found = ratio(&[2.0, 2.2, 2.4, 2.1], &[1.0, 1.1, 0.9]).unwrap();
        let wanted = [2.177_337, 1.782_647, 2.659_415];
        for (found, wanted) in [found.value, found.least, found.most].into_iter().zip(wanted) {
            assert!((found / wanted - 1.0).abs() < 5e-4, "{found}, not {wanted}");
        }
        assert_eq!(ratio(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(ratio(&[0.0, 0.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn a_share_of_few_runs_decides_little() {
        let covered =
            |hits: usize, runs: usize| share(&[vec![100.0; hits], vec![0.0; runs - hits]].concat()).unwrap();
        assert_eq!(covered(5, 6).to_string(), "83.3 (35.9 to 99.6)");
        let wanted = claim(Some(95.0), None);
        assert_eq!(compare(covered(6, 6), &wanted), Verdict::CannotBeJudged);
        assert_eq!(compare(covered(100, 100), &wanted), Verdict::Agrees);
        assert_eq!(compare(covered(3, 6), &wanted), Verdict::Differs);
        assert_eq!(share(&[]), None);
    }

    #[test]
    fn one_sentence_says_it() {
        let claim = claim(None, None);
        let judged = |verdicts: &[Verdict]| -> String {
            let judged =
                verdicts.iter().map(|verdict| Judged { claim: &claim, ours: None, verdict: *verdict });
            sentence(&judged.collect::<Vec<_>>())
        };
        assert!(judged(&[Verdict::Agrees, Verdict::Agrees]).starts_with("Agrees: 2 of 2"));
        let mixed = judged(&[Verdict::Agrees, Verdict::Differs, Verdict::CannotBeJudged]);
        assert_eq!(mixed, "Differs: 1 of 2 claims of the paper differ; 1 cannot be judged here.");
        let open = judged(&[Verdict::CannotBeJudged]);
        assert_eq!(open, "Cannot be judged here: the runs decide none of 1 claims of the paper.");
    }
}
