//! The results of the overhead experiment: the wall time of each treatment, and its slowdown relative to
//! `Nothing`.

use polymeter_benches::plot::{Plot, Series};
use polymeter_benches::statistics::Estimate;

use super::design::{Design, Run, Treatment};

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) treatment: Treatment,
    pub(crate) runs: usize,
    /// Wall time of its runs, in seconds.
    pub(crate) wall_s: Estimate,
    /// Slowdown relative to `Nothing`, in percent; none for `Nothing` itself.
    pub(crate) slowdown_percent: Option<Estimate>,
}

/// Results of all treatments, in the order of [`Design::treatments`]. `walls` has the wall times of the first
/// of `runs`, in seconds.
pub(crate) fn lines(design: &Design, runs: &[Run], walls: &[f64]) -> Vec<Line> {
    let of = |treatment: &Treatment| -> Vec<f64> {
        let of = runs.iter().zip(walls).filter(|(run, _)| run.treatment == *treatment);
        of.map(|(_, wall)| *wall).collect()
    };
    let nothing = of(&Treatment::Nothing);
    let unit = Estimate::of(&nothing).mean / 100.0;
    design
        .treatments()
        .into_iter()
        .map(|treatment| {
            let walls = of(&treatment);
            let slowdown = Estimate::difference(&walls, &nothing).in_units_of(unit);
            let slowdown_percent = (treatment != Treatment::Nothing).then_some(slowdown);
            Line { runs: walls.len(), wall_s: Estimate::of(&walls), slowdown_percent, treatment }
        })
        .collect()
}

/// Header of the table of [`rows`].
pub(crate) const HEAD: [&str; 7] =
    ["tool", "period", "metrics", "runs", "wall time s", "slowdown %", "contains 0"];

pub(crate) fn rows(design: &Design, lines: &[Line]) -> Vec<Vec<String>> {
    lines
        .iter()
        .map(|line| {
            let (period, metrics) = match &line.treatment {
                Treatment::Nothing => ("-".to_owned(), "-".to_owned()),
                Treatment::Watched { period, metrics, .. } => (period.to_string(), metrics.to_string()),
            };
            let slowdown = line.slowdown_percent;
            vec![
                design.tool_name(&line.treatment).to_owned(),
                period,
                metrics,
                line.runs.to_string(),
                format!("{:.3}", line.wall_s),
                slowdown.map_or("-".to_owned(), |slowdown| format!("{slowdown:.2}")),
                slowdown
                    .map_or("-", |slowdown| if slowdown.contains_zero() { "yes" } else { "no" })
                    .to_owned(),
            ]
        })
        .collect()
}

/// Plots the slowdowns: one position for each pair of period and number of metrics, one colour for each tool.
pub(crate) fn plot(design: &Design, lines: &[Line]) -> Plot {
    let places: Vec<_> = design
        .periods
        .iter()
        .flat_map(|period| design.metrics.iter().map(move |metrics| (*period, *metrics)))
        .collect();
    let tools = std::iter::once(None).chain((0..design.tools.len()).map(Some));
    let series = tools.map(|tool| {
        let some = Treatment::Watched { tool, period: polymeter_proto::period::Period::SECOND, metrics: 0 };
        Series {
            name: design.tool_name(&some).to_owned(),
            points: places
                .iter()
                .map(|(period, metrics)| {
                    let wanted = Treatment::Watched { tool, period: *period, metrics: *metrics };
                    lines.iter().find(|line| line.treatment == wanted)?.slowdown_percent
                })
                .collect(),
        }
    });
    Plot {
        title: "Slowdown of the command, with 95 % intervals".to_owned(),
        y_label: "percent".to_owned(),
        places: places.iter().map(|(period, metrics)| format!("{period}, {metrics} metrics")).collect(),
        series: series.filter(|series| series.points.iter().any(Option::is_some)).collect(),
        is_logarithmic: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_are_against_nothing() {
        let text = "replicates = 2\nseed = 5\nperiods = ['1ms']\nmetrics = [3]\n";
        let design = Design::parse(text).unwrap();
        let runs = design.runs();
        let walls: Vec<f64> = runs
            .iter()
            .map(|run| match run.treatment {
                Treatment::Nothing => 10.0 + f64::from(run.replicate) / 10.0,
                Treatment::Watched { .. } => 20.0,
            })
            .collect();
        let lines = lines(&design, &runs, &walls);
        let slowdown = lines[1].slowdown_percent.unwrap();
        assert!((slowdown.mean - 100.0 * 9.85 / 10.15).abs() < 1e-9, "{slowdown:?}");
        assert!(!slowdown.contains_zero() && lines[0].slowdown_percent.is_none());
        let rows = rows(&design, &lines);
        assert_eq!(rows[1][..4], ["polymeter", "1ms", "3", "2"]);
        assert_eq!(rows[0].len(), HEAD.len());
        assert_eq!(plot(&design, &lines).series.len(), 1);
    }
}
