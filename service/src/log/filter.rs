//! Log filter: a level, and levels of single modules.

use std::fmt;
use std::str::FromStr;

use polymeter_proto::suggest::nearest;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Environment variable with the filter.
pub const FILTER_VARIABLE: &str = "POLYMETER_LOG";

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Which events are logged: `LEVEL`, or `LEVEL,MODULE=LEVEL,...` such as
/// `info,polymeter_agent::delivery=debug`.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    targets: Targets,
    text: String,
}

impl Eq for Filter {}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown log level `{word}`: expected off, error, warn, info, debug or trace{hint}")]
pub struct InvalidFilter {
    word: String,
    hint: String,
}

impl Default for Filter {
    fn default() -> Self {
        Self { targets: Targets::new().with_default(LevelFilter::INFO), text: "info".to_owned() }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Filter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        let mut targets = Targets::new().with_default(LevelFilter::INFO);
        for rule in text.split(',').map(str::trim) {
            targets = match rule.split_once('=') {
                Some((module, word)) => targets.with_target(module.trim(), level(word.trim())?),
                None => targets.with_default(level(rule)?),
            };
        }
        Ok(Self { targets, text: text.to_owned() })
    }
}

fn level(word: &str) -> Result<LevelFilter, InvalidFilter> {
    if let Some((_, level)) = LEVELS.iter().find(|(name, _)| *name == word) {
        return Ok(*level);
    }
    let meant = nearest(word, LEVELS.map(|(name, _)| name));
    let hint = meant.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    Err(InvalidFilter { word: word.to_owned(), hint })
}

impl Filter {
    pub(super) fn enables(&self, metadata: &tracing::Metadata<'_>) -> bool {
        self.targets.would_enable(metadata.target(), metadata.level())
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_apply_to_all_modules_or_to_one() {
        let filter: Filter = "warn,polymeter_agent::delivery=debug".parse().unwrap();
        let enables = |target, level| filter.targets.would_enable(target, &level);
        assert!(enables("polymeter_agent::delivery::sender", Level::DEBUG));
        assert!(!enables("polymeter_agent::delivery", Level::TRACE));
        assert!(enables("polymeter_agent", Level::WARN) && !enables("polymeter_agent", Level::INFO));
        assert_eq!(filter.to_string(), "warn,polymeter_agent::delivery=debug");
        let usual = Filter::default();
        assert!(
            usual.targets.would_enable("x", &Level::INFO) && !usual.targets.would_enable("x", &Level::DEBUG)
        );
    }

    #[test]
    fn refuses_unknown_levels() {
        let error = "inof".parse::<Filter>().unwrap_err().to_string();
        assert!(
            error.starts_with("unknown log level `inof`") && error.ends_with("did you mean `info`?"),
            "{error}"
        );
        for wrong in ["", "info,", "x=loud", "verbose", "polymeter_agent"] {
            assert!(wrong.parse::<Filter>().is_err(), "{wrong}");
        }
    }
}
