//! The text of the page.

use std::collections::HashMap;

use polymeter_proto::catalogue;
use polymeter_proto::exposition::{Format, JOB_INFO, LabelSet, Page, Part, metric_name};
use polymeter_proto::series::{Kind, Labels, MetricDescriptor, Unit};

use super::newest::{KnownJob, Newest, NewestValues};
use super::selector::Selector;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {0} series match; choose fewer with match[]")]
pub(super) struct TooManySeries(usize);

/// Newest values of the series that one of `selectors` matches, which must be `series_max` at most.
pub(super) fn text(
    values: &NewestValues,
    selectors: &[Selector],
    format: Format,
    series_max: usize,
) -> Result<String, TooManySeries> {
    // The sink must not wait for the text.
    let (series, jobs) = values.table().snapshot();
    let mut page = Page::default();
    let mut room = series_max;
    let mut take_room = || {
        room = room.checked_sub(1).ok_or(TooManySeries(series_max))?;
        Ok(())
    };
    let mut names = HashMap::new();
    for newest in &series {
        let metric = &newest.record.metric;
        let name =
            names.entry(std::ptr::from_ref(&**metric)).or_insert_with(|| metric_name(metric, Part::Last));
        let labels = labels_of(newest);
        if is_selected(selectors, name, &labels) {
            take_room()?;
            // A user's metric whose name has another kind is left out.
            page.add(metric, help(metric), labels, (newest.time_us, newest.value));
        }
    }
    for job in &jobs {
        let labels = labels_of_job(job);
        if is_selected(selectors, JOB_INFO, &labels) {
            take_room()?;
            page.add_named((JOB_INFO, Kind::Gauge), "Facts of a job.", labels, 1.0);
        }
    }
    Ok(page.to_text(format))
}

fn is_selected(selectors: &[Selector], name: &str, labels: &LabelSet) -> bool {
    let value_of =
        |label: &str| if label == "__name__" { name } else { labels.get(label).unwrap_or_default() };
    selectors.iter().any(|selector| selector.matches(value_of))
}

fn labels_of(newest: &Newest) -> LabelSet {
    let record = &newest.record;
    let job = record.job.as_ref().map(|job| job.descriptor.job_id.as_str());
    LabelSet::new(record.node().as_str(), job, &[], &record.labels)
}

fn labels_of_job(job: &KnownJob) -> LabelSet {
    let (node, id) = (job.record.node().as_str(), job.record.descriptor.job_id.as_str());
    let mut labels = LabelSet::new(node, Some(id), &[], &Labels::default());
    for (name, value) in &*job.facts {
        labels.add(name, value);
    }
    labels
}

fn help(metric: &MetricDescriptor) -> &'static str {
    let declared = catalogue::find(metric.name.as_str()).map(|found| found.metric.help);
    let other = if metric.unit == Unit::Labelled {
        "Values that a job supplied."
    } else {
        "A metric outside of the catalogue."
    };
    declared.unwrap_or(other)
}
