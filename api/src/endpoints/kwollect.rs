//! Kwollect's query of metrics, with its parameters and its result, so that its clients need no change.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_service::time_text::{rfc3339, time_us};
use polymeter_store::reader::{Access, JobFilter, JobRow, Read, Rollup, SeriesOwner, SeriesRow, SeriesScope};
use serde_json::{Value, json};

use super::parameters::{METRICS, check_number, now_ns};
use super::parts::HOUR_NS;
use super::series::{series_of_job, series_of_nodes};
use crate::answer::{Chunks, Failure, Format, Problem, csv_field, labels, micros, number};
use crate::limits;
use crate::live::is_selected;
use crate::request::{Arguments, Endpoint, Kind, Parameter, TABLE};

/// Default time of a query of nodes.
const NODES_NS: i64 = 300_000_000_000;

const COLUMNS: [&str; 5] = ["timestamp", "device_id", "metric_id", "value", "labels"];

/// Form of times, except that a month may have more than 28 days.
const TIME: &str = concat!(
    r"^([0-9]{1,11}(\.[0-9]{1,6})?|(197[1-9]|19[89][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])",
    r"([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?)?)$"
);

pub(super) static KWOLLECT: Endpoint = Endpoint {
    path: "/metrics",
    id: "kwollect_metrics",
    summary: "The samples of a job, and of its nodes meanwhile, or of nodes, as Kwollect answers: by series, and then by time.",
    parameters: &[
        Parameter::query("job_id", Kind::Text, "The scheduler's id of a job."),
        Parameter::query(
            "nodes",
            Kind::Text,
            "Nodes, separated by commas. Without a job: their own series, for administrators.",
        ),
        Parameter::query("devices", Kind::Text, "The same as `nodes`."),
        METRICS,
        Parameter::query(
            "start_time",
            Kind::Formed(TIME),
            "The begin: seconds since the epoch, or a date and time as in RFC 3339.",
        ),
        Parameter::query("end_time", Kind::Formed(TIME), "The end, in the same forms."),
        Parameter::query(
            "summary",
            Kind::Choice(&["true", "false"]),
            "`true`: one value a minute, of counters the greatest, of others the mean.",
        ),
    ],
    formats: TABLE,
    answer: || {
        json!({"type": "array", "items": {
            "type": "object",
            "required": COLUMNS,
            "additionalProperties": false,
            "properties": {
                "timestamp": {"type": "string", "format": "date-time"}, "device_id": {"type": "string"},
                "metric_id": {"type": "string"}, "value": {"type": ["number", "null"]},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }})
    },
    body: None,
    handler: |call| {
        Box::pin(async move {
            let request = Request::parse(&call.arguments)?;
            call.stream(move |reader, access, chunks| {
                let jobs = request.jobs(reader)?;
                let mut out = Output::begin(chunks)?;
                // One job after another: the guard remembers the series of one.
                for job in &jobs {
                    let mut sources = Vec::new();
                    request.add_job(reader, &access, job, &mut sources)?;
                    sources.iter().try_for_each(|source| request.write(reader, source, &mut out))?;
                }
                let sources = request.nodes(reader)?;
                sources.iter().try_for_each(|source| request.write(reader, source, &mut out))?;
                out.end()
            })
            .await
        })
    },
};

struct Request {
    job_id: Option<String>,
    /// Empty for any.
    nodes: Vec<String>,
    arguments: Arguments,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    is_summary: bool,
}

/// Series with a common owner, and the time that the answer has of them.
struct Source {
    of: SeriesOwner,
    rows: BTreeMap<i64, SeriesRow>,
    span_ns: Range<i64>,
}

impl Request {
    fn parse(arguments: &Arguments) -> Result<Self, Problem> {
        let time_ns = |name: &str| {
            let time = arguments.text(name).map(|text| {
                let expected = "expected seconds since the epoch, or a time such as 2026-11-22T14:30:00Z";
                time_us(text).ok_or_else(|| Problem::invalid(name, expected))
            });
            Ok::<_, Problem>(time.transpose()?.map(|time_us| time_us.saturating_mul(1000)))
        };
        let listed = ["nodes", "devices"].into_iter().filter_map(|name| arguments.text(name));
        let nodes = listed.flat_map(|text| text.split(',')).map(str::trim);
        let nodes: Vec<String> = nodes.filter(|node| !node.is_empty()).map(str::to_owned).collect();
        if nodes.len() > limits::QUERY_NODES {
            return Err(Problem::invalid("nodes", format!("expected at most {} nodes", limits::QUERY_NODES)));
        }
        let job_id = arguments.owned("job_id");
        if job_id.is_none() && nodes.is_empty() {
            return Err(Problem::invalid("job_id", "give `job_id`, `nodes` or `devices`"));
        }
        let is_summary = arguments.text("summary") == Some("true");
        let (start_ns, end_ns) = (time_ns("start_time")?, time_ns("end_time")?);
        Ok(Self { job_id, nodes, arguments: arguments.clone(), start_ns, end_ns, is_summary })
    }

    fn jobs(&self, reader: &mut dyn Read) -> Result<Vec<JobRow>, Failure> {
        let Some(job_id) = &self.job_id else { return Ok(Vec::new()) };
        let filter =
            JobFilter { job_id: Some(job_id.clone()), limit: limits::QUERY_JOBS, ..JobFilter::default() };
        Ok(reader.jobs(&filter)?)
    }

    /// Series of the nodes that a query without a job is about.
    fn nodes(&self, reader: &mut dyn Read) -> Result<Vec<Source>, Failure> {
        let mut sources = Vec::new();
        if self.job_id.is_some() {
            return Ok(sources);
        }
        let end_ns = self.end_ns.or_else(|| Some(self.start_ns?.saturating_add(NODES_NS)));
        let end_ns = end_ns.unwrap_or_else(now_ns);
        let span_ns = self.start_ns.unwrap_or(end_ns.saturating_sub(NODES_NS))..end_ns.saturating_add(1000);
        for node in &self.nodes {
            let rows = reader.series(SeriesScope::Node(node))?;
            self.add(SeriesOwner::Node(node.clone()), rows, span_ns.clone(), &mut sources)?;
        }
        Ok(sources)
    }

    /// Adds the series of a job, and those of its nodes while it ran.
    fn add_job(
        &self,
        reader: &mut dyn Read,
        access: &Access,
        job: &JobRow,
        sources: &mut Vec<Source>,
    ) -> Result<(), Failure> {
        let key = job.job_key;
        let ended_ns = job.ended_ns.unwrap_or(i64::MAX);
        let (first_ns, last_ns) = (job.started_ns.saturating_sub(HOUR_NS), ended_ns.saturating_add(HOUR_NS));
        let rows = series_of_job(reader, key, self.arguments.selectors(METRICS.name))?;
        self.add(SeriesOwner::Job(key), rows, self.within(first_ns, last_ns), sources)?;
        let rows = series_of_nodes(reader, access, key, self.arguments.selectors(METRICS.name))?;
        self.add(SeriesOwner::NodesOf(key), rows, self.within(job.started_ns, ended_ns), sources)
    }

    /// Bounds a time by that of the query.
    fn within(&self, first_ns: i64, last_ns: i64) -> Range<i64> {
        let start_ns = self.start_ns.unwrap_or(first_ns).max(first_ns).max(0);
        start_ns..self.end_ns.unwrap_or(last_ns).min(last_ns).saturating_add(1000)
    }

    fn add(
        &self,
        of: SeriesOwner,
        rows: Vec<SeriesRow>,
        span_ns: Range<i64>,
        sources: &mut Vec<Source>,
    ) -> Result<(), Failure> {
        let selectors = self.arguments.selectors(METRICS.name);
        let rows = rows.into_iter().filter(|row| {
            (self.nodes.is_empty() || self.nodes.contains(&row.node)) && is_selected(&row.metric, selectors)
        });
        let rows: BTreeMap<i64, SeriesRow> = rows.map(|row| (row.series_id, row)).collect();
        let all = rows.len() + sources.iter().map(|source| source.rows.len()).sum::<usize>();
        check_number(all, limits::SERIES, &METRICS)?;
        if !rows.is_empty() && span_ns.start < span_ns.end {
            sources.push(Source { of, rows, span_ns });
        }
        Ok(())
    }

    fn write(&self, reader: &mut dyn Read, source: &Source, out: &mut Output<'_>) -> Result<(), Failure> {
        let Source { of, rows, span_ns } = source;
        let ids: Vec<i64> = rows.keys().copied().collect();
        let mut current: Option<(&SeriesRow, Value)> = None;
        let mut write = |id: i64, time_ns: i64, value: fn(&SeriesRow, f64, f64) -> f64, of: (f64, f64)| {
            if current.as_ref().is_none_or(|(row, _)| row.series_id != id) {
                current = rows.get(&id).map(|row| (row, labels(row)));
            }
            match &current {
                Some((row, labels)) => out.row(row, labels, micros(time_ns), value(row, of.0, of.1)),
                None => Ok(()),
            }
        };
        if self.is_summary {
            return reader.buckets(Rollup::Minute, SeriesScope::from(of), &ids, span_ns, |bucket| {
                write(
                    bucket.series_id,
                    bucket.time_ns,
                    |row: &SeriesRow, max, mean| if row.kind == "counter" { max } else { mean },
                    (bucket.max, bucket.mean),
                )
            });
        }
        reader.samples(SeriesScope::from(of), &ids, span_ns, |sample| {
            write(sample.series_id, sample.time_ns, |_, value, _| value, (sample.value, 0.0))
        })
    }
}

struct Output<'a> {
    chunks: &'a mut Chunks,
    is_first: bool,
}

