//! What happened beside the samples, as CSV: every table is a file.

use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, Reader, SeriesScope};

use crate::printable::spreadsheet_cell;

/// A file's name and its text.
pub(super) type Table = (&'static str, String);

/// All tables of a job.
pub(super) fn tables(reader: &mut Reader, job: &JobRow) -> Result<Vec<Table>, StoreError> {
    let key = Some(job.job_key);
    Ok(vec![
        ("series.csv", series(reader, job)?),
        ("plan_changes.csv", plan_changes(reader, key)?),
        ("marks.csv", marks(reader, key)?),
        ("ledger.csv", ledger(reader, key)?),
        ("losses.csv", losses(reader, key)?),
    ])
}

fn series(reader: &mut Reader, job: &JobRow) -> Result<String, StoreError> {
    let mut csv = Csv::new(["node", "metric", "unit", "kind", "labels", "samples", "first_ns", "last_ns"]);
    for row in reader.series(SeriesScope::Job(job.job_key))? {
        let labels = row.labels.to_string();
        let (first, last) = (optional(row.first_time_ns), optional(row.last_time_ns));
        csv.row([row.node, row.metric, row.unit, row.kind, labels, row.count.to_string(), first, last]);
    }
    Ok(csv.0)
}

fn plan_changes(reader: &mut Reader, key: Option<i64>) -> Result<String, StoreError> {
    let head = ["time_ns", "node", "metric", "old_period_us", "new_period_us", "cause", "actor", "until_ns"];
    let mut csv = Csv::new(head);
    for row in reader.plan_changes(key)? {
        let (old, new) = (optional(row.old_period_us), optional(row.new_period_us));
        let actor = row.actor.unwrap_or_default();
        let time = row.time_ns.to_string();
        csv.row([time, row.node, row.metric, old, new, row.cause, actor, optional(row.until_ns)]);
    }
    Ok(csv.0)
}

fn marks(reader: &mut Reader, key: Option<i64>) -> Result<String, StoreError> {
    let mut csv = Csv::new(["time_ns", "node", "name", "kind", "actor"]);
    for row in reader.marks(key)? {
        csv.row([row.time_ns.to_string(), row.node, row.name, row.kind, row.actor.unwrap_or_default()]);
    }
    Ok(csv.0)
}

fn ledger(reader: &mut Reader, key: Option<i64>) -> Result<String, StoreError> {
    let mut csv = Csv::new([
        "session",
        "node",
        "source",
        "due",
        "taken",
        "late",
        "missed",
        "absent",
        "dropped",
        "skipped",
        "rejected",
        "quarantined",
        "stored",
        "unknown",
    ]);
    for row in reader.ledger(key)? {
        let tally = row.tally;
        let of_agent = [tally.due, tally.taken, tally.late, tally.missed, tally.absent, tally.dropped];
        let [due, taken, late, missed, absent, dropped] = of_agent.map(|count| count.to_string());
        let of_collector = [row.skipped, row.rejected, row.quarantined, row.stored, row.unknown];
        let [skipped, rejected, quarantined, stored, unknown] = of_collector.map(|count| count.to_string());
        let (session, node, source) = (row.session_id, row.node, row.source);
        csv.row([
            session,
            node,
            source,
            due,
            taken,
            late,
            missed,
            absent,
            dropped,
            skipped,
            rejected,
            quarantined,
            stored,
            unknown,
        ]);
    }
    Ok(csv.0)
}

fn losses(reader: &mut Reader, key: Option<i64>) -> Result<String, StoreError> {
    let mut csv =
        Csv::new(["time_ns", "node", "session", "source", "samples", "reason", "first_ns", "last_ns"]);
    for row in reader.losses(key)? {
        let [time, first, last] = [row.time_ns, row.first_time_ns, row.last_time_ns].map(|ns| ns.to_string());
        let (source, samples) = (row.source.unwrap_or_default(), row.samples.to_string());
        csv.row([time, row.node, row.session_id, source, samples, row.reason, first, last]);
    }
    Ok(csv.0)
}

/// What is not known is an empty field.
fn optional(number: Option<i64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

/// Text by RFC 4180, with the line ends of this system. No cell is a formula, nor has what a terminal would obey.
struct Csv(String);

impl Csv {
    fn new<const COLUMNS: usize>(head: [&str; COLUMNS]) -> Self {
        Self(head.join(",") + "\n")
    }

    fn row<const COLUMNS: usize>(&mut self, fields: [String; COLUMNS]) {
        self.0.push_str(&fields.map(|field| quoted(&spreadsheet_cell(&field))).join(","));
        self.0.push('\n');
    }
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let mut csv = Csv::new(["a", "b"]);
        csv.row(["plain".to_owned(), "cpu=3,device=sda".to_owned()]);
        csv.row([String::new(), "say \"when\"\n".to_owned()]);
        csv.row(["=1+1".to_owned(), "a\u{202e}b".to_owned()]);
        csv.row(["-5".to_owned(), "=HYPERLINK(\"x\",1)".to_owned()]);
        assert_eq!(
            csv.0,
            "a,b\nplain,\"cpu=3,device=sda\"\n,\"say \"\"when\"\"\\u{a}\"\n'=1+1,a\\u{202e}b\n-5,\"'=HYPERLINK(\"\"x\"\",1)\"\n"
        );
    }
}
