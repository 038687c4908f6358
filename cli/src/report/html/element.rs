//! Parts of HTML: text that is escaped, and tables. Pure.

use std::borrow::Cow;
use std::fmt::Write;

use crate::output::printable::printable;

/// Escapes text for HTML, also for quoted attributes. Invisible characters are made visible.
pub(super) fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in printable(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Escapes a name, and isolates its direction of writing from that of the text around it.
pub(super) fn name(name: &str) -> String {
    format!("<bdi>{}</bdi>", text(name))
}

#[derive(Debug, Clone)]
pub(super) enum Cell<'a> {
    /// Name at the begin of a row.
    Name(&'a str),
    Text(Cow<'a, str>),
    /// Number with its unit, aligned to the right.
    Number(String),
    /// Seconds since the start, and microseconds since the epoch.
    Time(f64, i64),
}

#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) caption: &'a str,
    /// Names of the columns; those of numbers are aligned to the right.
    pub(super) head: Vec<(&'a str, bool)>,
    pub(super) rows: Vec<Vec<Cell<'a>>>,
    /// Remarks below the table.
    pub(super) remarks: Vec<String>,
}

impl Table<'_> {
    /// Writes the table, which can be scrolled if it is too wide.
    pub(super) fn write(&self, page: &mut String) {
        let caption = text(self.caption);
        let mut add = |part: &str| page.push_str(part);
        add(&format!("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{caption}\">\n"));
        add(&format!("<table>\n<caption>{caption}</caption>\n<thead><tr>"));
        for (name, is_number) in &self.head {
            let class = if *is_number { " class=\"number\"" } else { "" };
            add(&format!("<th scope=\"col\"{class}>{}</th>", text(name)));
        }
        add("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            add("<tr>");
            row.iter().for_each(|cell| add(&cell.html()));
            add("</tr>\n");
        }
        add("</tbody>\n</table>\n</div>\n");
        for remark in &self.remarks {
            add(&format!("<p class=\"remark\">{}</p>\n", text(remark)));
        }
    }
}

impl Cell<'_> {
    fn html(&self) -> String {
        match self {
            Cell::Name(value) => format!("<th scope=\"row\">{}</th>", name(value)),
            Cell::Text(value) => format!("<td>{}</td>", name(value)),
            Cell::Number(value) => format!("<td class=\"number\">{}</td>", text(value)),
            Cell::Time(at_s, at_us) => format!("<td class=\"number\">{}</td>", instant(*at_s, *at_us)),
        }
    }
}

/// Writes a time as seconds since the start; the script adds the time of the clock.
fn instant(at_s: f64, at_us: i64) -> String {
    let mut html = String::new();
    // Writing to a string does not fail.
    if write!(html, "<span data-us=\"{at_us}\">{at_s:.3} s</span>").is_err() {
        html.clear();
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_markup() {
        assert_eq!(text("<a href='x' b=\"&\">"), "&lt;a href=&#39;x&#39; b=&quot;&amp;&quot;&gt;");
        assert_eq!(text("a\u{202e}b\u{0}\n"), "a\\u{202e}b\\u{0}\\u{a}");
        assert_eq!(name("שלום 🦀"), "<bdi>שלום 🦀</bdi>");
    }
}
