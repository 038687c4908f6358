//! Summary that Jobstats stores in Slurm's AdminComment, for the programs that read it. Pure.
//!
//! Its form is `JS1:` and the Base64 form of gzip-compressed JSON. Jobstats writes `JS1:None` for a job
//! without data.

use std::collections::BTreeMap;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use polymeter_proto::units::whole;
use serde::Serialize;

use crate::advice::facts::Cores;
use crate::model::{NodeReport, Report, SeriesReport};

const PREFIX: &str = "JS1:";

#[derive(Debug, Serialize)]
struct Summary<'a> {
    nodes: BTreeMap<&'a str, Node<'a>>,
    total_time: u64,
    gpus: u64,
}

/// Jobstats omits the maps of a node without GPUs.
#[derive(Debug, Serialize)]
struct Node<'a> {
    /// Cores of the job on the node, as its report counts them.
    cpus: u64,
    total_memory: u64,
    used_memory: u64,
    /// CPU time in seconds; at most that of the cores where the scheduler counts hardware threads.
    total_time: f64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    gpu_total_memory: BTreeMap<&'a str, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    gpu_used_memory: BTreeMap<&'a str, u64>,
    /// Percent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    gpu_utilization: BTreeMap<&'a str, f64>,
}

/// Contains only nodes with known CPU time, memory and cores; without any it is `JS1:None`.
pub fn summary(report: &Report) -> io::Result<String> {
    let of_job = report.series.iter().filter(|series| !series.is_of_step && !series.is_contained);
    let of_job: Vec<&SeriesReport> = of_job.collect();
    let cores = Cores::of(report, &of_job);
    let mut gpus: BTreeMap<&str, Vec<&SeriesReport>> = BTreeMap::new();
    for series in of_job.iter().filter(|series| series.metric.starts_with("gpu.")) {
        gpus.entry(&series.node).or_default().push(series);
    }
    let mut nodes: BTreeMap<&str, Node<'_>> = BTreeMap::new();
    for (place, node) in report.by_node.iter().enumerate() {
        let series = gpus.get(node.node.as_str()).map(Vec::as_slice).unwrap_or_default();
        let cpu = cores.on_node(place).zip(cores.used_s(place, node, &of_job));
        if let Some(summary) = cpu.and_then(|cpu| of_node(report, node, cpu, series)) {
            nodes.insert(&node.node, summary);
        }
    }
    if nodes.is_empty() {
        return Ok(format!("{PREFIX}None"));
    }
    let summary =
        Summary { nodes, total_time: whole(report.wall_s), gpus: report.submission.gpus.unwrap_or_default() };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(serde_json::to_string(&summary)?.as_bytes())?;
    Ok(format!("{PREFIX}{}", STANDARD.encode(encoder.finish()?)))
}

/// Summarises a node, whose cores, CPU time and series of GPUs are given.
fn of_node<'a>(
    report: &Report,
    node: &NodeReport,
    (cores, used_s): (f64, f64),
    series: &[&'a SeriesReport],
) -> Option<Node<'a>> {
    let limit = report.submission.memory_bytes.or(node.used.memory_limit_bytes.map(whole));
    Some(Node {
        cpus: whole(cores.ceil()),
        total_memory: limit?,
        used_memory: whole(node.used.memory_bytes?),
        total_time: (used_s * 10.0).round() / 10.0,
        gpu_total_memory: by_gpu(series, "gpu.memory.total", |series| series.max.map(whole)),
        gpu_used_memory: by_gpu(series, "gpu.memory.used", |series| series.max.map(whole)),
        gpu_utilization: by_gpu(series, "gpu.utilization", |series| {
            series.mean.map(|mean| (mean * 10.0).round() / 10.0)
        }),
    })
}

fn by_gpu<'a, T>(
    series: &[&'a SeriesReport],
    metric: &str,
    value: fn(&SeriesReport) -> Option<T>,
) -> BTreeMap<&'a str, T> {
    let series = series.iter().copied().filter(|series| series.metric == metric);
    series.filter_map(|series| Some((series.label("gpu=")?, value(series)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::SeriesReport;
    use crate::testing::{busy, gauge, report};

    fn decoded(summary: &str) -> Value {
        let bytes = STANDARD.decode(summary.strip_prefix("JS1:").unwrap()).unwrap();
        let mut text = String::new();
        GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_summary_can_be_decoded() {
        let gpu =
            |metric: &str, value: f64| SeriesReport { labels: "gpu=3".to_owned(), ..gauge(metric, &[value]) };
        let mut report = report(
            60,
            16,
            vec![
                busy("n1", &[8.0; 60]),
                gauge("memory.anon", &[5e9]),
                gpu("gpu.utilization", 61.25),
                gpu("gpu.memory.used", 2e9),
                gpu("gpu.memory.total", 8e10),
            ],
        );
        report.submission.memory_bytes = Some(32_000_000_000);
        report.submission.gpus = Some(1);
        assert_eq!(
            decoded(&summary(&report).unwrap()),
            json!({
                "nodes": {"n1": {
                    "cpus": 16,
                    "total_memory": 32_000_000_000_u64,
                    "used_memory": 5_000_000_000_u64,
                    "total_time": 28_800.0,
                    "gpu_total_memory": {"3": 80_000_000_000_u64},
                    "gpu_used_memory": {"3": 2_000_000_000_u64},
                    "gpu_utilization": {"3": 61.3},
                }},
                "total_time": 3600,
                "gpus": 1,
            })
        );
    }

    fn cpus_and_time(report: &Report) -> [(serde_json::Value, serde_json::Value); 2] {
        let nodes = decoded(&summary(report).unwrap())["nodes"].clone();
        ["n1", "n2"].map(|node| (nodes[node]["cpus"].clone(), nodes[node]["total_time"].clone()))
    }

    #[test]
    fn each_node_has_its_own_cores_and_threads_count_as_cores() {
        let gauge = |node: &str| SeriesReport { node: node.to_owned(), ..gauge("memory.anon", &[5e9]) };
        let series = vec![busy("n1", &[7.5; 60]), busy("n2", &[4.0; 60]), gauge("n1"), gauge("n2")];
        let mut report = report(60, 12, series);
        report.submission.memory_bytes = Some(32_000_000_000);
        for (node, cores) in report.by_node.iter_mut().zip([8, 4]) {
            (node.cpus, node.cores, node.job_cores) = (Some(cores), Some(cores), Some(cores));
        }
        assert_eq!(cpus_and_time(&report), [(json!(8), json!(27_000.0)), (json!(4), json!(14_400.0))]);
        // The first node has two threads for each core.
        (report.by_node[0].cpus, report.by_node[0].cores) = (Some(16), Some(8));
        report.submission.scheduler = Some("slurm".to_owned());
        assert_eq!(cpus_and_time(&report), [(json!(4), json!(14_400.0)), (json!(4), json!(14_400.0))]);
    }

    #[test]
    fn a_job_without_data_has_none() {
        assert_eq!(summary(&Report::default()).unwrap(), "JS1:None");
    }
}