impl<'a> Output<'a> {
    fn begin(chunks: &'a mut Chunks) -> Result<Self, Failure> {
        let is_csv = chunks.format == Format::Csv;
        let head = if is_csv { format!("{}\r\n", COLUMNS.join(",")) } else { "[".to_owned() };
        chunks.write(head.as_bytes())?;
        Ok(Self { chunks, is_first: true })
    }

    fn row(&mut self, row: &SeriesRow, labels: &Value, time_us: i64, value: f64) -> Result<(), Failure> {
        let fields =
            [json!(rfc3339(time_us)), json!(row.node), json!(row.metric), number(value), labels.clone()];
        if self.chunks.format == Format::Csv {
            let fields = fields.each_ref().map(csv_field);
            return self.chunks.write(format!("{}\r\n", fields.join(",")).as_bytes());
        }
        let object: serde_json::Map<String, Value> =
            COLUMNS.into_iter().map(str::to_owned).zip(fields).collect();
        let separator = if std::mem::take(&mut self.is_first) { "" } else { "," };
        self.chunks.write(format!("{separator}{}", Value::Object(object)).as_bytes())
    }

    fn end(self) -> Result<(), Failure> {
        if self.chunks.format == Format::Csv { Ok(()) } else { self.chunks.write(b"]") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Request, u16> {
        let arguments = Arguments::parse(KWOLLECT.parameters, [], Some(query)).map_err(|_problem| 400_u16)?;
        Request::parse(&arguments).map_err(|problem| problem.status().as_u16())
    }

    #[test]
    fn queries_are_those_of_kwollect() {
        let request =
            parse("job_id=42&metrics=cpu.usage,node.load1&start_time=1796000000&summary=true").unwrap();
        assert_eq!((request.job_id.as_deref(), request.is_summary), (Some("42"), true));
        assert_eq!(request.start_ns, Some(1_796_000_000_000_000_000));
        let request = parse("nodes=n1,%20n2&devices=n3&end_time=2026-11-22T14:30:00Z").unwrap();
        assert_eq!(request.nodes, ["n1", "n2", "n3"]);
        assert!(request.end_ns.is_some());
        for wrong in
            ["", "nodes=,", "job_id=1&start_time=soon", "job_id=1&summary=maybe", "job_id=1&metrics=%20"]
        {
            assert_eq!(parse(wrong).map(|_| ()), Err(400), "{wrong}");
        }
    }

    #[test]
    fn the_time_is_limited_to_that_of_the_job() {
        let within = |query: &str| parse(query).unwrap().within(5 * HOUR_NS, 7 * HOUR_NS);
        assert_eq!(within("job_id=1"), 5 * HOUR_NS..7 * HOUR_NS + 1000);
        assert_eq!(within("job_id=1&start_time=0&end_time=21600"), 5 * HOUR_NS..6 * HOUR_NS + 1000);
    }
}
