//! A quantity of a job over its nodes and its time: the sum of series on each node, as lines and as rows of a
//! heat map. The answer is bounded, whatever the number of nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use polymeter_analysis::charts::{Course, Grid, HEAT_ROWS_MAX, MAIN_QUANTITIES, MainQuantity, NodeSums};
use polymeter_analysis::derived::DerivedParts;
use polymeter_proto::name::Selector;
use polymeter_proto::units;
use polymeter_store::reader::{JobRow, Read, Rollup, SeriesRow, SeriesScope};
use serde_json::{Value, json};

use super::parameters::{FROM_US, KEY, METRIC, NODE, UNTIL_US, check_number, find_job, key};
use super::parts::{self, POINTS, Wanted};
use super::series::series_of_job;
use crate::answer::{Failure, Problem, level, micros, number, rate};
use crate::limits;
use crate::live::is_selected;
use crate::request::{Arguments, Endpoint, Kind, OBJECT, Parameter};

const MINUS: Parameter =
    Parameter::query("minus", Kind::Selectors, "Metrics that are subtracted: names or globs.");

/// Parameter in place of metrics.
const QUANTITY: Parameter = Parameter::query(
    "quantity",
    Kind::Text,
    "An important quantity of jobs in place of metrics, such as `cores` or `memory`: the metrics of the job that measure it.",
);

const PARTS: Parameter = Parameter {
    help: "The number of parts of the time, at most; without it, 600, or fewer with more than 50 rows.",
    ..POINTS
};

const ROWS: Parameter = Parameter::query(
    "rows",
    Kind::Choice(&["none"]),
    "`none` leaves out the members `rows` and `means`, which are most of the answer.",
);

/// Default number of parts, and the largest of all rows together.
const USUAL_POINTS: usize = 600;
const USUAL_CELLS: usize = 30_000;

fn usual_points(nodes: usize) -> usize {
    (USUAL_CELLS / nodes.clamp(1, HEAT_ROWS_MAX)).min(USUAL_POINTS)
}

/// Units whose values are not added up over the series of a node.
const MEANS: [&str; 2] = ["percent", "celsius"];

pub(super) static COURSE: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/course",
    id: "course",
    summary: "The sum of metrics on each node of a job in equal parts of the time: over all nodes, and by groups of nodes. Counters as \
        rates; a derived metric of jobs is computed from its inputs. Series of steps and tasks count only for metrics without series of the whole job.",
    parameters: &[KEY, METRIC, MINUS, QUANTITY, NODE, FROM_US, UNTIL_US, PARTS, ROWS],
    formats: OBJECT,
    answer: schema,
    body: None,
    handler: |call| {
        let arguments = call.arguments.clone();
        Box::pin(call.object(move |reader, _| {
            let job = find_job(reader, key(&arguments))?;
            Request::new(reader, &job, &arguments)?.answer(reader)
        }))
    },
};

fn schema() -> Value {
    let numbers = json!({"type": "array", "items": {"type": ["number", "null"]}});
    let extent = json!({"type": ["number", "null"]});
    let nodes = json!({"type": "array", "items": {"type": "object", "properties": {
        "node": {"type": "string"}, "mean": {"type": "number"},
    }}});
    json!({
        "type": "object",
        "required": ["from_us", "until_us", "part_s", "unit", "low", "middle", "high", "rows", "means"],
        "properties": {
            "from_us": {"type": "integer"},
            "until_us": {"type": "integer"},
            "part_s": {"type": "number", "description": "The length of the parts."},
            "rollup_s": {"type": ["number", "null"], "description": "The length of the rollup's intervals; none for samples."},
            "unit": {"type": "string"},
            "distance": {"type": "integer", "description": "The usual distance between values, in parts."},
            "low": numbers, "middle": numbers, "high": numbers,
            "min": extent, "mean": extent, "max": extent,
            "highest": nodes, "lowest": nodes,
            "rows": {"type": "array", "items": {"type": "object", "properties": {
                "first": {"type": "string"}, "last": {"type": "string"}, "nodes": {"type": "integer"},
            }}},
            "means": {"type": "array", "items": numbers, "description": "The means of each row over its nodes."},
        },
    })
}

#[derive(Debug)]
struct Metrics {
    /// Metrics whose sum is asked for; none for all.
    added: Option<Vec<Selector>>,
    subtracted: Vec<Selector>,
}

