//! `polymeter export`: writes the samples of a job into one file.

mod derived;
mod histograms;
mod output;
mod stacks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap_complete::engine::ArgValueCompleter;
use polymeter_analysis::gather::in_series;
use polymeter_analysis::model::SeriesReport;
use polymeter_client::completion::metrics;
use polymeter_proto::catalogue::derived::find as find_derived;
use polymeter_proto::catalogue::is_ring_source;
use polymeter_proto::name::Selector;
use polymeter_proto::series::{DEVICE_METRICS, Labels, Processors};
use polymeter_proto::suggest::nearest;
use polymeter_proto::units::counted;
use polymeter_samples_file::{
    Encoder, Format, SamplesError, SamplesOf, add_samples, write_file, written_series,
};
use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, LedgerRow, Read, SampleSet, SeriesRow, SeriesScope};
use serde::Serialize;
use serde_json::json;

use crate::client::job_completion;
use crate::client::read_source::ReadSource;
use crate::failure::Failure;
use crate::output::printable::{printable, printable_name};
use crate::output::progress::Progress;
use crate::output::terminal;
use crate::report::choice::{ChosenJob, choose};
use crate::store_failure::cannot_read;
use output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArguments {
    /// The job's id, also as schedulers print it: 4009_1, 4009+1, or 4009.batch for a step; of several jobs
    /// with the same id the last.
    #[arg(value_name = "JOB", add = ArgValueCompleter::new(job_completion::stored))]
    job: String,

    #[command(flatten)]
    source: ReadSource,

    /// The format. Default: that of the output's extension, else parquet.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// The file; - for the standard output. Default: job-ID with the format's extension.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace an existing file.
    #[arg(long)]
    force: bool,

    /// Export these metrics only, such as cpu.*; may be repeated.
    #[arg(long = "metric", value_name = "METRIC", add = ArgValueCompleter::new(metrics::metric))]
    metrics: Vec<Selector>,

    /// Export series of these nodes only; may be repeated.
    #[arg(long = "node", value_name = "NODE")]
    nodes: Vec<String>,

    /// Also export the series of the job's nodes while it ran there, which concern all jobs of a node.
    #[arg(long)]
    with_nodes: bool,

    /// Also export the series of devices outside the nodes, such as wattmeters and switches, that serve the
    /// job's nodes, while it ran there.
    #[arg(long)]
    with_devices: bool,

    /// Also export derived metrics, such as perf.ipc, whose inputs were sampled: the values that the report
    /// has, at most 1200 of each series, with the label derived=true. `polymeter store import` leaves them
    /// out.
    #[arg(long)]
    derived: bool,

    /// Export the samples of call stacks instead: a row for each second, process and stack, whose value is
    /// the number of samples, and whose labels have the process, the period and the names of the functions.
    #[arg(long, conflicts_with_all = ["with_nodes", "with_devices", "derived"])]
    stacks: bool,

    /// Export the samples of kept intervals instead: those that rings held in memory until a trigger or a
    /// user wanted them.
    #[arg(long, conflicts_with_all = ["with_nodes", "with_devices", "derived", "stacks"])]
    kept: bool,

    /// Export the histograms of windows instead, over the whole job: a row for each series and bucket, whose
    /// value is the number of samples, and whose label `least` is the smallest value of the bucket, of a
    /// counter a rate per second.
    #[arg(long, conflicts_with_all = ["with_nodes", "derived", "stacks", "kept"])]
    histograms: bool,

    /// Print JSON: the file, its format, the number of samples; of call stacks and
    /// histograms, that of rows.
    #[arg(long)]
    json: bool,
}

/// Key of a property of the file.
pub(crate) const DEVICES: &str = "polymeter.devices";

/// Grouped by node and by the label that names the device, `device=8:0`.
pub(crate) type Roles = BTreeMap<String, BTreeMap<String, String>>;

impl ExportArguments {
    fn stacks_wanted(&self) -> stacks::Wanted<'_> {
        stacks::Wanted { metrics: &self.metrics, nodes: &self.nodes }
    }

    fn selects(&self, row: &SeriesRow, step: Option<&str>) -> bool {
        let has_step = step.is_none_or(|step| row.labels.get("step") == Some(step));
        has_step && self.names(&row.metric, &row.node)
    }

    fn names(&self, metric: &str, node: &String) -> bool {
        let has_metric = self.metrics.is_empty() || self.metrics.iter().any(|wanted| wanted.matches(metric));
        has_metric && (self.nodes.is_empty() || self.nodes.contains(node))
    }
}

