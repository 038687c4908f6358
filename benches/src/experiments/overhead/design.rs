//! The description of an experiment in its file, and the runs that follow from it.

use std::fmt;

use polymeter_benches::statistics::Random;
use polymeter_benches::tool::Tool;
use polymeter_proto::period::Period;
use serde::Deserialize;

const RUNS_MOST: usize = 100_000;

/// An experiment, as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Design {
    /// The command to time, with its arguments. If empty, the built-in kernel is run.
    #[serde(default)]
    pub(crate) command: Vec<String>,
    /// The number of pairs that each thread of the built-in kernel draws.
    #[serde(default = "pairs")]
    pub(crate) pairs: u64,
    /// The number of runs of each combination.
    pub(crate) replicates: u32,
    /// The seed of the random order.
    pub(crate) seed: u64,
    /// The sampling periods.
    #[serde(deserialize_with = "periods")]
    pub(crate) periods: Vec<Period>,
    /// The numbers of metrics to sample: each takes the first ones of `polymeter_benches::plan::job_metrics`.
    pub(crate) metrics: Vec<u32>,
    /// The timeout of a run, in seconds.
    #[serde(default = "limit_s")]
    pub(crate) limit_s: u32,
    /// Other tools. Their commands get the environment variables `PERIOD_MS` (with decimals), `METRICS`, and
    /// `CGROUPS` (the job's directories).
    #[serde(default, rename = "tool")]
    pub(crate) tools: Vec<Tool>,
}

const fn pairs() -> u64 {
    100_000_000
}

const fn limit_s() -> u32 {
    3600
}

/// Deserializes periods from their text form, such as `10ms`.
fn periods<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Period>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

/// Tool that observes a run, and its settings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Treatment {
    /// Run without a tool: the reference for all others.
    Nothing,
    Watched {
        /// Index of the tool; none is Polymeter.
        tool: Option<usize>,
        period: Period,
        metrics: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) replicate: u32,
    pub(crate) treatment: Treatment,
}

#[derive(Debug)]
pub(crate) enum InvalidDesign {
    /// The text is not TOML, or has an unknown key.
    Text(toml::de::Error),
    Value(&'static str),
}

impl fmt::Display for InvalidDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(error) => error.fmt(f),
            Self::Value(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for InvalidDesign {}

impl Design {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidDesign> {
        let design: Self = toml::from_str(text).map_err(InvalidDesign::Text)?;
        let combinations = (design.tools.len() + 1) * design.periods.len() * design.metrics.len() + 1;
        if design.replicates == 0 || design.periods.is_empty() || design.metrics.is_empty() {
            return Err(InvalidDesign::Value("`replicates`, `periods` and `metrics` must not be empty"));
        }
        if design.metrics.contains(&0) {
            return Err(InvalidDesign::Value("`metrics` are numbers from 1"));
        }
        if combinations.saturating_mul(design.replicates as usize) > RUNS_MOST {
            return Err(InvalidDesign::Value("that makes more than 100000 runs"));
        }
        if design.tools.iter().any(|tool| tool.name.is_empty() || tool.name.contains([',', '"', '\n'])) {
            return Err(InvalidDesign::Value("the name of a tool must have no comma, quote or line break"));
        }
        Ok(design)
    }

    /// All treatments, `Nothing` first. Tools that are not installed, or do not work here, are left out.
    pub(crate) fn treatments(&self) -> Vec<Treatment> {
        let here = self.tools.iter().enumerate().filter(|(_, tool)| tool.is_here());
        let tools: Vec<_> = std::iter::once(None).chain(here.map(|(index, _)| Some(index))).collect();
        let mut treatments = vec![Treatment::Nothing];
        for tool in tools {
            for period in self.periods.iter().copied() {
                treatments.extend(self.metrics.iter().map(|metrics| Treatment::Watched {
                    tool,
                    period,
                    metrics: *metrics,
                }));
            }
        }
        treatments
    }

    /// All runs: each replicate has every treatment once, in its own random order, so that a drift of the
    /// machine's speed affects all treatments alike.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut random = Random::new(self.seed);
        (1..=self.replicates)
            .flat_map(|replicate| {
                let mut treatments = self.treatments();
                random.shuffle(&mut treatments);
                treatments.into_iter().map(move |treatment| Run { replicate, treatment }).collect::<Vec<_>>()
            })
            .collect()
    }

    pub(crate) fn tool_name(&self, treatment: &Treatment) -> &str {
        match treatment {
            Treatment::Nothing => "nothing",
            Treatment::Watched { tool: None, .. } => "polymeter",
            Treatment::Watched { tool: Some(index), .. } => {
                self.tools.get(*index).map_or("", |tool| tool.name.as_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "replicates = 3\nseed = 5\nperiods = ['1s', '1ms']\nmetrics = [3, 20]\n[[tool]]\nname = 'other'\nstart = 'sleep 1'\n[[tool]]\nname = 'absent'\nstart = 'x'\nneeds = 'no-such-program-anywhere'\n";

    #[test]
    fn each_replicate_has_every_treatment_once_in_an_order_of_its_own() {
        let design = Design::parse(TEXT).unwrap();
        let treatments = design.treatments();
        assert_eq!(treatments.len(), 1 + 2 * 2 * 2);
        let runs = design.runs();
        let of = |replicate: u32| -> Vec<_> {
            let of = runs.iter().filter(|run| run.replicate == replicate);
            of.map(|run| run.treatment.clone()).collect()
        };
        assert_ne!(of(1), of(2));
        for replicate in 1..=3 {
            let (mut found, mut wanted) = (of(replicate), treatments.clone());
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted);
        }
        assert_eq!(design.runs(), runs);
        assert_ne!(Design { seed: 6, ..design }.runs(), runs);
    }

    #[test]
    fn the_examples_are_experiments() {
        for text in [
            include_str!("../../../experiments/overhead.toml"),
            include_str!("../../../experiments/overhead-quick.toml"),
            include_str!("../../../experiments/overhead-ep.toml"),
            include_str!("../../../experiments/overhead-cg.toml"),
            include_str!("../../../experiments/overhead-lu.toml"),
            concat!(
                include_str!("../../../experiments/overhead-ep.toml"),
                include_str!("../../../experiments/tools.toml")
            ),
        ] {
            Design::parse(text).unwrap();
        }
    }

    #[test]
    fn invalid_designs_are_refused() {
        for (text, part) in [
            ("replicates = 0\nseed = 1\nperiods = ['1s']\nmetrics = [1]\n", "must not be empty"),
            ("replicates = 1\nseed = 1\nperiods = ['1s']\nmetrics = [0]\n", "from 1"),
            ("replicates = 1\nseed = 1\nperiods = ['1 s']\nmetrics = [1]\n", "period"),
            ("replicates = 1\nseed = 1\nperiods = ['1s']\nmetrics = [1]\nspeed = 1\n", "speed"),
            ("replicates = 4000000000\nseed = 1\nperiods = ['1s']\nmetrics = [1]\n", "more than"),
        ] {
            let error = Design::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
