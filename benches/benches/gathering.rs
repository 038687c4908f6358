//! The stages of gathering without the kernel: parsing real text, and asking the schedule.

use std::path::Path;

use criterion::{Criterion, Throughput};
use polymeter_agent::schedule::Schedule;
use polymeter_agent::source::layout::Layout;
use polymeter_agent::source::{Reading, Wanted};
use polymeter_proto::catalogue::{self, Definition, Form, Origin};
use polymeter_proto::period::Period;

/// Real text of each kind of file: its form, and where it lies among the fixtures of the parsers' tests.
const TEXTS: [(&str, Form, &str); 5] = [
    ("memory.stat v1", Form::Keyed, "v1-6.18/v1/memory/memory.stat"),
    ("memory.stat v2", Form::Keyed, "v2-6.12/v2/memory.stat"),
    ("cpu.stat v2", Form::Keyed, "v2-6.12/v2/cpu.stat"),
    ("cpu.pressure", Form::Pairs, "v2-6.12/v2/cpu.pressure"),
    ("vmstat", Form::Keyed, "v2-6.12/proc/vmstat"),
];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for (name, form, path) in TEXTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node-agent/tests/fixtures").join(path);
        let text = std::fs::read(&path).expect("the fixtures are in the tree");
        let wanted = wanted_of(path.file_name().and_then(|name| name.to_str()).unwrap_or_default());
        let mut layout = Layout::discover(form, &text, &wanted, &[]).expect("fixtures are real");
        let mut reading = Reading::absent(layout.slots().len());
        let mut group = criterion.benchmark_group("parse");
        group.throughput(Throughput::Elements(layout.slots().len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| layout.read(&text, &mut reading)));
        group.finish();
    }
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
    criterion.final_summary();
}

/// Every field of the catalogue that is read from a file of this name.
fn wanted_of(file_name: &str) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for metric in catalogue::all() {
        for origin in metric.origins {
            if let Origin::Text { file, field } = origin
                && file.path.rsplit('/').next() == Some(file_name)
            {
                wanted.push(Wanted { definition: Definition { metric, instance: None }, field: *field });
            }
        }
    }
    wanted
}
