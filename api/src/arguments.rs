//! The parameters of a request. They are declared as data, from which the parser and the document of the API
//! follow.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use polymeter_proto::name::Selector;
use polymeter_proto::suggest::nearest;

use crate::limits;
use crate::problem::Problem;

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A text without control characters.
    Text,
    /// A text of this form, a regular expression, which the endpoint checks.
    Formed(&'static str),
    /// An integer within these bounds.
    Integer(i64, i64),
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// Integers, separated by commas.
    Integers,
    /// Selectors of metrics, separated by commas.
    Selectors,
}

/// A declared parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// One sentence.
    pub(crate) help: &'static str,
    /// True for a part of the path.
    pub(crate) is_path: bool,
}

impl Parameter {
    pub(crate) const fn query(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, kind, help, is_path: false }
    }

    pub(crate) const fn path(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, kind, help, is_path: true }
    }
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Argument {
    Text(String),
    Integer(i64),
    Integers(Vec<i64>),
    Selectors(Vec<Selector>),
}

/// The parameters of one request, each valid for its declaration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arguments(BTreeMap<&'static str, Argument>);

/// Refuses a query whose percent-encoding is malformed, or is no UTF-8: its values would be others than the
/// client meant.
pub(crate) fn check_encoding(query: &str) -> Result<(), Problem> {
    let malformed = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, "malformed", detail);
    let mut decoded = Vec::with_capacity(query.len());
    let mut rest = query.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let digit = |index: usize| char::from(*after.get(index)?).to_digit(16);
        let Some((high, low)) = digit(0).zip(digit(1)) else {
            return Err(malformed(
                "a `%` of the query has no two hexadecimal digits after it; write it as `%25`",
            ));
        };
        decoded.extend(u8::try_from(high * 16 + low));
        rest = after.get(2..).unwrap_or_default();
    }
    std::str::from_utf8(&decoded).map(drop).map_err(|_error| malformed("the query is not valid UTF-8"))
}

impl Arguments {
    /// Parses the parts of a path, and the query.
    pub(crate) fn parse<'a>(
        declared: &[Parameter],
        path: impl IntoIterator<Item = (&'a str, &'a str)>,
        query: Option<&str>,
    ) -> Result<Self, Problem> {
        let mut arguments = Self::default();
        for (name, text) in path {
            arguments.add(
                declared.iter().find(|parameter| parameter.is_path && parameter.name == name),
                name,
                text,
            )?;
        }
        for (name, text) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let Some(parameter) =
                declared.iter().find(|parameter| !parameter.is_path && parameter.name == name)
            else {
                return Err(unknown(declared, &name));
            };
            arguments.add(Some(parameter), &name, &text)?;
        }
        Ok(arguments)
    }

    fn add(&mut self, parameter: Option<&Parameter>, name: &str, text: &str) -> Result<(), Problem> {
        // The router passes on what the path declares.
        let Some(Parameter { name, kind, .. }) = parameter else { return Err(unknown(&[], name)) };
        let argument = kind.parse(text).map_err(|error| Problem::invalid(name, error))?;
        match self.0.insert(name, argument) {
            None => Ok(()),
            Some(_) => Err(Problem::invalid(name, "more than one value")),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        if let Some(Argument::Text(text)) = self.0.get(name) { Some(text) } else { None }
    }

    /// Returns a text that is kept.
    pub(crate) fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        if let Some(Argument::Integer(integer)) = self.0.get(name) { Some(*integer) } else { None }
    }

    pub(crate) fn integers(&self, name: &str) -> Option<&[i64]> {
        if let Some(Argument::Integers(integers)) = self.0.get(name) { Some(integers) } else { None }
    }

    pub(crate) fn selectors(&self, name: &str) -> Option<&[Selector]> {
        if let Some(Argument::Selectors(selectors)) = self.0.get(name) { Some(selectors) } else { None }
    }
}

/// Returns the problem of a parameter that is not declared.
fn unknown(declared: &[Parameter], name: &str) -> Problem {
    let names = || declared.iter().filter(|parameter| !parameter.is_path).map(|parameter| parameter.name);
    let advice = match nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names().next().is_none() => "this resource has no parameters".to_owned(),
        None => format!("the parameters are: {}", names().collect::<Vec<_>>().join(", ")),
    };
    let shown: String = name.chars().take(64).collect();
    Problem::new(StatusCode::BAD_REQUEST, "invalid", format!("unknown parameter; {advice}"))
        .with("parameter", shown)
}

