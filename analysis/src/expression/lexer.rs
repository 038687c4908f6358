//! Tokens of an expression. Pure.

use super::syntax::{EXPRESSION_BYTES_MAX, ExpressionError};

pub const QUANTITY_UNITS: [(&str, f64); 19] = [
    ("%", 0.01),
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("C", 1.0),
    ("cores", 1.0),
];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Number(f64),
    Text(String),
    Name(String),
    Symbol(&'static str),
    End,
}

/// Longer symbols before their prefixes.
const SYMBOLS: [&str; 14] = ["<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "(", ")", ",", "="];

/// Tokens with their positions; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ExpressionError> {
    if text.len() > EXPRESSION_BYTES_MAX {
        let message = format!("the expression has more than {EXPRESSION_BYTES_MAX} bytes");
        return Err(ExpressionError { position: EXPRESSION_BYTES_MAX, message });
    }
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let position = text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            tokens.push((position, Token::End));
            return Ok(tokens);
        };
        let error = |message: String| ExpressionError { position, message };
        let (token, after) = if first.is_ascii_digit() {
            number(rest).ok_or_else(|| error("invalid number".to_owned()))?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let (name, after) = split(rest, is_of_name);
            (Token::Name(name.to_owned()), after)
        } else if first == '"' || first == '\'' {
            let inner = rest.get(1..).unwrap_or_default();
            let (inner, after) =
                inner.split_once(first).ok_or_else(|| error("text without end".to_owned()))?;
            (Token::Text(inner.to_owned()), after)
        } else {
            let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
            let symbol =
                symbol.ok_or_else(|| error(format!("unexpected character `{}`", first.escape_debug())))?;
            if symbol == "=" {
                return Err(error("unexpected `=`; compare with `==`".to_owned()));
            }
            (Token::Symbol(symbol), rest.get(symbol.len()..).unwrap_or_default())
        };
        tokens.push((position, token));
        rest = after;
    }
}

/// Parses a number with an optional unit, such as `64 KiB`, `5 min` or `65 %`.
pub fn quantity(text: &str) -> Result<f64, InvalidQuantity> {
    match number(text.trim()) {
        Some((Token::Number(number), "")) => Ok(number),
        _ => Err(InvalidQuantity),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a number with an optional unit ({units})", units = QUANTITY_UNITS.map(|(unit, _)| unit).join(", "))]
pub struct InvalidQuantity;

const fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn split(text: &str, matches: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|character| !matches(character)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn number(text: &str) -> Option<(Token, &str)> {
    let (digits, mut rest) = split(text, |character| character.is_ascii_digit() || character == '.');
    let exponent =
        rest.strip_prefix('e').map(|after| after.strip_prefix('-').map_or((after, ""), |after| (after, "-")));
    let mut literal = digits.to_owned();
    if let Some((after, sign)) = exponent.filter(|(after, _)| after.starts_with(|c: char| c.is_ascii_digit()))
    {
        let (exponent, after) = split(after, |character| character.is_ascii_digit());
        literal = format!("{digits}e{sign}{exponent}");
        rest = after;
    }
    let value: f64 = literal.parse().ok()?;
    let unit_text = rest.trim_start();
    let (name, after_name) = match unit_text.strip_prefix('%') {
        Some(after) => ("%", after),
        None => split(unit_text, is_of_name),
    };
    let unit = QUANTITY_UNITS.into_iter().find(|(unit, _)| *unit == name);
    let (value, rest) = unit.map_or((value, rest), |(_, factor)| {
        // The inverse of a small factor is exact: 70 % is 0.7.
        (if factor < 1.0 { value / (1.0 / factor) } else { value * factor }, after_name)
    });
    // A name directly behind the digits would be read as a separate one.
    let is_separate = !rest.starts_with(is_of_name);
    (value.is_finite() && is_separate).then_some((Token::Number(value), rest))
}
