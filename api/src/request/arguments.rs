//! Parameters of a request. They are declared as data, from which the parser and the document of the API
//! follow.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use percent_encoding::percent_decode_str;
use polymeter_proto::name::{InvalidName, Selector};
use polymeter_proto::suggest::nearest;

use crate::answer::Problem;
use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text without control characters.
    Text,
    /// Matches this regular expression, which the endpoint checks.
    Formed(&'static str),
    Integer(i64, i64),
    Choice(&'static [&'static str]),
    /// List of at most so many, separated by commas.
    Integers(usize),
    Selectors,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    /// Part of the path.
    pub(crate) is_path: bool,
    /// Requests without it are refused.
    pub(crate) is_required: bool,
}

impl Parameter {
    pub(crate) const fn query(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, kind, help, is_path: false, is_required: false }
    }

    pub(crate) const fn required(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { is_required: true, ..Self::query(name, kind, help) }
    }

    pub(crate) const fn path(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { is_path: true, ..Self::required(name, kind, help) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Argument {
    Text(String),
    Integer(i64),
    Integers(Vec<i64>),
    Selectors(Vec<Selector>),
}

/// Each is valid for its declaration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arguments(BTreeMap<&'static str, Argument>);

/// Parameter of every resource, which is checked with the header `Accept`.
pub(crate) const FORMAT: Parameter =
    Parameter::query("format", Kind::Text, "The format, instead of the header `Accept`.");

/// Refuses a query whose percent-encoding is malformed, or is not UTF-8: its values would be others than the
/// client meant.
pub(crate) fn check_encoding(query: &str) -> Result<(), Problem> {
    let malformed = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, "malformed", detail);
    for rest in query.split('%').skip(1) {
        if !rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let detail = "a `%` of the query has no two hexadecimal digits after it; write it as `%25`";
            return Err(malformed(detail));
        }
    }
    let decoded = percent_decode_str(query).decode_utf8();
    decoded.map(drop).map_err(|_error| malformed("the query is not valid UTF-8"))
}

impl Arguments {
    pub(crate) fn parse<'a>(
        declared: &[Parameter],
        path: impl IntoIterator<Item = (&'a str, &'a str)>,
        query: Option<&str>,
    ) -> Result<Self, Problem> {
        let mut arguments = Self::default();
        for (name, text) in path {
            arguments.add(declared, true, name, text)?;
        }
        for (name, text) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            arguments.add(declared, false, &name, &text)?;
        }
        let mut required = declared.iter().filter(|parameter| parameter.is_required && !parameter.is_path);
        match required.find(|parameter| !arguments.0.contains_key(parameter.name)) {
            Some(missing) => Err(Problem::invalid(missing.name, format!("it is required: {}", missing.help))),
            None => Ok(arguments),
        }
    }

    fn add(&mut self, declared: &[Parameter], is_path: bool, name: &str, text: &str) -> Result<(), Problem> {
        let mut known = declared.iter().chain([&FORMAT]);
        let Some(parameter) = known.find(|known| known.is_path == is_path && known.name == name) else {
            return Err(unknown(declared, name));
        };
        let argument = parameter.kind.parse(text).map_err(|error| Problem::invalid(name, error))?;
        match self.0.insert(parameter.name, argument) {
            None => Ok(()),
            Some(_) => Err(Problem::invalid(name, "more than one value")),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        if let Some(Argument::Text(text)) = self.0.get(name) { Some(text) } else { None }
    }

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
            Self::Choice(choices) if choices.contains(&text) => Ok(Argument::Text(text.to_owned())),
            Self::Choice(choices) => Err(format!("expected one of {}", choices.join(", "))),
            Self::Integer(min, max) => integer(text, min, max).map(Argument::Integer),
            Self::Integers(max) => {
                list(text, "integers", max, |text: &str| integer(text, 0, i64::MAX)).map(Argument::Integers)
            }
            Self::Selectors => list(text, "selectors", limits::SELECTORS, |text: &str| {
                text.parse().map_err(|error: InvalidName| error.to_string())
            })
            .map(Argument::Selectors),
        }
    }
}

fn integer(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let integer = text.parse().ok().filter(|integer| (min..=max).contains(integer));
    integer.ok_or_else(|| format!("expected an integer from {min} to {max}"))
}

fn list<T>(
    text: &str,
    items: &str,
    max: usize,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let list: Vec<T> = text.split(',').take(max + 1).map(parse).collect::<Result<_, _>>()?;
    if list.len() > max { Err(format!("expected at most {max} {items}")) } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Parameter] = &[
        Parameter::path("key", Kind::Integer(0, i64::MAX), "x"),
        Parameter::query("limit", Kind::Integer(1, 100), "x"),
        Parameter::query("user", Kind::Text, "x"),
        Parameter::query("of", Kind::Choice(&["job", "nodes"]), "x"),
        Parameter::query("series", Kind::Integers(limits::LISTED_SERIES), "x"),
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

    type FormatUserLimit = (Option<String>, Option<String>, Option<i64>);

    fn split(query: Option<&str>) -> Result<FormatUserLimit, Problem> {
        let arguments = Arguments::parse(DECLARED, [], query)?;
        Ok((arguments.owned("format"), arguments.owned("user"), arguments.integer("limit")))
    }

    #[test]
    fn the_format_is_a_parameter_of_every_endpoint() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(split(None), Ok((None, None, None)));
        assert_eq!(split(Some("user=a&format=csv&limit=1")), Ok((text("csv"), text("a"), Some(1))));
        assert_eq!(split(Some("user=format=csv")), Ok((None, text("format=csv"), None)));
        let twice = split(Some("format=csv&format=json")).unwrap_err();
        assert!(twice.text().contains("more than one value"), "{}", twice.text());
    }

    #[test]
    fn a_missing_parameter_is_named() {
        let declared = [Parameter::required("name", Kind::Text, "The name of the jobs.")];
        assert!(Arguments::parse(&declared, [], Some("name=a")).is_ok());
        let refused = Arguments::parse(&declared, [], None).unwrap_err();
        assert!(refused.text().contains("it is required: The name of the jobs."), "{}", refused.text());
    }

    #[test]
    fn malformed_encodings_are_refused() {
        for query in
            ["user=%", "user=%4", "user=%zz", "user=%%41", "user=%\u{e9}", "user=%ff", "user=%c3&x=%a9"]
        {
            assert_eq!(check_encoding(query).unwrap_err().status().as_u16(), 400, "{query}");
        }
        for query in ["", "user=a", "user=%41%c3%a9", "user=\u{e9}", "user=%25"] {
            assert_eq!(check_encoding(query), Ok(()), "{query}");
        }
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