impl Metrics {
    fn of(reader: &mut dyn Read, job: &JobRow, arguments: &Arguments) -> Result<Self, Failure> {
        let (metrics, minus) = (arguments.selectors(METRIC.name), arguments.selectors(MINUS.name));
        let Some(id) = arguments.text(QUANTITY.name) else {
            let subtracted = minus.unwrap_or_default().to_vec();
            return Ok(Self { added: metrics.map(<[Selector]>::to_vec), subtracted });
        };
        if metrics.is_some() || minus.is_some() {
            return Err(Problem::invalid(QUANTITY.name, "expected metrics or a quantity, not both").into());
        }
        let known = MAIN_QUANTITIES.iter().find(|quantity| quantity.id() == id);
        let Some(quantity) = known else {
            let ids: Vec<&str> = MAIN_QUANTITIES.iter().map(MainQuantity::id).collect();
            return Err(Problem::invalid(QUANTITY.name, format!("expected one of {}", ids.join(", "))).into());
        };
        let sampled = reader.job_metrics(job.job_key, arguments.text(NODE.name))?;
        let (added, subtracted) = quantity
            .metrics(|metric: &str| sampled.iter().any(|row| row.metric == metric))
            .unwrap_or_default();
        let selectors = |names: Vec<&str>| names.iter().filter_map(|name| name.parse().ok()).collect();
        Ok(Self { added: Some(selectors(added)), subtracted: selectors(subtracted) })
    }

    fn of_inputs(derived: &DerivedParts) -> Self {
        let inputs = derived.metrics().into_iter().filter_map(|name| name.parse().ok());
        Self { added: Some(inputs.collect()), subtracted: Vec::new() }
    }

    /// All metrics whose series are read; none for all of the job.
    fn all(&self) -> Option<Vec<Selector>> {
        Some(self.added.iter().flatten().chain(&self.subtracted).cloned().collect())
            .filter(|_| self.added.is_some())
    }
}

struct Request {
    job_key: i64,
    nodes: Vec<String>,
    rows: BTreeMap<i64, SeriesRow>,
    subtracted: HashSet<i64>,
    /// Derived metric that is asked for, without inputs.
    derived: Option<DerivedParts>,
    unit: String,
    span_ns: Range<i64>,
    width_ns: i64,
    rollup: Option<Rollup>,
    has_rows: bool,
}

impl Request {
    fn new(reader: &mut dyn Read, job: &JobRow, arguments: &Arguments) -> Result<Self, Failure> {
        let node = arguments.text(NODE.name);
        let metrics = Metrics::of(reader, job, arguments)?;
        let derived = derived_of(&metrics);
        let metrics = derived.as_ref().map_or(metrics, Metrics::of_inputs);
        let all = series_of_job(reader, job.job_key, metrics.all().as_deref())?;
        let of_node: Vec<SeriesRow> =
            all.into_iter().filter(|row| node.is_none_or(|node| node == row.node)).collect();
        let terms = terms(of_node, &metrics);
        check_number(terms.len(), limits::COURSE_SERIES, &METRIC)?;
        let unit = match &derived {
            None => common_unit(&terms)?,
            Some(derived) => derived.unit().to_owned(),
        };
        let of_series = terms.iter().map(|(row, _)| row.node.clone());
        let nodes: BTreeSet<String> = match node {
            Some(node) => BTreeSet::from([node.to_owned()]),
            None => job.nodes.iter().cloned().chain(of_series).collect(),
        };
        let span_ns = parts::span_ns(arguments, Some(job))?;
        let points = arguments
            .integer(POINTS.name)
            .unwrap_or_else(|| i64::try_from(usual_points(nodes.len())).unwrap_or(i64::MAX));
        let fitting = (limits::COURSE_CELLS / nodes.len().max(1)).max(limits::COURSE_POINTS_MIN);
        let width_ns = parts::width_ns(&span_ns, points.min(i64::try_from(fitting).unwrap_or(points)));
        let left = reader.finest_rollup(job)?;
        let (width_ns, rollup) = if parts::has_few_samples(reader, job)? {
            (width_ns, left)
        } else {
            bounded(width_ns, left, &span_ns, terms.len())
        };
        let subtracted = terms.iter().filter(|(_, is_subtracted)| *is_subtracted);
        let subtracted = subtracted.map(|(row, _)| row.series_id).collect();
        let rows = terms.into_iter().map(|(row, _)| (row.series_id, row)).collect();
        let nodes = nodes.into_iter().collect();
        let has_rows = arguments.text(ROWS.name).is_none();
        let job_key = job.job_key;
        Ok(Self { job_key, nodes, rows, subtracted, derived, unit, span_ns, width_ns, rollup, has_rows })
    }

