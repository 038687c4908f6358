//! Samples of a job's series: as they are stored, or in equal parts of the time.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_analysis::downsample::Part;
use polymeter_proto::catalogue::derived;
use polymeter_proto::units;
use polymeter_samples_file::SamplesOf;
use polymeter_store::reader::{
    Access, Read, Rollup, SampleRow, SampleSet, SampleWindow, SeriesOwner, SeriesRow, SeriesScope,
};
use serde_json::{Value, json};

use super::parameters::{FROM_US, KEY, METRIC, NODE, NODE_NAME, OF, SERIES_IDS, UNTIL_US, check_number};
use super::parts::{self, POINTS, Wanted};
use super::samples_parquet;
use super::series::{owner, wanted_series};
use crate::answer::{Chunks, Failure, Format, Problem, csv_field, labels, micros, number, rate};
use crate::limits;
use crate::request::{Answer, Arguments, Call, Endpoint, Kind, Parameter};

const SET: Parameter = Parameter::query(
    "set",
    Kind::Choice(&["plan", "kept", "all"]),
    "`plan`, the default: the samples of the sampling plan. `kept`: those that rings kept. `all`: both, one for each time. With \
        `points`, what is read from samples has all.",
);

pub(super) static SAMPLES: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/samples",
    id: "samples",
    summary: "The samples of a job's series. With `points`: the range and the mean in equal parts of the time, counters as rates, from \
        the coarsest rollup that suffices. A derived metric has no samples: its inputs have, and `course` computes it.",
    parameters: &[KEY, METRIC, NODE, OF, SERIES_IDS, FROM_US, UNTIL_US, POINTS, SET],
    formats: &[Format::Json, Format::Csv, Format::Parquet],
    answer: schema,
    body: None,
    handler: answer,
};

pub(super) static NODE_SAMPLES: Endpoint = Endpoint {
    path: "/api/v1/nodes/{name}/samples",
    id: "node_samples",
    summary: "The samples of the series of a node itself, for administrators, as those of a job; by default of the last hour.",
    parameters: &[NODE_NAME, METRIC, SERIES_IDS, FROM_US, UNTIL_US, POINTS],
    ..SAMPLES
};

fn answer(call: Call) -> Answer {
    let arguments = call.arguments.clone();
    Box::pin(call.stream(move |reader, access, chunks| {
        let request = Request::new(reader, &access, &arguments)?;
        match (request.points, chunks.format) {
            (Some(_), Format::Parquet) => {
                Err(Problem::invalid("format", "Parquet has samples as they are stored, without `points`")
                    .into())
            }
            (None, Format::Parquet) => request.parquet(reader, chunks),
            (None, Format::Json | Format::Csv) => request.raw(reader, chunks),
            (Some(points), Format::Json | Format::Csv) => request.parts(reader, points, chunks),
            // The endpoint does not offer them.
            (_, Format::Events) => Err(Problem::internal().into()),
        }
    }))
}

