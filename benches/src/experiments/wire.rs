//! Measures the bytes per value of recorded data on the wire, and the speed of the codec.

use std::error::Error;
use std::path::Path;

use polymeter_benches::clock::thread_cpu_ns;
use polymeter_benches::recording::{self, RECORDED};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::{Encoder, Extras, Frame};

/// Enough rounds for a measurable time.
const ROUNDS: u32 = 20;

/// Measures bytes per value on the wire, and the speed of the codec.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    table::machine();
    let rows = recording::rows(Path::new(RECORDED))?;
    let columns: usize = rows.first().map_or(0, |first| {
        rows.iter()
            .take_while(|row| row.instant.time_us / 1000 == first.instant.time_us / 1000)
            .map(|row| row.values.len())
            .sum()
    });
    let mut results = Vec::new();
    for ticks in [1, 10, 100, 1000] {
        let batches = recording::batches(&rows, ticks);
        let values: u64 = batches.iter().map(polymeter_proto::batch::Batch::samples).sum();
        let mut encoder = Encoder::default();
        let mut frames = vec![Vec::new(); batches.len()];
        let encoding_s = cpu_s(|| {
            for (number, (batch, frame)) in (1..).zip(batches.iter().zip(&mut frames)) {
                frame.clear();
                let session = SessionId(0x1234_5678_9abc_def0);
                // A batch that does not fit into a frame shows below, as missing after decoding.
                encoder.encode(frame, session, number, batch, Extras::default()).ok();
            }
        });
        let mut decoded = 0;
        let decoding_s = cpu_s(|| {
            decoded =
                frames.iter().filter_map(|frame| Frame::decode(frame).ok()).map(|frame| frame.samples()).sum()
        });
        if decoded != values {
            return Err("what was encoded does not come back".into());
        }
        let bytes: usize = frames.iter().map(Vec::len).sum();
        let per_second = |seconds: f64| format!("{:.0} M", to_f64(values) / seconds / 1e6);
        results.push(vec![
            ticks.to_string(),
            batches.len().to_string(),
            values.to_string(),
            format!("{:.3}", to_f64(bytes as u64) / to_f64(values)),
            per_second(encoding_s),
            per_second(decoding_s),
        ]);
    }
    say(&format!(
        "{} rows of a job at 1 ms, about {columns} values per tick; whole frames, heads and times included",
        rows.len()
    ));
    say("");
    table::table(
        &["ticks per frame", "frames", "values", "bytes per value", "encoded values/s", "decoded values/s"],
        &results,
    );
    Ok(())
}

fn cpu_s(mut round: impl FnMut()) -> f64 {
    round();
    let begin_ns = thread_cpu_ns();
    (0..ROUNDS).for_each(|_| round());
    to_f64(thread_cpu_ns() - begin_ns) / 1e9 / f64::from(ROUNDS)
}