    fn answer(&self, reader: &mut dyn Read) -> Result<Value, Failure> {
        let length_ns = self.span_ns.end.saturating_sub(self.span_ns.start);
        let count = length_ns.saturating_add(self.width_ns - 1) / self.width_ns;
        let parts = usize::try_from(count).unwrap_or_default().max(1);
        let grid = Grid { begin_ns: self.span_ns.start, part_ns: self.width_ns, parts };
        let names: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        let positions: HashMap<&str, usize> =
            names.iter().enumerate().map(|(position, name)| (*name, position)).collect();
        let mut sums = NodeSums::new(names.len(), grid);
        let wanted = Wanted {
            of: SeriesScope::Job(self.job_key),
            rows: &self.rows,
            span_ns: self.span_ns.clone(),
            width_ns: self.width_ns,
            rollup: self.rollup,
        };
        let mut derived = self.derived.clone();
        wanted.read(reader, |row, parts| {
            if let Some(derived) = &mut derived {
                derived.add(row, parts);
            } else if let Some(node) = positions.get(row.node.as_str()).filter(|_| !parts.is_empty()) {
                sums.add(*node, parts, self.subtracted.contains(&row.series_id));
            }
            Ok(())
        })?;
        for (node, parts) in derived.iter().flat_map(DerivedParts::finish) {
            if let Some(node) = positions.get(node).filter(|_| !parts.is_empty()) {
                sums.add(*node, &parts, false);
            }
        }
        Ok(self.object(&sums.finish(&names, MEANS.contains(&self.unit.as_str()))))
    }

    fn object(&self, course: &Course) -> Value {
        let Course { lines, extent, rows, heat, highest, lowest, distance } = course;
        let line = |values: &[f64]| column(values, LINE_DIGITS);
        let extent = |of: fn(&polymeter_analysis::charts::Extent) -> f64| {
            extent.as_ref().map(of).map(|value| rounded(value, EXTENT_DIGITS))
        };
        let seconds = |ns| number(units::seconds_between(0, ns));
        let (rows, means): (&[_], Vec<Value>) = if self.has_rows {
            (rows, heat.cells.chunks(heat.columns.max(1)).map(|row| column(row, CELL_DIGITS)).collect())
        } else {
            (&[], Vec::new())
        };
        json!({
            "from_us": micros(self.span_ns.start),
            "until_us": micros(self.span_ns.end),
            "part_s": seconds(self.width_ns),
            "rollup_s": self.rollup.map(|rollup| seconds(rollup.length_ns())),
            "unit": self.unit,
            "distance": distance,
            "low": line(&lines.low),
            "middle": line(&lines.middle),
            "high": line(&lines.high),
            "min": extent(|extent| extent.min),
            "mean": extent(|extent| extent.mean),
            "max": extent(|extent| extent.max),
            "highest": highest,
            "lowest": lowest,
            "rows": rows,
            "means": means,
        })
    }
}

/// Returns the derived metric that a request is for, if it names one and nothing else.
fn derived_of(metrics: &Metrics) -> Option<DerivedParts> {
    let [selector] = metrics.added.as_deref()? else { return None };
    DerivedParts::of(selector.as_str()).filter(|_| metrics.subtracted.is_empty())
}

fn common_unit(terms: &[(SeriesRow, bool)]) -> Result<String, Failure> {
    let of_series = terms.iter().map(|(row, _)| rate(row).map_or(row.unit.as_str(), |(unit, _)| unit));
    let units: BTreeSet<&str> = of_series.collect();
    if units.len() > 1 {
        return Err(Problem::invalid(METRIC.name, "the metrics have different units").into());
    }
    Ok(units.first().copied().unwrap_or_default().to_owned())
}

fn depth(row: &SeriesRow) -> u8 {
    match level(row) {
        None => 0,
        Some("step") => 1,
        Some(_) => 2,
    }
}

