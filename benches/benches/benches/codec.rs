//! Benchmarks of encoding and decoding a recorded job.

use std::path::Path;

use criterion::{BatchSize, Criterion, Throughput};
use polymeter_benches::recording::{self, RECORDED};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::{Encoder, Extras, Frame};

pub(crate) fn run(criterion: &mut Criterion) {
    let rows = recording::rows(Path::new(RECORDED)).expect("the recording is in the tree");
    for ticks in [1, 10, 1000] {
        let batches = recording::batches(&rows, ticks);
        let batch = batches.get(batches.len() / 2).expect("the recording has seconds");
        let mut group = criterion.benchmark_group(format!("codec/{ticks} ticks"));
        group.throughput(Throughput::Elements(batch.samples()));
        let mut encoder = Encoder::default();
        let mut bytes = Vec::new();
        group.bench_function("encode", |bencher| {
            bencher.iter(|| {
                bytes.clear();
                assert!(encoder.encode(&mut bytes, SessionId(1), 1, batch, Extras::default()).is_ok());
                bytes.len()
            });
        });
        group.bench_function("decode", |bencher| {
            bencher.iter_batched(|| bytes.clone(), |bytes| Frame::decode(&bytes), BatchSize::SmallInput)
        });
        group.finish();
    }
}
