//! Colours of text in a terminal.

use super::printable::printable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Warning,
    Critical,
}

impl Style {
    /// ECMA-48, SGR.
    const fn sequence(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\u{1b}[1m",
            Self::Dim => "\u{1b}[2m",
            Self::Good => "\u{1b}[32m",
            Self::Warning => "\u{1b}[33m",
            Self::Critical => "\u{1b}[1;31m",
        }
    }
}

const RESET: &str = "\u{1b}[0m";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<(Style, String)>);

impl Line {
    pub(crate) fn of(style: Style, text: impl Into<String>) -> Self {
        Self(vec![(style, text.into())])
    }

    pub(crate) fn with(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }
}

/// Writes lines, with characters that control a terminal escaped in their texts; with sequences for the
/// styles if `has_colours`.
pub(crate) fn painted(lines: &[Line], has_colours: bool) -> String {
    let mut painted = String::new();
    for line in lines {
        let mut text = String::new();
        for (style, part) in &line.0 {
            let part = printable(part);
            match style.sequence() {
                "" => text.push_str(&part),
                _ if !has_colours || part.is_empty() => text.push_str(&part),
                sequence => text.extend([sequence, &part, RESET]),
            }
        }
        painted.push_str(text.trim_end());
        painted.push('\n');
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_styles_bring_sequences() {
        let lines = [Line::of(Style::Critical, "evil\u{1b}[2J").with(Style::Plain, " x  "), Line::default()];
        assert_eq!(painted(&lines, false), "evil\\u{1b}[2J x\n\n");
        assert_eq!(painted(&lines, true), "\u{1b}[1;31mevil\\u{1b}[2J\u{1b}[0m x\n\n");
    }
}
