//! Tables of a bundle, as CSV files.

use polymeter_analysis::plan_fold::{FoldedChange, FoldedChanges};
use polymeter_samples_file::WrittenSeries;
use polymeter_store::StoreError;
use polymeter_store::reader::{HistogramRow, JobRow, Read, SeriesScope};

use crate::failure::Failure;
use crate::output::printable::csv_field;
use crate::output::table::head;
use polymeter_analysis::model::SourceReport;

pub(super) type Table = (&'static str, String);

type Rows = Vec<Vec<String>>;

/// `written` are the series of the job.
pub(super) fn tables(
    reader: &mut dyn Read,
    job: &JobRow,
    written: &[WrittenSeries],
) -> Result<Vec<Table>, Failure> {
    let rows = all_rows(reader, job.job_key, written)
        .map_err(|error| Failure::because("cannot read the store", &error))?;
    Ok(rows.into_iter().map(|(name, rows)| (name, csv_text(&rows))).collect())
}

fn all_rows(
    reader: &mut dyn Read,
    key: i64,
    written: &[WrittenSeries],
) -> Result<Vec<(&'static str, Rows)>, StoreError> {
    Ok(vec![
        ("series.csv", series(written)),
        ("histograms.csv", histograms(reader, key, written)?),
        ("plan_changes.csv", plan_changes(reader, key)?),
        ("marks.csv", marks(reader, key)?),
        ("kept_intervals.csv", kept_intervals(reader, key)?),
        ("firings.csv", firings(reader, key)?),
        ("ledger.csv", ledger(reader, key)?),
        ("losses.csv", losses(reader, key)?),
    ])
}

fn series(written: &[WrittenSeries]) -> Rows {
    let mut rows = vec![head(["node", "metric", "unit", "kind", "labels", "samples", "first_ns", "last_ns"])];
    for WrittenSeries { row, samples, ends_ns } in written {
        let texts = [&row.node, &row.metric, &row.unit, &row.kind].map(String::clone);
        let ends = [ends_ns.map(|ends| ends.0), ends_ns.map(|ends| ends.1)].map(optional);
        let numbers = [row.labels.to_string(), samples.to_string()].into_iter().chain(ends);
        rows.push(texts.into_iter().chain(numbers).collect());
    }
    rows
}

/// Histograms of series over all windows of the job.
fn histograms(reader: &mut dyn Read, key: i64, written: &[WrittenSeries]) -> Result<Rows, StoreError> {
    let mut rows = vec![head(["node", "metric", "labels", "least", "count"])];
    for HistogramRow { series_id, least, count } in reader.histograms(SeriesScope::Job(key), None)? {
        let Some(series) = written.iter().find(|of| of.row.series_id == series_id) else { continue };
        let row = &series.row;
        let series = [row.node.clone(), row.metric.clone(), row.labels.to_string()];
        rows.push(series.into_iter().chain([least.to_string(), count.to_string()]).collect());
    }
    Ok(rows)
}

fn plan_changes(reader: &mut dyn Read, key: i64) -> Result<Rows, StoreError> {
    let head = head([
        "time_ns",
        "node",
        "metric",
        "old_period_us",
        "new_period_us",
        "old_window_us",
        "new_window_us",
        "cause",
        "actor",
        "until_ns",
        "level",
        "changes",
        "last_time_ns",
    ]);
    let mut rows = vec![head];
    for FoldedChange { row, changes, last_ns } in FoldedChanges::of(reader.plan_changes(key)?).lines {
        let [old, new] = [row.old_period_us, row.new_period_us].map(optional);
        let [old_window, new_window] = [row.old_window_us, row.new_window_us].map(optional);
        let (time, actor) = (row.time_ns.to_string(), row.actor.unwrap_or_default());
        let (until, level) = (optional(row.until_ns), row.level.unwrap_or_default());
        let folded = [changes.to_string(), optional(last_ns)];
        let own =
            [time, row.node, row.metric, old, new, old_window, new_window, row.cause, actor, until, level];
        rows.push(own.into_iter().chain(folded).collect());
    }
    Ok(rows)
}

fn marks(reader: &mut dyn Read, key: i64) -> Result<Rows, StoreError> {
    let mut rows = vec![head(["time_ns", "node", "name", "kind", "actor"])];
    for row in reader.marks(key)? {
        let actor = row.actor.unwrap_or_default();
        rows.push(vec![row.time_ns.to_string(), row.node, row.name, row.kind, actor]);
    }
    Ok(rows)
}

fn kept_intervals(reader: &mut dyn Read, key: i64) -> Result<Rows, StoreError> {
    let mut rows = vec![head(["begin_ns", "end_ns", "node", "trigger", "reason", "samples"])];
    for row in reader.kept_intervals(key)? {
        let times = [row.begin_ns, row.end_ns].map(|time_ns| time_ns.to_string());
        let others = [row.node, row.trigger.cast_unsigned().to_string(), row.reason, row.samples.to_string()];
        rows.push(times.into_iter().chain(others).collect());
    }
    Ok(rows)
}

fn firings(reader: &mut dyn Read, key: i64) -> Result<Rows, StoreError> {
    let head = head([
        "time_ns",
        "node",
        "rule",
        "actor",
        "why",
        "actions",
        "trigger",
        "begin_ns",
        "end_ns",
        "nodes_asked",
        "nodes_missing",
    ]);
    let mut rows = vec![head];
    for row in reader.firings(key)? {
        let missing = serde_json::json!(row.nodes_missing).to_string();
        let [begin, end] = [row.begin_ns, row.end_ns].map(optional);
        let trigger = row.trigger.cast_unsigned().to_string();
        rows.push(vec![
            row.time_ns.to_string(),
            row.node,
            row.rule,
            row.actor.unwrap_or_default(),
            row.why,
            row.actions,
            trigger,
            begin,
            end,
            row.nodes_asked.map(|asked| asked.to_string()).unwrap_or_default(),
            missing,
        ]);
    }
    Ok(rows)
}

fn ledger(reader: &mut dyn Read, key: i64) -> Result<Rows, StoreError> {
    let head = ["session", "node", "source"].into_iter().chain(SourceReport::COUNTS);
    let mut rows = vec![head.map(str::to_owned).collect()];
    for row in reader.ledger(key)? {
        let session = row.session_id.clone();
        let source = SourceReport::from(row);
        let counts = source.counts().map(|count| count.to_string());
        rows.push([session, source.node, source.source].into_iter().chain(counts).collect());
    }
    Ok(rows)
}

fn losses(reader: &mut dyn Read, key: i64) -> Result<Rows, StoreError> {
    let head = head(["time_ns", "node", "session", "source", "samples", "reason", "first_ns", "last_ns"]);
    let mut rows = vec![head];
    for row in reader.losses(key)? {
        let [time, first, last] = [row.time_ns, row.first_time_ns, row.last_time_ns].map(|ns| ns.to_string());
        let (source, samples) = (row.source.unwrap_or_default(), row.samples.to_string());
        rows.push(vec![time, row.node, row.session_id, source, samples, row.reason, first, last]);
    }
    Ok(rows)
}

/// Empty for an unknown number.
fn optional(number: Option<i64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

fn csv_text(rows: &Rows) -> String {
    let mut text = String::new();
    for row in rows {
        let fields: Vec<_> = row.iter().map(|cell| csv_field(cell)).collect();
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_necessary_and_safe() {
        let rows = vec![
            head(["a", "b"]),
            head(["plain", "cpu=3,device=sda"]),
            head(["", "say \"when\"\n"]),
            head(["=1+1", "a\u{202e}b"]),
            head(["-5", "=HYPERLINK(\"x\",1)"]),
        ];
        assert_eq!(
            csv_text(&rows),
            "a,b\nplain,\"cpu=3,device=sda\"\n,\"say \"\"when\"\"\\u{a}\"\n'=1+1,a\\u{202e}b\n-5,\"'=HYPERLINK(\"\"x\"\",1)\"\n"
        );
    }
}
