//! Benchmarks of the stages of sampling that need no system call: parsing real kernel text, and the deadline
//! schedule.

use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use polymeter_agent::lanes::Schedule;
use polymeter_agent::sources::layout::Layout;
use polymeter_agent::sources::{Reading, Wanted};
use polymeter_proto::catalogue::{self, Definition, Hierarchy, Origin, TextFile};
use polymeter_proto::period::Period;

/// Fixtures of the parser tests: real kernel text of a cgroup of each version.
const SETS: [&str; 2] = ["v1-6.18", "v2-6.12"];

/// Warm-up and measurement times per file. They are short because there are dozens of files, and one parse
/// takes less than a microsecond.
const WARM_UP: Duration = Duration::from_millis(200);
const MEASUREMENT: Duration = Duration::from_secs(1);

pub(crate) fn run(criterion: &mut Criterion) {
    parse(criterion);
    schedule(criterion);
}

/// Benchmarks the parser on every file of the catalogue that the fixtures contain, with all fields that are
/// read from it.
fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    group.warm_up_time(WARM_UP).measurement_time(MEASUREMENT);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node-agent/tests/fixtures");
    for (file, wanted) in files() {
        let place = match file.hierarchy {
            Hierarchy::V1(controller) => format!("v1/{controller}/{}", file.path),
            Hierarchy::V2 => format!("v2/{}", file.path),
            Hierarchy::Proc => format!("proc/{}", file.path),
            Hierarchy::Sys => format!("sys/{}", file.path),
        };
        for set in SETS {
            let Ok(text) = std::fs::read(fixtures.join(set).join(&place)) else { continue };
            let mut layout = Layout::discover(file.form, &text, &wanted, &[]).expect("fixtures are real");
            let mut reading = Reading::absent(layout.slots().len());
            group.throughput(Throughput::Elements(layout.slots().len() as u64));
            group.bench_function(format!("{set}/{place}"), |bencher| {
                bencher.iter(|| layout.read(&text, &mut reading));
            });
        }
    }
    group.finish();
}

fn files() -> Vec<(&'static TextFile, Vec<Wanted>)> {
    let mut files: Vec<(&TextFile, Vec<Wanted>)> = Vec::new();
    for metric in catalogue::all() {
        for origin in metric.origins {
            let Origin::Text { file, field } = origin else { continue };
            let wanted = Wanted { definition: Definition { metric, instance: None }, field: *field };
            match files.iter_mut().find(|(known, _)| known == file) {
                Some((_, of_file)) => of_file.push(wanted),
                None => files.push((*file, vec![wanted])),
            }
        }
    }
    files
}

fn schedule(criterion: &mut Criterion) {
    for entries in [1_u32, 100, 10_000] {
        let mut schedule = Schedule::default();
        for entry in 0..entries {
            let period = Period::from_micros(1_000 * u64::from(entry % 10 + 1)).expect("from 1 to 10 ms");
            schedule.insert(entry, period, 0);
        }
        let (mut now_ns, mut due) = (0, Vec::new());
        criterion.bench_function(&format!("schedule/{entries} entries"), |bencher| {
            bencher.iter(|| {
                now_ns += 1_000_000;
                due.clear();
                schedule.take_due(now_ns, &mut due);
                due.len()
            });
        });
    }
}
