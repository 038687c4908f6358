//! Texts with figures: `{expression}` or `{expression | format}`. Pure.

use polymeter_proto::units;

use super::facts::{FactUnit, definition};
use crate::expression::{Expression, ExpressionError, Lookup, Scope, Type, Value};

const TEMPLATE_BYTES_MAX: usize = 1000;

const FORMATS: [(&str, Format); 10] = [
    ("number", Format::Unit(FactUnit::Number)),
    ("percent", Format::Unit(FactUnit::Share)),
    ("bytes", Format::Unit(FactUnit::Bytes)),
    ("duration", Format::Unit(FactUnit::Seconds)),
    ("whole", Format::Whole),
    ("cores", Format::Counted("core")),
    ("nodes", Format::Counted("node")),
    ("GPUs", Format::Counted("GPU")),
    ("memory", Format::Memory),
    ("time", Format::Time),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Unit(FactUnit),
    Whole,
    /// Next whole number, with this word in the singular or the plural.
    Counted(&'static str),
    /// Bytes as schedulers read them: rounded up to `512M` or `3G`.
    Memory,
    /// Duration as schedulers read it: `HH:MM:SS`, rounded up to a minute.
    Time,
}

/// Format that an expression cannot have.
#[derive(Debug, thiserror::Error)]
enum InvalidFormat {
    #[error("unknown format `{0}`: expected {known}", known = FORMATS.map(|(known, _)| known).join(", "))]
    Unknown(String),
    #[error("the format `{name}` needs a number, found {found}")]
    NeedsNumber { name: String, found: Type },
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Figure(Expression, Format),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

impl Template {
    /// Returns the first error and its position.
    pub fn parse(text: &str, scope: &dyn Scope) -> Result<Self, ExpressionError> {
        let error = |position: usize, message: String| ExpressionError { position, message };
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(error(
                TEMPLATE_BYTES_MAX,
                format!("the text has more than {TEMPLATE_BYTES_MAX} bytes"),
            ));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let position = text.len() - after.len();
            let Some((figure, behind)) = after.split_once('}') else {
                return Err(error(position, "`{` without `}`".to_owned()));
            };
            let (source, format) = figure
                .rsplit_once('|')
                .map_or((figure, None), |(source, format)| (source, Some(format.trim())));
            let expression = Expression::parse(source, scope)
                .map_err(|inner| error(position + inner.position, inner.message))?;
            parts.push(Part::Text(before.to_owned()));
            let format =
                chosen_format(&expression, format).map_err(|invalid| error(position, invalid.to_string()))?;
            parts.push(Part::Figure(expression, format));
            rest = behind;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self { source: text.to_owned(), parts })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        let figures = self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Figure(expression, _) => Some(expression),
        });
        figures.flat_map(|expression| expression.names().iter().map(String::as_str))
    }

    /// Fills in the figures; unknown ones are called `unknown`.
    pub fn text(&self, lookup: &dyn Lookup) -> String {
        self.filled(lookup, Some("unknown")).unwrap_or_default()
    }

    /// Fills in the figures; none if one is unknown.
    pub fn known_text(&self, lookup: &dyn Lookup) -> Option<String> {
        self.filled(lookup, None)
    }

    fn filled(&self, lookup: &dyn Lookup, unknown: Option<&str>) -> Option<String> {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Figure(expression, format) => {
                    let value = expression.evaluate(lookup).and_then(|value| formatted(&value, *format));
                    filled.push_str(value.as_deref().or(unknown)?);
                }
            }
        }
        Some(filled)
    }
}

/// Format with this name, or else that of the fact of which the expression consists.
fn chosen_format(expression: &Expression, name: Option<&str>) -> Result<Format, InvalidFormat> {
    let of_fact = expression.as_name().and_then(definition).map(|definition| Format::Unit(definition.unit));
    let Some(name) = name else {
        let of_type = match expression.result() {
            Type::Number => FactUnit::Number,
            Type::Truth => FactUnit::Truth,
            Type::Text => FactUnit::Text,
        };
        return Ok(of_fact.unwrap_or(Format::Unit(of_type)));
    };
    let found = FORMATS.into_iter().find(|(known, _)| *known == name);
    let (_, format) = found.ok_or_else(|| InvalidFormat::Unknown(name.to_owned()))?;
    match expression.result() {
        Type::Number => Ok(format),
        found @ (Type::Truth | Type::Text) => {
            Err(InvalidFormat::NeedsNumber { name: name.to_owned(), found })
        }
    }
}

