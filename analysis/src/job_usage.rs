//! Figures of a job that stay when its samples are gone, from which the jobs of users, accounts, queues
//! and arrays are added up. Pure.

use polymeter_store::JobEnergy;
use polymeter_store::reader::JobUsage;

use crate::advice::facts::Facts;
use crate::model::Report;
use crate::runs::whole_of;

/// Figures of a job, as its report and the rules of advice have them.
pub fn job_usage(report: &Report) -> JobUsage {
    let facts = Facts::of(report);
    let number = |name: &str| facts.number(name);
    let gpus = number("gpus").filter(|gpus| *gpus > 0.0);
    // The time of a GPU without samples is not known.
    let sampled = number("gpus_sampled").filter(|sampled| Some(*sampled) >= gpus);
    let utilization = sampled.and(number("gpu_utilization"));
    JobUsage {
        elapsed_s: report.wall_s,
        nodes: number("nodes"),
        cores: number("cores"),
        cpu_s: number("cores_used").map(|used| used * report.wall_s),
        cores_peak: number("cores_peak"),
        memory_request_bytes: number("memory_request"),
        memory_used_bytes: number("memory_used"),
        memory_bound_bytes: number("memory_bound"),
        gpus,
        gpus_used: sampled.zip(number("unused_gpus")).map(|(sampled, unused)| sampled - unused),
        gpu_s: gpus.zip(utilization).map(|(gpus, utilization)| gpus * utilization * report.wall_s),
        energy_j: report.energy.as_ref().map(|energy| energy.joules),
    }
}

/// Energy of the nodes of a job by source: those that count for the job, and the others beside them.
pub fn job_energy(report: &Report) -> Vec<JobEnergy> {
    let mut rows: Vec<JobEnergy> = Vec::new();
    for counted in &report.counted_energy {
        rows.push(JobEnergy {
            node: counted.node.clone(),
            part: counted.part.to_owned(),
            source: counted.source.clone(),
            devices: String::new(),
            joules: counted.joules,
            error_joules: None,
            delay_s: None,
            is_counted: true,
            is_estimate: counted.is_estimate,
        });
    }
    for source in &report.energy_sources {
        let is_of_source = |row: &&mut JobEnergy| {
            row.is_counted
                && (&row.node, &*row.part, &row.source) == (&source.node, source.part, &source.name)
        };
        // Two devices of one name are two sources, of which the best one counts.
        let is_of_node = source.part != "node" || source.is_best;
        let counted = rows.iter_mut().find(is_of_source).filter(|_| is_of_node);
        if let Some(row) = counted {
            row.devices = source.devices.join(" ");
            (row.error_joules, row.delay_s) = (Some(source.error_joules), source.delay_s);
            continue;
        }
        rows.push(JobEnergy {
            node: source.node.clone(),
            part: source.part.to_owned(),
            source: source.name.clone(),
            devices: source.devices.join(" "),
            joules: source.joules,
            error_joules: Some(source.error_joules),
            delay_s: source.delay_s,
            is_counted: false,
            is_estimate: false,
        });
    }
    rows
}

/// Id of the array or heterogeneous job to which a job belongs, if it does.
pub fn array_id(report: &Report) -> Option<&str> {
    report.submission.display_id.as_deref().and_then(whole_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Energy, SeriesReport};
    use crate::testing::{busy, gauge, report};

    fn gpu(number: u32, metric: &str, values: &[f64]) -> SeriesReport {
        SeriesReport { labels: format!("gpu={number}"), ..gauge(metric, values) }
    }

    #[test]
    fn figures_are_those_of_the_report() {
        let mut of = report(60, 16, vec![busy("n1", &[8.0; 60]), gauge("memory.anon", &[5e9])]);
        of.submission.memory_bytes = Some(32_000_000_000);
        of.submission.display_id = Some("4009_7".to_owned());
        let usage = job_usage(&of);
        assert_eq!((usage.elapsed_s, usage.cores, usage.nodes), (3600.0, Some(16.0), Some(1.0)));
        assert_eq!((usage.cpu_s, usage.memory_used_bytes), (Some(28_800.0), Some(5e9)));
        assert_eq!((usage.memory_request_bytes, usage.gpus, usage.gpu_s), (Some(32e9), None, None));
        assert_eq!(usage.energy_j, None);
        of.energy = Some(Energy {
            joules: 5e5,
            error_joules: None,
            watts_mean: None,
            carbon_grams: None,
            is_estimate: true,
            nodes: 1,
            parts: Vec::new(),
        });
        assert_eq!(job_usage(&of).energy_j, Some(5e5));
        assert_eq!(array_id(&of), Some("4009"));
        assert_eq!(array_id(&Report::default()), None);
    }

    #[test]
    fn hardware_threads_count_as_their_cores() {
        // 16 threads of 8 cores: one thread of each core is busy, then both, a quarter of them, and 4 of
        // others.
        for (threads, cores) in [(8.0, 8.0), (16.0, 8.0), (4.0, 4.0), (20.0, 12.0)] {
            let mut of = report(60, 16, vec![busy("n1", &[threads; 60])]);
            of.submission.scheduler = Some("slurm".to_owned());
            let [node] = &mut of.by_node[..] else { panic!("one node") };
            (node.cpus, node.cores, node.job_cores) = (Some(64), Some(32), Some(16));
            let usage = job_usage(&of);
            assert_eq!(usage.cores, Some(8.0));
            assert!((usage.cpu_s.unwrap() - cores * 3600.0).abs() < 1e-3, "{threads}: {usage:?}");
        }
    }

    #[test]
    fn the_time_of_gpus_is_known_if_all_are_sampled() {
        let series = vec![gpu(0, "gpu.utilization", &[50.0; 60]), gpu(1, "gpu.utilization", &[0.0; 60])];
        let mut of = report(60, 4, series);
        of.submission.gpus = Some(2);
        let usage = job_usage(&of);
        assert_eq!((usage.gpus, usage.gpus_used, usage.gpu_s), (Some(2.0), Some(1.0), Some(1800.0)));
        of.submission.gpus = Some(4);
        let usage = job_usage(&of);
        assert_eq!((usage.gpus, usage.gpus_used, usage.gpu_s), (Some(4.0), None, None));
    }
}
