//! Report of one step of a job.

use polymeter_analysis::model::Report;

use crate::failure::Failure;
use crate::output::printable::printable_name;

const STEPS: usize = 10;

pub(crate) fn keep_step(report: &mut Report, step: &str) -> Result<(), Failure> {
    let mut steps: Vec<String> =
        report.series.iter().filter_map(|series| step_of(&series.labels).map(str::to_owned)).collect();
    steps.sort();
    steps.dedup();
    if !steps.iter().any(|known| known == step) {
        let names: Vec<_> = steps.iter().take(STEPS).map(|step| printable_name(step)).collect();
        let (step, job) = (printable_name(step), printable_name(&report.job));
        let remedy = if names.is_empty() {
            "no steps of it were sampled".to_owned()
        } else {
            format!("its steps are {}", names.join(", "))
        };
        return Err(Failure::Failed(format!("unknown step `{step}` of job {job}: {remedy}")));
    }
    report.series.retain(|series| step_of(&series.labels) == Some(step));
    report.steps.retain(|known| known.step == step);
    report.tasks.retain(|known| known.step == step);
    report.notes.push(format!("the series are those of step {step}; all other figures are those of the job"));
    Ok(())
}

/// Step in labels of the form `key=value,...`.
fn step_of(labels: &str) -> Option<&str> {
    labels.split(',').find_map(|label| label.strip_prefix("step="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_one_of_the_labels() {
        assert_eq!(step_of("step=batch"), Some("batch"));
        assert_eq!(step_of("cpu=3,step=0,task=1"), Some("0"));
        assert_eq!(step_of("substep=0"), None);
        assert_eq!(step_of(""), None);
    }
}