fn formatted(value: &Value, format: Format) -> Option<String> {
    let number = match value {
        Value::Number(number) => *number,
        Value::Text(text) => return Some(text.clone()),
        Value::Truth(truth) => return Some(if *truth { "yes" } else { "no" }.to_owned()),
    };
    Some(match format {
        Format::Unit(FactUnit::Share) => units::value("percent", (number * 1e11).round() / 1e9),
        Format::Unit(FactUnit::Bytes) => units::value("bytes", number),
        Format::Unit(FactUnit::Seconds) => units::elapsed(number),
        Format::Unit(FactUnit::Cores) if number.fract() == 0.0 => format!("{number:.0}"),
        Format::Unit(FactUnit::Cores) => format!("{number:.1}"),
        Format::Unit(FactUnit::PerSecond) => units::value("1/s", number),
        Format::Unit(FactUnit::Celsius) => format!("{number:.0} °C"),
        Format::Unit(FactUnit::Number | FactUnit::Text | FactUnit::Truth) => units::number(number),
        Format::Whole => format!("{:.0}", number.ceil()),
        Format::Counted(word) if number.ceil() <= 1.0 => format!("{:.0} {word}", number.ceil()),
        Format::Counted(word) => format!("{:.0} {word}s", number.ceil()),
        Format::Memory => memory(number)?,
        Format::Time => time(number)?,
    })
}

fn memory(bytes: f64) -> Option<String> {
    const MIB: f64 = 1_048_576.0;
    let mib = (bytes / MIB).ceil();
    (bytes > 0.0)
        .then(|| if mib > 4096.0 { format!("{:.0}G", (mib / 1024.0).ceil()) } else { format!("{mib:.0}M") })
}

/// Text as schedulers read it, rounded up to a minute.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a century")]
fn time(seconds: f64) -> Option<String> {
    const CENTURY_MIN: f64 = 100.0 * 366.0 * 24.0 * 60.0;
    let minutes = (seconds / 60.0).ceil().clamp(0.0, CENTURY_MIN) as u64;
    (seconds > 0.0).then(|| format!("{:02}:{:02}:00", minutes / 60, minutes % 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::facts::{FactScope, Facts};

    fn facts() -> Facts {
        let mut facts = Facts::default();
        for (name, number) in
            [("cores", 8.0), ("elapsed", 5400.0), ("memory_used", 5.5e9), ("cpu_efficiency", 0.123)]
        {
            assert!(facts.set(name, Some(Value::Number(number))));
        }
        assert!(facts.set("state", Some(Value::Text("COMPLETED".to_owned()))));
        facts
    }

    fn text(template: &str) -> String {
        Template::parse(template, &FactScope).unwrap().text(&facts())
    }

    #[test]
    fn figures_have_the_form_of_their_unit_or_format() {
        for (template, expected) in [
            ("plain", "plain"),
            ("{cpu_efficiency} of {cores} cores", "12.3 % of 8 cores"),
            ("{elapsed}, {state}", "1 h 30 min, COMPLETED"),
            ("{memory_used}", "5.12 GiB"),
            ("--mem={1.2 * memory_used | memory}", "--mem=7G"),
            ("--mem={100 MB | memory}", "--mem=96M"),
            ("--time={1.2 * elapsed | time}", "--time=01:48:00"),
            ("{cores / 3 | whole} {cores / 16 | percent} {1024 * cores | bytes}", "3 50 % 8 KiB"),
            ("{cores / 8 | cores}, {cores | nodes}, {0.2 * cores | GPUs}", "1 core, 8 nodes, 2 GPUs"),
            ("{nodes}", "unknown"),
            ("{0 | memory}", "unknown"),
        ] {
            assert_eq!(text(template), expected, "{template}");
        }
        let template = Template::parse("{cores} {nodes}", &FactScope).unwrap();
        assert_eq!(template.known_text(&facts()), None);
        assert_eq!(template.names().collect::<Vec<_>>(), ["cores", "nodes"]);
    }

    fn error_of(text: &str) -> (usize, String) {
        let error = Template::parse(text, &FactScope).unwrap_err();
        (error.position, error.message)
    }

    #[test]
    fn errors_name_the_position() {
        assert_eq!(error_of("a {cores"), (3, "`{` without `}`".to_owned()));
        assert_eq!(error_of("a { core }"), (4, "unknown fact `core`; did you mean `cores`?".to_owned()));
        assert!(error_of("{cores | x}").1.starts_with("unknown format `x`: expected number, percent"));
        assert_eq!(error_of("{state | bytes}").1, "the format `bytes` needs a number, found a text");
        assert!(error_of(&"x".repeat(1001)).1.starts_with("the text has more"));
    }
}
