//! The raw results: a line of CSV for each run.

use std::error::Error;

use super::design::{Design, Run, Treatment};

pub(crate) const COLUMNS: &str = "run,replicate,tool,period_us,metrics,wall_s";

/// Writes the line of one run, number `number` from 1.
pub(crate) fn line(design: &Design, number: usize, run: &Run, wall_s: f64) -> String {
    let (period_us, metrics) = match &run.treatment {
        Treatment::Nothing => (String::new(), String::new()),
        Treatment::Watched { period, metrics, .. } => (period.as_micros().to_string(), metrics.to_string()),
    };
    let (replicate, tool) = (run.replicate, design.tool_name(&run.treatment));
    format!("{number},{replicate},{tool},{period_us},{metrics},{wall_s:.6}")
}

/// Wall times of the runs in `lines`, in seconds and in the order of the runs. Fails if a line was edited.
pub(crate) fn walls(lines: &[String], design: &Design, runs: &[Run]) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut walls = Vec::new();
    for (number, text) in (1..).zip(lines) {
        let wall_s = text.rsplit_once(',').and_then(|(_, wall)| wall.parse::<f64>().ok());
        match (runs.get(number - 1), wall_s) {
            (Some(run), Some(wall_s)) if line(design, number, run, wall_s) == *text => walls.push(wall_s),
            _ => {
                return Err(format!(
                    "cannot resume: line {number} of runs.csv is not as this experiment writes it; choose \
                     another directory"
                )
                .into());
            }
        }
    }
    Ok(walls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_times_are_found_again_and_edited_lines_are_refused() {
        let text = "replicates = 2\nseed = 5\nperiods = ['1ms']\nmetrics = [3]\n";
        let design = Design::parse(text).unwrap();
        let runs = design.runs();
        let expected = [1.5, 2.25, 0.125];
        let lines = (1..).zip(runs.iter().zip(expected));
        let lines: Vec<_> = lines.map(|(number, (run, wall_s))| line(&design, number, run, wall_s)).collect();
        assert_eq!(walls(&lines, &design, &runs).unwrap(), expected);
        let wrong = ["1,9,polymeter,1000,3,1.000000".to_owned()];
        assert!(walls(&wrong, &design, &runs).unwrap_err().to_string().contains("line 1"));
    }
}
