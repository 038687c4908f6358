//! A writer of SVG files with the shapes that plots need. Pure.

use std::fmt::Write;

/// SVG image that is being drawn. All lengths are in pixels.
#[derive(Debug)]
pub struct Svg {
    text: String,
}

/// Which part of a text lies at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Horizontal and vertical coordinate.
pub type Point = (f64, f64);

impl Svg {
    pub fn new(width: f64, height: f64, font_size: u32) -> Self {
        Self {
            text: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"{font_size}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
            ),
        }
    }

    /// Adds a line of text, in which XML's special characters are escaped.
    pub fn text(&mut self, at: Point, anchor: Anchor, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let ((x, y), anchor) = (at, anchor.as_str());
        self.element(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    /// Adds a line of text, rotated about its point.
    pub fn rotated_text(&mut self, at: Point, degrees: i32, anchor: Anchor, text: &str) {
        let (x, y) = at;
        self.element(format_args!("<g transform=\"rotate({degrees} {x:.1} {y:.1})\">"));
        self.text(at, anchor, text);
        self.element(format_args!("</g>"));
    }

    pub fn line(&mut self, from: Point, to: Point, colour: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.element(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
        ));
    }

    pub fn polyline(&mut self, points: impl IntoIterator<Item = Point>, colour: &str) {
        let points = coordinates(points);
        self.element(format_args!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\"/>"));
    }

    pub fn polygon(&mut self, points: impl IntoIterator<Item = Point>, colour: &str) {
        let points = coordinates(points);
        self.element(format_args!("<polygon points=\"{points}\" fill=\"{colour}\" stroke=\"{colour}\"/>"));
    }

    pub fn circle(&mut self, centre: Point, radius: u32, colour: &str) {
        let (x, y) = centre;
        self.element(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>"));
    }

    /// Returns the text of the file.
    pub fn finish(mut self) -> String {
        self.element(format_args!("</svg>"));
        self.text
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        writeln!(self.text, "{element}").ok();
    }
}

fn coordinates(points: impl IntoIterator<Item = Point>) -> String {
    points.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut svg = Svg::new(100.0, 50.0, 12);
        svg.text((1.0, 2.0), Anchor::Middle, "a < b & c > d");
        let text = svg.finish();
        let expected =
            "<text x=\"1.0\" y=\"2.0\" text-anchor=\"middle\">a &lt; b &amp; c &gt; d</text>\n</svg>\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn points_are_separated_by_blanks() {
        let mut svg = Svg::new(100.0, 50.0, 12);
        svg.polyline([(0.0, 1.0), (2.25, 3.0)], "black");
        assert!(svg.finish().contains("points=\"0.0,1.0 2.2,3.0\""));
    }
}
