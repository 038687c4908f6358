//! Selectors of series, as Prometheus writes them: `polymeter_cpu_usage_seconds_total{node=~"gpu.*"}`. Pure.
//!
//! A regular expression is a list of alternatives of texts with `.`, `.*` and `.+`; it matches the whole value,
//! like all of Prometheus. Others are refused.

use polymeter_proto::name::matches_glob;

/// Selectors of one request.
const SELECTORS_MAX: usize = 64;

/// Matchers of one selector.
const MATCHERS_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSelection {
    #[error("a selector is missing; choose series by match[], such as match[]={{node=\"n1\"}}")]
    Missing,
    #[error("there are more than {SELECTORS_MAX} selectors, or {MATCHERS_MAX} labels in one")]
    TooMany,
    #[error("invalid selector `{0}`: expected NAME{{LABEL=\"VALUE\",...}}")]
    Syntax(String),
    #[error("the regular expression `{0}` is not supported: expected texts, `|`, `.*` and `.+`")]
    Expression(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Equal(String),
    /// Globs.
    OneOf(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Matcher {
    label: String,
    pattern: Pattern,
    is_negated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector(Vec<Matcher>);

impl Selector {
    /// `value_of` has the values of labels; a label that is missing is like an empty one.
    pub(super) fn matches<'a>(&self, value_of: impl Fn(&str) -> &'a str) -> bool {
        self.0.iter().all(|matcher| matcher.matches(value_of(&matcher.label)))
    }
}

impl Matcher {
    fn matches(&self, value: &str) -> bool {
        let is_match = match &self.pattern {
            Pattern::Equal(text) => text == value,
            Pattern::OneOf(globs) => globs.iter().any(|glob| matches_glob(glob, value)),
        };
        is_match != self.is_negated
    }
}

/// Selectors in the parameters `match[]` of a query; others are ignored, as Prometheus does.
pub(super) fn of_query(query: &[u8]) -> Result<Vec<Selector>, InvalidSelection> {
    let mut selectors = Vec::new();
    for (name, value) in form_urlencoded::parse(query) {
        if name != "match[]" {
            continue;
        }
        if selectors.len() >= SELECTORS_MAX {
            return Err(InvalidSelection::TooMany);
        }
        selectors.push(parse(&value)?);
    }
    if selectors.is_empty() { Err(InvalidSelection::Missing) } else { Ok(selectors) }
}

fn parse(text: &str) -> Result<Selector, InvalidSelection> {
    let invalid = || InvalidSelection::Syntax(text.chars().take(100).collect());
    let mut rest = text.trim();
    let mut matchers = Vec::new();
    let (name, after) = word(rest);
    if !name.is_empty() {
        let pattern = Pattern::Equal(name.to_owned());
        matchers.push(Matcher { label: "__name__".to_owned(), pattern, is_negated: false });
        rest = after.trim_start();
    }
    if let Some(list) = rest.strip_prefix('{') {
        rest = list.trim_start();
        while !rest.starts_with('}') {
            if matchers.len() >= MATCHERS_MAX {
                return Err(InvalidSelection::TooMany);
            }
            let (found, after) = matcher(rest, &invalid)?;
            matchers.push(found);
            rest = after.trim_start();
            match rest.strip_prefix(',') {
                Some(next) => rest = next.trim_start(),
                None if rest.starts_with('}') => {}
                None => return Err(invalid()),
            }
        }
        rest = rest.strip_prefix('}').unwrap_or_default();
    }
    if matchers.is_empty() || !rest.trim().is_empty() { Err(invalid()) } else { Ok(Selector(matchers)) }
}

/// Name of a metric or label at the begin, and the rest.
fn word(text: &str) -> (&str, &str) {
    let is_part = |at: usize, c: char| {
        c.is_ascii_alphabetic() || c == '_' || c == ':' || (at > 0 && c.is_ascii_digit())
    };
    let end = text.char_indices().find(|(at, c)| !is_part(*at, *c)).map_or(text.len(), |(at, _)| at);
    text.split_at_checked(end).unwrap_or_default()
}

/// `LABEL="VALUE"` at the begin, and the rest.
fn matcher<'a>(
    text: &'a str,
    invalid: &dyn Fn() -> InvalidSelection,
) -> Result<(Matcher, &'a str), InvalidSelection> {
    let (label, rest) = word(text);
    let rest = rest.trim_start();
    let operators = [("=~", true, false), ("!~", true, true), ("!=", false, true), ("=", false, false)];
    let found = operators.into_iter().find_map(|(sign, is_expression, is_negated)| {
        rest.strip_prefix(sign).map(|rest| (rest.trim_start(), is_expression, is_negated))
    });
    let (Some((rest, is_expression, is_negated)), false) = (found, label.is_empty()) else {
        return Err(invalid());
    };
    let (value, rest) = quoted(rest).ok_or_else(invalid)?;
    let pattern = if is_expression {
        let globs =
            globs(&value).ok_or_else(|| InvalidSelection::Expression(value.chars().take(100).collect()));
        Pattern::OneOf(globs?)
    } else {
        Pattern::Equal(value)
    };
    Ok((Matcher { label: label.to_owned(), pattern, is_negated }, rest))
}

/// Text in quotes at the begin, and the rest; none if it does not end, or has an unknown escape.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut letters = text.char_indices();
    let quote = letters.next().map(|(_, letter)| letter).filter(|letter| matches!(letter, '"' | '\''))?;
    let mut value = String::new();
    while let Some((at, letter)) = letters.next() {
        if letter == quote {
            return Some((value, text.get(at + 1..)?));
        }
        value.push(match letter {
            '\\' => match letters.next()?.1 {
                'n' => '\n',
                't' => '\t',
                letter @ ('\\' | '"' | '\'') => letter,
                _ => return None,
            },
            letter => letter,
        });
    }
    None
}

/// Globs with the meaning of a regular expression; none if that is not supported. The characters `*` and `?`
/// cannot be meant literally.
fn globs(expression: &str) -> Option<Vec<String>> {
    let mut globs = vec![String::new()];
    let mut letters = expression.chars().peekable();
    while let Some(letter) = letters.next() {
        let glob = globs.last_mut()?;
        match letter {
            '|' => globs.push(String::new()),
            '.' => match letters.peek() {
                Some('*') => glob.push(letters.next()?),
                Some('+') => {
                    letters.next();
                    glob.push_str("?*");
                }
                Some('?' | '{') => return None,
                _ => glob.push('?'),
            },
            // What another letter behind a backslash means is not known here.
            '\\' => match letters.next()? {
                letter @ ('.' | '|' | '-' | '+' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' | '\\'
                | '/') => {
                    glob.push(letter);
                }
                _ => return None,
            },
            '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            letter => glob.push(letter),
        }
    }
    Some(globs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [(&str, &str); 3] =
        [("__name__", "polymeter_a_total"), ("node", "gpu1"), ("jobid", "a\"b.c")];

    fn is_selected(selector: &str) -> bool {
        let value_of =
            |name: &str| LABELS.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
        parse(selector).unwrap().matches(value_of)
    }

    #[test]
    fn selectors_mean_what_they_mean_in_prometheus() {
        for selector in [
            "polymeter_a_total",
            " polymeter_a_total { } ",
            "polymeter_a_total{node=\"gpu1\"}",
            "{__name__=\"polymeter_a_total\",node!=\"gpu2\",}",
            "{__name__=~\"polymeter_.*\"}",
            "{__name__=~\"x|polymeter_a_total\", node=~'gpu.+'}",
            "{node=~\"gpu.\"}",
            "{node!~\"cpu.*\"}",
            "{jobid=\"a\\\"b.c\"}",
            "{jobid=~\"a\\\"b\\\\.c\"}",
            "{step=\"\",node=\"gpu1\"}",
            "{step=~\".*\",node=\"gpu1\"}",
        ] {
            assert!(is_selected(selector), "{selector}");
        }
        for selector in [
            "polymeter_a",
            "{node=\"gpu\"}",
            "{node=~\"gpu\"}",
            "{node=~\"gpu1.+\"}",
            "{node!=\"gpu1\"}",
            "{node!~\"gpu.*\"}",
            "{step=~\".+\"}",
            "{jobid=~\"a.b\\\\.d\"}",
        ] {
            assert!(!is_selected(selector), "{selector}");
        }
    }

    #[test]
    fn others_are_refused() {
        for selector in [
            "",
            "{}",
            "{",
            "a{",
            "a}",
            "a b",
            "{node}",
            "{node=}",
            "{node=\"a}",
            "{node=\"a\"",
            "{=\"a\"}",
            "{node=\"a\" jobid=\"b\"}",
            "{node==\"a\"}",
            "{node=\"\\x\"}",
            "1a",
            "{no-de=\"a\"}",
            "a{}b",
        ] {
            assert!(matches!(parse(selector), Err(InvalidSelection::Syntax(_))), "{selector}");
        }
        for expression in
            ["(a|b)", "a+", "a*", "[ab]", "a?", "^a$", "a{2}", ".{2}", ".?", "\\\\d", "*", "a\\\\*"]
        {
            let found = parse(&format!("{{node=~\"{expression}\"}}"));
            assert!(matches!(found, Err(InvalidSelection::Expression(_))), "{expression}: {found:?}");
        }
        assert_eq!(of_query(b"a=b&match=up"), Err(InvalidSelection::Missing));
        assert_eq!(of_query("match[]=a&".repeat(65).as_bytes()), Err(InvalidSelection::TooMany));
        let many = format!("match[]={{{}}}", "a=\"b\",".repeat(33));
        assert_eq!(of_query(many.as_bytes()), Err(InvalidSelection::TooMany));
        assert_eq!(of_query(b"match%5B%5D=a&match[]=%7Bnode%3D%22b+c%22%7D").map(|found| found.len()), Ok(2));
    }
}