impl Kind {
    fn parse(self, text: &str) -> Result<Argument, String> {
        let integer = |text: &str, min: i64, max: i64| {
            let integer = text.parse::<i64>().ok().filter(|integer| (min..=max).contains(integer));
            integer.ok_or_else(|| format!("expected an integer from {min} to {max}"))
        };
        match self {
            Self::Text | Self::Formed(_) => {
                if text.is_empty() || text.chars().count() > limits::TEXT_CHARACTERS {
                    return Err(format!("expected 1 to {} characters", limits::TEXT_CHARACTERS));
                }
                // PostgreSQL's text has no NUL, and no name in the store has a control character.
                if text.chars().any(char::is_control) {
                    return Err("control characters are not allowed".to_owned());
                }
                Ok(Argument::Text(text.to_owned()))
            }
            Self::Choice(choices) => choices
                .contains(&text)
                .then(|| Argument::Text(text.to_owned()))
                .ok_or_else(|| format!("expected one of {}", choices.join(", "))),
            Self::Integer(min, max) => integer(text, min, max).map(Argument::Integer),
            Self::Integers => {
                let integers: Result<Vec<i64>, _> = text
                    .split(',')
                    .map(|text| integer(text, 0, i64::MAX))
                    .take(limits::LISTED_SERIES + 1)
                    .collect();
                match integers? {
                    integers if integers.len() > limits::LISTED_SERIES => {
                        Err(format!("expected at most {} integers", limits::LISTED_SERIES))
                    }
                    integers => Ok(Argument::Integers(integers)),
                }
            }
            Self::Selectors => {
                let selectors: Result<Vec<Selector>, _> =
                    text.split(',').take(limits::SELECTORS + 1).map(str::parse).collect();
                match selectors.map_err(|error: polymeter_proto::name::InvalidName| error.to_string())? {
                    selectors if selectors.len() > limits::SELECTORS => {
                        Err(format!("expected at most {} selectors", limits::SELECTORS))
                    }
                    selectors => Ok(Argument::Selectors(selectors)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Parameter] = &[
        Parameter::path("key", Kind::Integer(0, i64::MAX), "x"),
        Parameter::query("limit", Kind::Integer(1, 100), "x"),
        Parameter::query("user", Kind::Text, "x"),
        Parameter::query("of", Kind::Choice(&["job", "nodes"]), "x"),
        Parameter::query("series", Kind::Integers, "x"),
        Parameter::query("metric", Kind::Selectors, "x"),
    ];

    fn parse(key: &str, query: &str) -> Result<Arguments, Problem> {
        Arguments::parse(DECLARED, [("key", key)], Some(query))
    }

    #[test]
    fn arguments_have_their_declared_types() {
        let query = "limit=7&user=a%20b%22%3Cscript%3E&series=1,2&metric=cpu.*,memory.current";
        let arguments = parse("42", query).unwrap();
        assert_eq!((arguments.integer("key"), arguments.integer("limit")), (Some(42), Some(7)));
        assert_eq!(arguments.text("user"), Some("a b\"<script>"));
        assert_eq!(arguments.integers("series"), Some(&[1, 2][..]));
        assert_eq!(arguments.selectors("metric").map(<[_]>::len), Some(2));
        assert_eq!(parse("42", "of=nodes").unwrap().text("of"), Some("nodes"));
        assert_eq!(arguments.text("limit"), None, "it has another type");
    }

    #[test]
    fn everything_else_is_a_bad_request() {
        let long = format!("user={}", "x".repeat(257));
        let many = format!("series={}", vec!["1"; limits::LISTED_SERIES + 1].join(","));
        let selectors = format!("metric={}", vec!["a"; 65].join(","));
        for query in [
            "limit=0",
            "limit=101",
            "limit=x",
            "limit=",
            "limit=99999999999999999999",
            "limit=1&limit=2",
            "limits=1",
            "user=",
            "user=%00",
            "user=a%0Ab",
            "of=all",
            "series=1,,2",
            "series=-1",
            "metric=",
            "metric=a%20b",
            "key=1",
            "%ff=1",
            long.as_str(),
            many.as_str(),
            selectors.as_str(),
        ] {
            let problem = parse("1", query).unwrap_err();
            assert_eq!(problem.status().as_u16(), 400, "{query}");
        }
        for key in ["", "x", "-1", "1.5", "9223372036854775808", "1%00"] {
            assert_eq!(parse(key, "").unwrap_err().status().as_u16(), 400, "{key}");
        }
    }
}