#[derive(Debug, Serialize)]
struct Exported<'a> {
    job: &'a str,
    file: Option<String>,
    format: &'a str,
    samples: u64,
}

pub(crate) fn execute(arguments: &ExportArguments) -> Result<(), Failure> {
    let mut source = arguments.source.open_for(Some(&arguments.job))?;
    if arguments.with_nodes && source.hides_nodes() {
        let message = "cannot export the series of nodes: the collector shows them to administrators only; omit --with-nodes";
        return Err(Failure::Failed(message.to_owned()));
    }
    let chosen = choose(&mut source, Some(&arguments.job))?;
    let (job, reader) = (&chosen.job, source.reader.as_mut());
    let derived = if arguments.derived { derived_series(arguments, reader, &chosen)? } else { Vec::new() };
    let mut buckets = Vec::new();
    let stored = if arguments.stacks {
        stacks::check(arguments.stacks_wanted(), reader, &chosen)?
    } else if arguments.histograms {
        let is_wanted = |row: &SeriesRow| arguments.selects(row, chosen.step.as_deref());
        buckets = histograms::buckets(reader, job, is_wanted)?;
        buckets.len() as u64
    } else {
        check_chosen(arguments, reader, &chosen, &derived)?;
        let ledger = reader.ledger(job.job_key).map_err(cannot_read)?;
        if arguments.kept { check_kept(job, &ledger)? } else { in_series(&ledger) }
    };
    let mut output =
        Output::open(arguments.output.as_deref(), arguments.format, &job.job_id, arguments.force)?;
    let progress = Progress::new(stored);
    let properties = properties(arguments, reader, job).map_err(cannot_read)?;
    let writer = output.format().writer(output.take_file()?, properties);
    let written = writer.map_err(SamplesError::from).and_then(|writer| {
        write_file(writer, |encoder| {
            if arguments.stacks {
                stacks::fill(arguments.stacks_wanted(), reader, job, encoder, &progress)
            } else if arguments.histograms {
                histograms::fill(&buckets, job, encoder)
            } else {
                fill(arguments, reader, &chosen, encoder, &progress)?;
                derived::fill(&derived, job, encoder)
            }
        })
    });
    progress.finish();
    let samples = match written {
        Ok(samples) => samples,
        // As after `head`.
        Err(SamplesError::Write(error)) if error.is_broken_pipe() && output.is_stdout() => return Ok(()),
        Err(SamplesError::Store(error)) => return Err(cannot_read(error)),
        Err(error) => {
            return Err(Failure::because(&format!("cannot write {}", output.name()), &error));
        }
    };
    output.keep()?;
    print(arguments, job, &output, samples)
}

/// Those that the arguments select. Without any, a note says so.
fn derived_series(
    arguments: &ExportArguments,
    reader: &mut dyn Read,
    chosen: &ChosenJob,
) -> Result<Vec<SeriesReport>, Failure> {
    let mut series = derived::series(reader, chosen)?;
    series.retain(|series| arguments.names(&series.metric, &series.node));
    if series.is_empty() {
        terminal::print_error(
            "polymeter: note: no derived metric is known; `polymeter report --show all` says why\n",
        );
    }
    Ok(series)
}

/// Returns the number of kept samples. Refuses a job without any.
fn check_kept(job: &JobRow, ledger: &[LedgerRow]) -> Result<u64, Failure> {
    let of_rings = ledger.iter().filter(|row| is_ring_source(&row.source));
    let kept = of_rings.map(|row| row.stored).sum();
    if kept == 0 {
        let job_id = printable_name(&job.job_id);
        return Err(Failure::Failed(format!(
            "cannot export kept samples: no ring kept any of job {job_id}; omit --kept"
        )));
    }
    Ok(kept)
}

fn no_series(job: &JobRow, what: &str, similar: Option<&str>, all: &str) -> Failure {
    let remedy = similar.map_or_else(|| all.to_owned(), |similar| format!("did you mean `{similar}`?"));
    let (job_id, remedy) = (printable_name(&job.job_id), printable(&remedy));
    Failure::Failed(format!("cannot export {}: job {job_id} has no series of it; {remedy}", printable(what)))
}

