//! The comparison of measured values with the claims of a paper.

use std::fmt;

use polymeter_benches::statistics::Estimate;

use super::paper::{Claim, Paper};
use super::results::Results;

/// How [`Judged::verdict`] follows from the measured values.
pub(crate) const RULE: &str = "The rule: a claim agrees if the 95 % interval of the measured value overlaps \
    the published range, and differs if it does not. It cannot be judged here if a cell was not measured, or \
    has fewer than two runs. A ratio is that of the geometric means; its interval is Welch's for the \
    logarithms.";

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
        let ours = match &claim.to {
            Some(to) => ratio(&of(&claim.of), &of(to)),
            None => interval(Estimate::of(&of(&claim.of))),
        };
        let verdict = ours.map_or(Verdict::CannotBeJudged, |ours| compare(ours, claim));
        judged.push(Judged { claim, ours, verdict });
    }
    judged
}

fn compare(ours: Interval, claim: &Claim) -> Verdict {
    let is_below = claim.least.is_some_and(|least| ours.most < least);
    let is_above = claim.most.is_some_and(|most| ours.least > most);
    if is_below || is_above { Verdict::Differs } else { Verdict::Agrees }
}

fn interval(Estimate { mean, half }: Estimate) -> Option<Interval> {
    let is_known = mean.is_finite() && half.is_finite();
    is_known.then_some(Interval { value: mean, least: mean - half, most: mean + half })
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
        return "Cannot be judged here: no claim of the paper was measured.".to_owned();
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
    fn an_interval_agrees_where_it_overlaps_the_published_range() {
        let ours = Interval { value: 2.0, least: 1.0, most: 3.0 };
        for (least, most, verdict) in [
            (Some(2.9), Some(5.0), Verdict::Agrees),
            (Some(3.1), Some(5.0), Verdict::Differs),
            (Some(0.0), Some(0.9), Verdict::Differs),
            (None, Some(1.1), Verdict::Agrees),
            (Some(3.1), None, Verdict::Differs),
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
        assert!(judged(&[Verdict::CannotBeJudged]).starts_with("Cannot be judged here"));
    }
}
