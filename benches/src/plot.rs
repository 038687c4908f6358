//! A plot of means with their intervals, as SVG.

use crate::statistics::Estimate;
use crate::table::to_f64;
use polymeter_service::svg::{Anchor, Svg};

/// A plot: positions on the horizontal axis, and at each of them one mean with its interval for every series.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    pub title: String,
    pub y_label: String,
    pub places: Vec<String>,
    pub series: Vec<Series>,
    /// True if the vertical axis has powers of ten. Values that are not positive are left out then.
    pub is_logarithmic: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    pub points: Vec<Option<Estimate>>,
}

/// Size of the plot, and the margins around the axes: left, right, top, bottom. In pixels.
const SIZE: (f64, f64) = (900.0, 480.0);
const ROOM: (f64, f64, f64, f64) = (80.0, 220.0, 50.0, 110.0);

/// A palette that is safe for colour-blind readers (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

const TICKS: f64 = 6.0;

impl Plot {
    pub fn render(&self) -> String {
        let mut svg = Svg::new(SIZE.0, SIZE.1, 13);
        let points = self.series.iter().flat_map(|series| series.points.iter().flatten());
        let scale = Scale::over(points, self.is_logarithmic);
        svg.text((SIZE.0 / 2.0, 28.0), Anchor::Middle, &self.title);
        svg.text((ROOM.0, ROOM.2 - 8.0), Anchor::Middle, &self.y_label);
        for value in scale.ticks() {
            let y = scale.y(value);
            svg.line((ROOM.0, y), (SIZE.0 - ROOM.1, y), if value == 0.0 { "black" } else { "#ddd" });
            svg.text((ROOM.0 - 8.0, y + 4.0), Anchor::End, &scale.label(value));
        }
        for (index, place) in self.places.iter().enumerate() {
            let (x, y) = (self.x(index, 0.5), SIZE.1 - ROOM.3 + 18.0);
            svg.rotated_text((x, y), -30, Anchor::End, place);
        }
        for (number, (series, colour)) in self.series.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let shift = (to_f64(number as u64) + 1.0) / (to_f64(self.series.len() as u64) + 1.0);
            for (index, point) in series.points.iter().enumerate() {
                if let Some(point) = point {
                    mark(&mut svg, self.x(index, shift), *point, &scale, colour);
                }
            }
            let y = ROOM.2 + 20.0 * to_f64(number as u64 + 1);
            let x = SIZE.0 - ROOM.1 + 20.0;
            svg.circle((x, y - 4.0), 4, colour);
            svg.text((x + 12.0, y), Anchor::Start, &series.name);
        }
        svg.finish()
    }

    /// Horizontal coordinate of a position, in pixels; `part` is the fraction of the position's width.
    fn x(&self, index: usize, part: f64) -> f64 {
        let width = (SIZE.0 - ROOM.0 - ROOM.1) / to_f64(self.places.len().max(1) as u64);
        ROOM.0 + width * (to_f64(index as u64) + part)
    }
}

/// Of the values, or of their decimal logarithms.
struct Scale {
    low: f64,
    high: f64,
    step: f64,
    is_logarithmic: bool,
}

impl Scale {
    fn over<'a>(points: impl Iterator<Item = &'a Estimate>, is_logarithmic: bool) -> Self {
        if is_logarithmic {
            let logs = points.map(|point| point.mean.log10()).filter(|log| log.is_finite());
            let (low, high) = logs
                .fold((f64::MAX, f64::MIN), |(low, high), log| (low.min(log.floor()), high.max(log.ceil())));
            let (low, high) = if low > high { (0.0, 1.0) } else { (low, high.max(low + 1.0)) };
            return Self { low, high, step: 1.0, is_logarithmic };
        }
        let (mut low, mut high) = (0.0_f64, 0.0_f64);
        for point in points.filter(|point| point.mean.is_finite()) {
            let half = if point.half.is_finite() { point.half } else { 0.0 };
            low = low.min(point.mean - half);
            high = high.max(point.mean + half);
        }
        let span = if high > low { high - low } else { 1.0 };
        let power = 10_f64.powf((span / TICKS).log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power * TICKS >= span).unwrap_or(10.0)
                * power;
        Self {
            low: (low / step).floor() * step,
            high: (high.max(low + span) / step).ceil() * step,
            step,
            is_logarithmic,
        }
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        SIZE.1 - ROOM.3 - share.clamp(0.0, 1.0) * (SIZE.1 - ROOM.2 - ROOM.3)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = crate::table::to_u64((self.high - self.low) / self.step);
        // Rounded to whole steps, so that zero is exact.
        let first = (self.low / self.step).round();
        (0..=count).map(move |tick| (first + to_f64(tick)) * self.step)
    }

    /// Position of a value on the scale.
    fn position(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.log10() } else { value }
    }

    fn label(&self, value: f64) -> String {
        if self.is_logarithmic {
            return format!("10^{value:.0}");
        }
        let digits = usize::try_from(crate::table::to_u64(-self.step.log10().floor())).unwrap_or(0).min(9);
        format!("{value:.digits$}")
    }
}

