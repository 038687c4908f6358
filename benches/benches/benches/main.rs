//! Criterion benches of the stages of the data flow. `cargo bench -p polymeter-benches -- NAME` runs those
//! with NAME in theirs.

mod codec;
mod gathering;
mod storing;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    codec::run(&mut criterion);
    gathering::run(&mut criterion);
    storing::run(&mut criterion);
    criterion.final_summary();
}