fn schema() -> Value {
    let integers = json!({"type": "array", "items": {"type": "integer"}});
    let numbers = json!({"type": "array", "items": {"type": ["number", "null"]}});
    json!({
        "type": "object",
        "required": ["from_us", "until_us", "series"],
        "properties": {
            "from_us": {"type": "integer"},
            "until_us": {"type": "integer"},
            "part_s": {"type": "number", "description": "The length of the parts."},
            "rollup_s": {"type": ["number", "null"], "description": "The length of the rollup's intervals; none for samples."},
            "series": {"type": "array", "items": {
                "type": "object",
                "required": ["id", "node", "metric", "unit", "kind", "labels", "time_us"],
                "properties": {
                    "id": {"type": "integer"}, "node": {"type": "string"}, "metric": {"type": "string"},
                    "unit": {"type": "string"}, "kind": {"type": "string"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "time_us": integers, "value": numbers, "count": integers, "min": numbers, "mean": numbers, "max": numbers,
                },
            }},
        },
    })
}

struct Request {
    of: SeriesOwner,
    /// Job of the series; none for those of nodes.
    job_id: Option<String>,
    /// Finest rollup that has all of the job, if its samples are not complete.
    left: Option<Rollup>,
    has_few: bool,
    rows: BTreeMap<i64, SeriesRow>,
    span_ns: Range<i64>,
    points: Option<i64>,
    set: SampleSet,
}

impl Request {
    fn new(reader: &mut dyn Read, access: &Access, arguments: &Arguments) -> Result<Self, Failure> {
        let (of, job) = owner(reader, access, arguments)?;
        refuse_derived(arguments)?;
        let rows = wanted_series(reader, access, &of, arguments)?;
        let rows: BTreeMap<i64, SeriesRow> = rows.into_iter().map(|row| (row.series_id, row)).collect();
        check_number(rows.len(), limits::SERIES, &METRIC)?;
        let span_ns = parts::span_ns(arguments, job.as_ref())?;
        let points = arguments.integer(POINTS.name);
        let all = points.map_or(0, |points| points.unsigned_abs().saturating_mul(rows.len() as u64));
        if all > limits::ALL_POINTS {
            let detail = format!("{} series with as many points are too many; ask for fewer", rows.len());
            return Err(Problem::invalid("points", detail).into());
        }
        let set = match arguments.text(SET.name) {
            Some("kept") => SampleSet::Kept,
            Some("all") => SampleSet::All,
            _ => SampleSet::Plan,
        };
        let is_of_job = matches!(of, SeriesOwner::Job(_));
        let (left, has_few) = match (&job, points) {
            (Some(job), Some(_)) => {
                (reader.finest_rollup(job)?, is_of_job && parts::has_few_samples(reader, job)?)
            }
            (Some(_) | None, _) => (None, false),
        };
        let job_id = job.filter(|_| is_of_job).map(|job| job.job_id);
        Ok(Self { of, job_id, left, has_few, rows, span_ns, points, set })
    }

    fn parquet(&self, reader: &mut dyn Read, chunks: &mut Chunks) -> Result<(), Failure> {
        let of = SeriesScope::from(&self.of);
        let of = SamplesOf { set: self.set, of, job_id: self.job_id.as_deref() };
        samples_parquet::write(reader, of, &self.rows, &self.span_ns, chunks)
    }

    /// Writes samples as they are stored.
    fn raw(&self, reader: &mut dyn Read, chunks: &mut Chunks) -> Result<(), Failure> {
        let mut out = Output::begin(self, chunks, None)?;
        let mut piece: Vec<SampleRow> = Vec::new();
        let mut current: Option<&SeriesRow> = None;
        let of = SeriesScope::from(&self.of);
        let ids: Vec<i64> = self.rows.keys().copied().collect();
        reader.samples_of_set(self.set, of, &ids, &self.span_ns, |sample| {
            let is_other = current.is_none_or(|row| row.series_id != sample.series_id);
            // A long series is written in several pieces, so that it is not held in memory.
            if is_other || piece.len() >= PIECE_SAMPLES {
                if let Some(row) = current {
                    out.samples(row, &mut piece)?;
                }
                current = self.rows.get(&sample.series_id);
            }
            piece.push(sample);
            Ok::<_, Failure>(())
        })?;
        if let Some(row) = current {
            out.samples(row, &mut piece)?;
        }
        out.end()
    }

    fn parts(&self, reader: &mut dyn Read, points: i64, chunks: &mut Chunks) -> Result<(), Failure> {
        let width_ns = parts::width_ns(&self.span_ns, points);
        let sufficient = parts::rollup(width_ns, self.left, self.has_few);
        let rollup = parts::finest(sufficient, self.left, &self.span_ns, self.rows.len());
        let mut out = Output::begin(self, chunks, Some((width_ns, rollup)))?;
        let (of, span_ns) = (SeriesScope::from(&self.of), self.span_ns.clone());
        let wanted = Wanted { of, rows: &self.rows, span_ns, width_ns, rollup };
        wanted.read(reader, |row, parts| out.parts(row, parts))?;
        out.end()
    }
}

/// Refuses metrics that are not sampled, but computed from others.
fn refuse_derived(arguments: &Arguments) -> Result<(), Problem> {
    let named = arguments.selectors(METRIC.name).into_iter().flatten();
    for selector in named.filter(|selector| selector.is_exact()) {
        if let Some(derived) = derived::find(selector.as_str()) {
            let inputs: Vec<&str> = derived.inputs_of_all().collect();
            let detail = format!(
                "{selector} has no samples: it is computed from other metrics ({}); ask for them, or for the course of {selector}",
                inputs.join(", ")
            );
            return Err(Problem::invalid(METRIC.name, detail));
        }
    }
    Ok(())
}

/// Samples of one series that are held in memory.
const PIECE_SAMPLES: usize = 10_000;

struct Output<'a> {
    chunks: &'a mut Chunks,
    is_first: bool,
}