fn mark(svg: &mut Svg, x: f64, point: Estimate, scale: &Scale, colour: &str) {
    let middle = scale.position(point.mean);
    if !middle.is_finite() {
        return;
    }
    if point.half.is_finite() {
        let ends = [point.mean + point.half, point.mean - point.half].map(|end| scale.position(end));
        // The end of an interval may not be positive.
        let [top, bottom] = ends.map(|end| scale.y(if end.is_finite() { end } else { scale.low }));
        svg.line((x, top), (x, bottom), colour);
        svg.line((x - 5.0, top), (x + 5.0, top), colour);
        svg.line((x - 5.0, bottom), (x + 5.0, bottom), colour);
    }
    svg.circle((x, scale.y(middle)), 4, colour);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<Option<Estimate>>) -> Plot {
        Plot {
            title: "a < b & c".to_owned(),
            y_label: "percent".to_owned(),
            places: points.iter().map(|_| "place".to_owned()).collect(),
            series: vec![Series { name: "s".to_owned(), points }],
            is_logarithmic: false,
        }
    }

    fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
        svg.split(&format!(" {attribute}=\""))
            .skip(1)
            .filter_map(|part| part.split('"').next().and_then(|number| number.parse().ok()))
            .collect()
    }

    #[test]
    fn everything_lies_within_the_axes_and_higher_is_more() {
        let of = |mean, half| Some(Estimate { mean, half });
        let svg = plot(vec![of(-0.3, 0.1), of(12.0, 3.0), None, of(4.0, f64::INFINITY)]).render();
        assert!(svg.contains("a &lt; b &amp; c") && svg.ends_with("</svg>\n"));
        // Three points, and one in the legend.
        let heights = numbers(&svg, "cy");
        assert_eq!(heights.len(), 4);
        assert!(heights[0] > heights[2] && heights[2] > heights[1], "{heights:?}");
        for y in ["cy", "y1", "y2"].iter().flat_map(|attribute| numbers(&svg, attribute)) {
            assert!((ROOM.2..=SIZE.1 - ROOM.3).contains(&y), "{y} of {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_ten_and_equal_ratios_have_equal_distances() {
        let of = |mean, half| Some(Estimate { mean, half });
        let points = vec![of(30.0, 40.0), of(300.0, 1.0), of(3000.0, f64::INFINITY), of(0.0, 1.0)];
        let svg = Plot { is_logarithmic: true, ..plot(points) }.render();
        let heights = numbers(&svg, "cy");
        assert_eq!(heights.len(), 4, "three points, and one in the legend");
        assert!((heights[0] - heights[1] - (heights[1] - heights[2])).abs() < 0.5, "{heights:?}");
        assert!(svg.contains(">10^1<") && svg.contains(">10^4<") && !svg.contains("NaN"), "{svg}");
        let empty = Plot { is_logarithmic: true, ..plot(vec![None]) }.render();
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }

    #[test]
    fn nothing_and_what_is_no_number_make_a_plot_too() {
        for points in [vec![], vec![None], vec![Some(Estimate { mean: f64::NAN, half: f64::NAN })]] {
            let svg = plot(points).render();
            assert!(!svg.contains("NaN") && svg.contains(">0.0<"), "{svg}");
        }
    }
}