/// Refuses metrics and nodes of which the job has no series: the file would lack them without a word.
fn check_chosen(
    arguments: &ExportArguments,
    reader: &mut dyn Read,
    ChosenJob { job, step, .. }: &ChosenJob,
    derived: &[SeriesReport],
) -> Result<(), Failure> {
    if arguments.metrics.is_empty() && arguments.nodes.is_empty() {
        return Ok(());
    }
    let mut rows = reader.series(SeriesScope::Job(job.job_key)).map_err(cannot_read)?;
    rows.retain(|row| step.as_deref().is_none_or(|step| row.labels.get("step") == Some(step)));
    for node in job.nodes.iter().filter(|_| arguments.with_nodes) {
        rows.extend(without_devices(reader.series(SeriesScope::Node(node)).map_err(cannot_read)?));
    }
    if arguments.with_devices {
        rows.extend(reader.device_series(job.job_key).map_err(cannot_read)?);
    }
    let has_series = |metric: &Selector| {
        let mut derived = derived.iter();
        rows.iter().any(|row| metric.matches(&row.metric))
            || derived.any(|series| metric.matches(&series.metric))
    };
    let has_any = arguments.metrics.iter().any(has_series);
    for metric in &arguments.metrics {
        // Of several patterns some may be those of other jobs.
        if !has_series(metric) && (metric.is_exact() || !has_any) {
            let names = rows.iter().map(|row| row.metric.as_str());
            if let Some(inputs) = inputs_of(metric, names.clone()) {
                let remedy = if inputs.is_empty() {
                    "none of these was sampled".to_owned()
                } else if arguments.derived {
                    "`polymeter report --show all` says why it is unknown".to_owned()
                } else {
                    format!("add --derived, or export {inputs}")
                };
                return Err(Failure::Failed(format!(
                    "cannot export {metric}: it is computed from other metrics; {remedy}"
                )));
            }
            let all = "`polymeter report --show all` lists its metrics";
            return Err(no_series(job, metric.as_str(), nearest(metric.as_str(), names), all));
        }
    }
    for node in &arguments.nodes {
        if !rows.iter().any(|row| row.node == *node) {
            let names = rows.iter().map(|row| row.node.as_str());
            return Err(no_series(job, node, nearest(node, names), "`polymeter report` lists its nodes"));
        }
    }
    Ok(())
}

/// Those of the names that are inputs of the derived metric that is selected; none for another metric.
fn inputs_of<'a>(metric: &Selector, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let derived = find_derived(metric.as_str())?;
    let inputs: BTreeSet<&str> = derived.inputs_of_all().collect();
    let sampled: BTreeSet<&str> = names.filter(|name| inputs.contains(name)).collect();
    Some(sampled.into_iter().collect::<Vec<_>>().join(", "))
}

fn fill(
    arguments: &ExportArguments,
    reader: &mut dyn Read,
    ChosenJob { job, step, .. }: &ChosenJob,
    encoder: &mut Encoder,
    progress: &Progress,
) -> Result<(), SamplesError> {
    let selected = |rows: Vec<SeriesRow>, step: Option<&str>| {
        written_series(rows.into_iter().filter(|row| arguments.selects(row, step)).collect())
    };
    let of_job = SeriesScope::Job(job.job_key);
    let mut series = selected(reader.series(of_job)?, step.as_deref());
    let show = |samples| progress.show(samples);
    let set = if arguments.kept { SampleSet::Kept } else { SampleSet::Plan };
    let wanted = SamplesOf { set, of: of_job, job_id: Some(&job.job_id) };
    add_samples(encoder, reader, wanted, &mut series, &job.sampled_ns, show)?;
    let span_ns = job.started_ns..job.ended_ns.unwrap_or(i64::MAX).saturating_add(1);
    for node in job.nodes.iter().filter(|_| arguments.with_nodes) {
        let of_node = SeriesScope::Node(node);
        let mut series = selected(without_devices(reader.series(of_node)?), None);
        let wanted = SamplesOf { set, of: of_node, job_id: None };
        add_samples(encoder, reader, wanted, &mut series, &span_ns, show)?;
    }
    if arguments.with_devices {
        let mut series = selected(reader.device_series(job.job_key)?, None);
        let wanted = SamplesOf { set, of: SeriesScope::NodesOf(job.job_key), job_id: None };
        add_samples(encoder, reader, wanted, &mut series, &span_ns, show)?;
    }
    Ok(())
}

