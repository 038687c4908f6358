//! Series of derived metrics, as the report computes them.

use std::sync::Arc;

use polymeter_analysis::gather::gather;
use polymeter_analysis::model::SeriesReport;
use polymeter_proto::catalogue::{Scope, derived};
use polymeter_proto::units;
use polymeter_samples_file::{Encoder, SamplesError, SeriesTexts};
use polymeter_store::reader::{JobRow, Read};
use serde_json::json;

use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::report::choice::ChosenJob;
use crate::store_failure::cannot_read;

/// Refuses a step: derived metrics are those of the whole job.
pub(super) fn series(
    reader: &mut dyn Read,
    ChosenJob { job, step, .. }: &ChosenJob,
) -> Result<Vec<SeriesReport>, Failure> {
    if step.is_some() {
        let job_id = printable_name(&job.job_id);
        let message =
            format!("cannot export derived metrics of a step: they are the job's; name it, {job_id}");
        return Err(Failure::Usage(message));
    }
    let mut series = gather(reader, job, None).map_err(cannot_read)?.series;
    series.retain(|series| series.is_derived);
    Ok(series)
}

pub(super) fn fill(series: &[SeriesReport], job: &JobRow, encoder: &mut Encoder) -> Result<(), SamplesError> {
    for series in series {
        let texts = Arc::new(texts_of(series, job));
        for interval in series.curve.intervals() {
            let mean = interval.sum / units::to_f64(interval.weight_ns);
            if !encoder.add(&texts, interval.time_ns.div_euclid(1000), mean, None) {
                return Err(SamplesError::Stopped);
            }
        }
    }
    Ok(())
}

/// Like any series of a node, one that is derived from such has no job.
fn texts_of(series: &SeriesReport, job: &JobRow) -> SeriesTexts {
    let is_of_node = derived::find(&series.metric).is_some_and(|derived| derived.scope == Scope::Node);
    SeriesTexts {
        job_id: (!is_of_node).then(|| job.job_id.clone()),
        node: series.node.clone(),
        metric: series.metric.clone(),
        unit: series.unit.clone(),
        labels: json!({"derived": "true"}).to_string(),
    }
}
