//! The highest rate of complete samples of the node: all values of the files in /proc that the catalogue has.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::path::Path;

use polymeter_benches::agent::Running;
use polymeter_benches::clock::{SECOND_NS, now_ns, thread_cpu_ns, wall_us};
use polymeter_benches::job::pause;
use polymeter_benches::plan;
use polymeter_benches::table::to_f64;
use polymeter_proto::catalogue::{self, Hierarchy, Origin, Scope};
use polymeter_proto::period::Period;
use polymeter_proto::wire::frame::Frame;
use rustix::fd::AsFd;

use super::results::Values;

/// Time for which a tool runs before it is measured.
pub(super) const SETTLE_NS: i64 = 1_500_000_000;

/// Time between two looks at the frames, which wait in a bounded queue.
const LOOK_NS: i64 = 100_000_000;

/// Metrics that one file in /proc has, and the paths of these files.
struct Complete {
    metrics: Vec<&'static str>,
    files: Vec<String>,
}

fn complete() -> Complete {
    let mut complete = Complete { metrics: Vec::new(), files: Vec::new() };
    for metric in catalogue::all().filter(|metric| metric.scope == Scope::Node) {
        let Some(Origin::Text { file, .. }) = metric.origins.first() else { continue };
        let path = format!("/proc/{}", file.path);
        if file.hierarchy == Hierarchy::Proc && !file.is_blocking && Path::new(&path).is_file() {
            complete.metrics.push(metric.name);
            if !complete.files.contains(&path) {
                complete.files.push(path);
            }
        }
    }
    complete
}

/// Reads the files with one `pread` each, as fast as possible.
pub(super) fn read(seconds: u64) -> Result<Values<'static>, Box<dyn Error>> {
    let files = complete().files.into_iter().map(File::open).collect::<Result<Vec<_>, _>>()?;
    let mut buffer = vec![0; 64 * 1024];
    let (begin_ns, cpu_ns) = (now_ns(), thread_cpu_ns());
    let mut samples = 0;
    while now_ns() - begin_ns < seconds * SECOND_NS {
        for file in &files {
            rustix::io::pread(file.as_fd(), &mut buffer, 0)?;
        }
        samples += 1;
    }
    let wall_ns = now_ns() - begin_ns;
    let mut values = values(samples, wall_ns, to_f64(thread_cpu_ns() - cpu_ns) / 1e9);
    values.push(("mean_ms", to_f64(wall_ns) / 1e6 / to_f64(samples.max(1))));
    Ok(values)
}

/// Lets an agent sample the same values every `period`, and counts the samples that arrive complete.
pub(super) fn sample(
    period: Period,
    seconds: u64,
    scratch: &Path,
) -> Result<Values<'static>, Box<dyn Error>> {
    let running = Running::start(scratch, &plan::baseline(complete().metrics, period))?;
    pause(SETTLE_NS);
    let cpu_s = running.cpu_s()?;
    let (begin_ns, begin_us) = (now_ns(), wall_us());
    let end_us = begin_us + i64::try_from(seconds * 1_000_000)?;
    let mut times_by_shape = BTreeMap::new();
    let mut count = |frame: Frame| {
        for block in frame.blocks {
            let times = block.times_us.iter().filter(|time_us| (begin_us..end_us).contains(*time_us));
            *times_by_shape.entry(block.shape).or_default() += times.count() as u64;
        }
    };
    while wall_us() < end_us {
        pause(LOOK_NS.min((end_us - wall_us()).max(0) * 1_000));
        running.frames().for_each(&mut count);
    }
    let wall_ns = now_ns() - begin_ns;
    // Asking flushes all samples.
    let cpu_s = running.cpu_s()? - cpu_s;
    running.frames().for_each(&mut count);
    // A sample is complete if all files were read.
    Ok(values(times_by_shape.into_values().min().unwrap_or(0), wall_ns, cpu_s))
}

fn values(samples: u64, wall_ns: u64, cpu_s: f64) -> Values<'static> {
    let rate_per_s = to_f64(samples) * 1e9 / to_f64(wall_ns);
    let cpu_us = cpu_s * 1e6 / to_f64(samples.max(1));
    vec![("rate_per_s", rate_per_s), ("cpu_us", cpu_us), ("core_percent_at_10s", cpu_us / 1e5)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_sample_has_the_files_of_the_node_once() {
        let Complete { metrics, mut files } = complete();
        assert!(metrics.contains(&"node.memory.total"), "{metrics:?}");
        for wanted in ["/proc/stat", "/proc/meminfo", "/proc/vmstat", "/proc/loadavg"] {
            assert!(files.iter().any(|file| file == wanted), "{files:?}");
        }
        files.sort();
        let count = files.len();
        files.dedup();
        assert_eq!(files.len(), count);
        let rate = read(1).unwrap()[0];
        assert!(rate.0 == "rate_per_s" && rate.1 > 1.0, "{rate:?}");
    }
}