/// Properties of the file. One of call stacks or histograms has another name for the job, so that they are
/// not imported as series.
fn properties(
    arguments: &ExportArguments,
    reader: &mut dyn Read,
    job: &JobRow,
) -> Result<Vec<(String, String)>, StoreError> {
    let described = job_properties(job, &processors(reader, job)?).to_string();
    if arguments.stacks || arguments.histograms {
        let name = if arguments.stacks { "polymeter.stacks.job" } else { "polymeter.histograms.job" };
        return Ok(vec![(name.to_owned(), described)]);
    }
    let roles = json!(roles(arguments, reader, job)?).to_string();
    Ok(vec![("polymeter.job".to_owned(), described), (DEVICES.to_owned(), roles)])
}

/// Includes those of the nodes if they are exported.
fn roles(arguments: &ExportArguments, reader: &mut dyn Read, job: &JobRow) -> Result<Roles, StoreError> {
    let of_nodes = arguments.with_nodes.then_some(SeriesScope::NodesOf(job.job_key));
    let mut roles = Roles::new();
    for of in [SeriesScope::Job(job.job_key)].into_iter().chain(of_nodes) {
        for row in reader.series(of)? {
            if let (Some(role), Some(label)) = (row.labels.role(), device_label(&row.labels)) {
                roles.entry(row.node).or_default().insert(label, role.to_string());
            }
        }
    }
    Ok(roles)
}

/// Removes the series of devices outside the nodes, which may serve other nodes.
pub(crate) fn without_devices(mut rows: Vec<SeriesRow>) -> Vec<SeriesRow> {
    rows.retain(|row| !row.metric.starts_with(DEVICE_METRICS));
    rows
}

/// `key=value`; none if no label names a device.
pub(crate) fn device_label(labels: &Labels) -> Option<String> {
    let mut pairs = labels.iter().filter(|(key, _)| ["device", "interface"].contains(key));
    pairs.next().map(|(key, value)| format!("{key}={value}"))
}

fn processors(reader: &mut dyn Read, job: &JobRow) -> Result<BTreeMap<String, Processors>, StoreError> {
    let known = reader.cpus(job.job_key)?.into_iter();
    Ok(known.map(|row| (row.node.clone(), row.processors())).collect())
}

/// Describes the job in the file.
fn job_properties(job: &JobRow, processors: &BTreeMap<String, Processors>) -> serde_json::Value {
    json!({
        "job_id": job.job_id, "display_id": job.display_id, "name": job.name, "cluster": job.cluster,
        "owner": job.owner, "owner_uid": job.owner_uid, "account": job.account, "queue": job.queue,
        "nodes": job.nodes, "node_list": job.node_list, "cores": job.cores, "gpus": job.gpus,
        "time_limit_s": job.time_limit_s, "memory_bytes": job.memory_bytes, "restarts": job.restarts,
        "started_ns": job.started_ns, "ended_ns": job.ended_ns, "state": job.state,
        "exit_code": job.exit_code, "exit_signal": job.exit_signal, "unread": job.unread, "run": job.run,
        "scheduler": job.scheduler, "processors": processors,
    })
}

fn print(arguments: &ExportArguments, job: &JobRow, output: &Output, samples: u64) -> Result<(), Failure> {
    let format = output.format().extension();
    if output.is_stdout() {
        return Ok(());
    }
    if arguments.json {
        let file = Some(output.name());
        return terminal::print_json(&Exported { job: &job.job_id, file, format, samples });
    }
    let (job_id, file) = (printable_name(&job.job_id), output.name());
    let rows = counted(samples, if arguments.stacks { "row" } else { "sample" });
    terminal::print(&format!("{rows} of job {job_id} in {file}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sampled_inputs_of_a_derived_metric_are_named() {
        let sampled = ["cpu.usage", "perf.cpu_cycles", "perf.instructions", "perf.instructions"];
        let of = |metric: &str| inputs_of(&metric.parse().unwrap(), sampled.into_iter());
        assert_eq!(of("perf.ipc").as_deref(), Some("perf.cpu_cycles, perf.instructions"));
        assert_eq!(of("perf.flops").as_deref(), Some(""));
        assert_eq!((of("cpu.usage"), of("perf.*")), (None, None));
    }
}
