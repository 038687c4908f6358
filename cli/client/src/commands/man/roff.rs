//! Sections of a manual page in the language of man(7). Pure.

use super::supplements::{EXIT_STATUS, Entry, Supplement};

pub(super) fn sections(supplement: Option<&Supplement>) -> String {
    let Some(supplement) = supplement else { return section("EXIT STATUS", EXIT_STATUS, false) };
    [
        section("EXIT STATUS", supplement.exit_status, false),
        section("ENVIRONMENT", supplement.environment, false),
        section("FILES", supplement.files, false),
        section("EXAMPLES", supplement.examples, true),
    ]
    .concat()
}

/// A paragraph for each entry: its term in bold, and its description. For command lines the description comes
/// first.
fn section(title: &str, entries: &[Entry], are_commands: bool) -> String {
    let mut text = String::new();
    for (term, description) in entries {
        let (term, description) = (escaped(term), escaped(description));
        text.push_str(&if are_commands {
            format!(".PP\n{description}\n.PP\n.RS 4\n.nf\n{term}\n.fi\n.RE\n")
        } else {
            format!(".TP\n\\fB{term}\\fR\n{description}\n")
        });
    }
    if text.is_empty() { text } else { format!(".SH \"{title}\"\n{}", text.trim_start_matches(".PP\n")) }
}

/// Escapes what man(7) interprets: backslashes, hyphens, which are to be typed as they are, and marks at the
/// begin of a line.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\(rs").replace('-', "\\-").replace('\'', "\\(aq");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_not_interpreted() {
        let entries: &[Entry] = &[(".x --y 'a\\b'", "It's.")];
        assert_eq!(
            section("FILES", entries, false),
            ".SH \"FILES\"\n.TP\n\\fB\\&.x \\-\\-y \\(aqa\\(rsb\\(aq\\fR\nIt\\(aqs.\n"
        );
        let text = section("EXAMPLES", entries, true);
        assert!(text.starts_with(".SH \"EXAMPLES\"\nIt\\(aqs.\n.PP\n.RS 4\n.nf\n\\&.x "), "{text}");
        assert_eq!(section("FILES", &[], false), "");
    }
}
