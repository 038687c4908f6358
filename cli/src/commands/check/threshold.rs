//! Thresholds that the user states: `FIGURE=RANGE`.

use std::str::FromStr;

use polymeter_proto::text::Text;

use super::range::{InvalidRange, Range};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Threshold {
    figure: String,
    range: Range,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidThreshold {
    #[error("invalid threshold `{0}`: expected FIGURE=RANGE, such as age=60")]
    Form(Text),
    #[error(transparent)]
    Range(#[from] InvalidRange),
}

impl FromStr for Threshold {
    type Err = InvalidThreshold;

    fn from_str(text: &str) -> Result<Self, InvalidThreshold> {
        let (figure, range) = text.split_once('=').ok_or_else(|| InvalidThreshold::Form(Text::of(text)))?;
        Ok(Self { figure: figure.to_owned(), range: range.parse()? })
    }
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Thresholds {
    /// Warn if a figure is outside of a range: 10 is 0 to 10, 10: at least 10, ~:10 at most 10, and @10:20
    /// alerts within it. Repeat the option for several figures.
    #[arg(short, long, value_name = "FIGURE=RANGE")]
    warning: Vec<Threshold>,

    /// The same for the state CRITICAL.
    #[arg(short, long, value_name = "FIGURE=RANGE")]
    critical: Vec<Threshold>,
}

impl Thresholds {
    pub(super) fn warnings(&self) -> impl Iterator<Item = (&str, &Range)> {
        pairs(&self.warning)
    }

    pub(super) fn criticals(&self) -> impl Iterator<Item = (&str, &Range)> {
        pairs(&self.critical)
    }
}

fn pairs(thresholds: &[Threshold]) -> impl Iterator<Item = (&str, &Range)> {
    thresholds.iter().map(|threshold| (threshold.figure.as_str(), &threshold.range))
}