/// Returns the series of a request, and whether they are subtracted. Series of steps are contained in those
/// of the job, and series of tasks in those of their step: they count only for a metric without the former.
/// Devices that contain others do not count.
fn terms(mut rows: Vec<SeriesRow>, metrics: &Metrics) -> Vec<(SeriesRow, bool)> {
    let mut contained = SeriesRow::contained(&rows).into_iter();
    rows.retain(|_| !contained.next().unwrap_or_default());
    let mut depths: HashMap<String, u8> = HashMap::new();
    for row in &rows {
        let known = depths.entry(row.metric.clone()).or_insert(u8::MAX);
        *known = (*known).min(depth(row));
    }
    rows.into_iter()
        .filter(|row| depths.get(&row.metric) == Some(&depth(row)))
        .filter_map(|row| {
            let is_subtracted = is_selected(&row.metric, Some(&metrics.subtracted));
            let is_wanted = is_subtracted || is_selected(&row.metric, metrics.added.as_deref());
            is_wanted.then_some((row, is_subtracted))
        })
        .collect()
}

/// Returns a length of the parts, at least `width_ns`, and a rollup of which not too many intervals are read.
fn bounded(
    width_ns: i64,
    left: Option<Rollup>,
    span_ns: &Range<i64>,
    series: usize,
) -> (i64, Option<Rollup>) {
    const SECOND_NS: i64 = 1_000_000_000;
    let (count, series) = (series, i64::try_from(series).unwrap_or(i64::MAX));
    let mut width_ns = width_ns;
    loop {
        let rollup = parts::rollup(width_ns, left, false);
        // Many nodes rarely sample more often than once a second.
        let length_ns = rollup.map_or(SECOND_NS, Rollup::length_ns);
        let intervals = span_ns.end.saturating_sub(span_ns.start) / length_ns;
        let coarser = Rollup::ALL.into_iter().filter(|one| one.length_ns() > length_ns);
        match coarser.min_by_key(|rollup| rollup.length_ns()) {
            Some(coarser) if intervals.saturating_mul(series) > limits::COURSE_INTERVALS => {
                width_ns = width_ns.max(coarser.length_ns());
            }
            Some(_) | None => return (width_ns, parts::finest(rollup, left, span_ns, count)),
        }
    }
}

/// A chart begins at 0 or below: a line has less than a thousand pixels, and a cell one of 256 colours.
const LINE_DIGITS: usize = 4;
const CELL_DIGITS: usize = 3;
/// Figures are shown as text.
const EXTENT_DIGITS: usize = 6;

fn column(values: &[f64], digits: usize) -> Value {
    values.iter().map(|value| rounded(*value, digits)).collect()
}

/// Null for no number.
fn rounded(value: f64, digits: usize) -> Value {
    if value == 0.0 || !value.is_finite() {
        return number(value);
    }
    format!("{value:.0$e}", digits.saturating_sub(1)).parse().map_or(Value::Null, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;

    #[test]
    fn many_series_are_read_from_coarser_rollups_and_few_in_the_wanted_parts() {
        let width = |series, hours: i64| bounded(hours * HOUR_NS / 600, None, &(0..hours * HOUR_NS), series);
        assert_eq!(width(12, 24), (144_000_000_000, Some(Rollup::Minute)));
        assert_eq!(width(10, 24), (144_000_000_000, Some(Rollup::TenSeconds)), "few intervals");
        assert_eq!(width(10, 1), (6_000_000_000, None));
        assert_eq!(width(2000, 1), (60_000_000_000, Some(Rollup::Minute)));
        assert_eq!(width(500, 1), (10_000_000_000, Some(Rollup::TenSeconds)));
        assert_eq!(width(20_000, 480).1, Some(Rollup::Hour), "nothing is coarser");
    }

    #[test]
    fn numbers_have_the_digits_of_what_is_drawn() {
        for (value, digits, text) in [
            (1_234_567.0, EXTENT_DIGITS, "1234570.0"),
            (1_234_567.0, LINE_DIGITS, "1235000.0"),
            (0.723_649, CELL_DIGITS, "0.724"),
            (0.1, LINE_DIGITS, "0.1"),
            (-2.000_4, LINE_DIGITS, "-2.0"),
            (0.0, LINE_DIGITS, "0.0"),
        ] {
            assert_eq!(rounded(value, digits).to_string(), text);
        }
        assert_eq!(column(&[f64::NAN, 1.0], LINE_DIGITS), json!([null, 1.0]));
    }
}