impl<'a> Output<'a> {
    fn begin(
        request: &Request,
        chunks: &'a mut Chunks,
        parts: Option<(i64, Option<Rollup>)>,
    ) -> Result<Self, Failure> {
        let (from_us, until_us) = (micros(request.span_ns.start), micros(request.span_ns.end));
        let text = match (chunks.format, parts) {
            (Format::Json | Format::Events, None) => {
                format!("{{\"from_us\":{from_us},\"until_us\":{until_us},\"series\":[")
            }
            (Format::Json | Format::Events, Some((width_ns, rollup))) => {
                let seconds = |ns| number(units::seconds_between(0, ns));
                let rollup_s = rollup.map_or(Value::Null, |rollup| seconds(rollup.length_ns()));
                let part_s = seconds(width_ns);
                format!(
                    "{{\"from_us\":{from_us},\"until_us\":{until_us},\"part_s\":{part_s},\"rollup_s\":{rollup_s},\"series\":["
                )
            }
            (Format::Csv, None) => "time_us,series,node,metric,unit,labels,value\r\n".to_owned(),
            (Format::Parquet, _) => String::new(),
            (Format::Csv, Some(_)) => {
                "time_us,series,node,metric,unit,labels,count,min,mean,max\r\n".to_owned()
            }
        };
        chunks.write(text.as_bytes())?;
        Ok(Self { chunks, is_first: true })
    }

    /// Writes rows and clears them. In JSON the columns of windows are there if one of the rows is a window.
    fn samples(&mut self, row: &SeriesRow, piece: &mut Vec<SampleRow>) -> Result<(), Failure> {
        let piece = std::mem::take(piece);
        if piece.is_empty() {
            return Ok(());
        }
        if self.chunks.format == Format::Json {
            let column = |value: fn(&SampleRow) -> Value| Value::Array(piece.iter().map(value).collect());
            let mut columns = json!({
                "time_us": column(|sample| json!(micros(sample.time_ns))),
                "value": column(|sample| number(sample.value)),
            });
            if let Some(columns) = columns.as_object_mut().filter(|_| piece.iter().any(is_window)) {
                columns.insert("count".to_owned(), column(|sample| json!(sample.count())));
                columns.insert("min".to_owned(), column(|sample| of_window(sample, |window| window.min)));
                columns.insert("max".to_owned(), column(|sample| of_window(sample, |window| window.max)));
                columns.insert("sum".to_owned(), column(|sample| of_window(sample, |window| window.sum)));
            }
            return self.series(row, &row.unit, &columns);
        }
        let facts = csv_facts(row, &row.unit);
        for sample in piece {
            let (time_us, value) = (micros(sample.time_ns), csv_field(&number(sample.value)));
            self.chunks.write(format!("{time_us},{facts},{value}\r\n").as_bytes())?;
        }
        Ok(())
    }

    fn parts(&mut self, row: &SeriesRow, parts: &[Part]) -> Result<(), Failure> {
        if parts.is_empty() {
            return Ok(());
        }
        let unit = rate(row).map_or(row.unit.as_str(), |(unit, _)| unit);
        if self.chunks.format == Format::Json {
            let column = |value: fn(&Part) -> Value| Value::Array(parts.iter().map(value).collect());
            let columns = json!({
                "time_us": column(|part| json!(micros(part.time_ns))),
                "count": column(|part| json!(part.count)),
                "min": column(|part| number(part.min)),
                "mean": column(|part| number(part.mean)),
                "max": column(|part| number(part.max)),
            });
            return self.series(row, unit, &columns);
        }
        let facts = csv_facts(row, unit);
        for Part { time_ns, count, min, max, mean } in parts {
            let [min, mean, max] = [min, mean, max].map(|value| csv_field(&number(*value)));
            let line = format!("{},{facts},{count},{min},{mean},{max}\r\n", micros(*time_ns));
            self.chunks.write(line.as_bytes())?;
        }
        Ok(())
    }

    fn series(&mut self, row: &SeriesRow, unit: &str, columns: &Value) -> Result<(), Failure> {
        let mut object = json!({
            "id": row.series_id, "node": row.node, "metric": row.metric, "unit": unit, "kind": row.kind, "labels": labels(row),
        });
        if let (Some(object), Some(columns)) = (object.as_object_mut(), columns.as_object()) {
            object.extend(columns.clone());
        }
        let separator = if std::mem::take(&mut self.is_first) { "" } else { "," };
        self.chunks.write(format!("{separator}{object}").as_bytes())
    }

    fn end(self) -> Result<(), Failure> {
        if self.chunks.format == Format::Json { self.chunks.write(b"]}") } else { Ok(()) }
    }
}

const fn is_window(sample: &SampleRow) -> bool {
    sample.window.is_some()
}

/// Returns a number of a window; null for a sample.
fn of_window(sample: &SampleRow, of: fn(&SampleWindow) -> f64) -> Value {
    sample.window.as_ref().map_or(Value::Null, |window| number(of(window)))
}

/// Fields of CSV that are the same for all rows of a series.
fn csv_facts(row: &SeriesRow, unit: &str) -> String {
    let fields = [json!(row.series_id), json!(row.node), json!(row.metric), json!(unit), labels(row)];
    fields.iter().map(csv_field).collect::<Vec<_>>().join(",")
}
