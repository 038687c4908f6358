//! Rows that summarise windows: their check, and their values as the stores keep them.

use std::sync::Arc;

use polymeter_proto::window::{Summary, WindowValues};
use polymeter_proto::wire::frame::{Block, BlockHistogram, BlockWindows};
use polymeter_store::accepted::{HistogramRecord, LedgerLine, SampleBlock, SeriesRecord, WindowColumns};

use super::fault::Fault;

/// Windows of one series over the rows of a block, each with its last value.
type Cells = Vec<(u64, WindowValues)>;

/// Fails if a window has values that no samples have.
pub(super) fn check(
    block: &Block,
    windows: &BlockWindows,
    columns: &[Arc<SeriesRecord>],
) -> Result<(), Fault> {
    for (series, cells) in cells(block, windows, columns) {
        let metric = &series.metric;
        if cells.iter().any(|(last, values)| !values.is_possible(metric, metric.number.to_f64(*last))) {
            return Err(Fault::Contradiction("inconsistent frame: a window has values that no samples have"));
        }
    }
    Ok(())
}

/// Appends the samples of a block of windows to `blocks`. The first sample of a counter has no rate, and is
/// its own row if it is alone in its window: it becomes an ordinary sample.
pub(super) fn resolve(
    line: &Arc<LedgerLine>,
    columns: &[Arc<SeriesRecord>],
    block: &Block,
    windows: &BlockWindows,
    blocks: &mut Vec<SampleBlock>,
) {
    let cells = cells(block, windows, columns);
    let has_raw =
        |row: usize| cells.iter().any(|(_, cells)| cells.get(row).is_some_and(|(_, values)| values.is_raw()));
    let rows = 0..block.times_us.len();
    let (with_raw, regular): (Vec<usize>, Vec<usize>) = rows.partition(|row| has_raw(*row));
    let times_of = |rows: &[usize]| -> Vec<i64> {
        rows.iter().filter_map(|row| block.times_us.get(*row).copied()).collect()
    };
    let mut push = |rows: &[usize], is_raw: Option<bool>| {
        let mut samples = SampleBlock {
            line: Arc::clone(line),
            series: Vec::new(),
            times_us: times_of(rows),
            values: Vec::new(),
            windows: None,
        };
        let mut summaries = WindowColumns::default();
        for (series, cells) in &cells {
            let wanted = || rows.iter().filter_map(|row| cells.get(*row));
            if is_raw.is_some_and(|is_raw| wanted().any(|(_, values)| values.is_raw() != is_raw)) {
                continue;
            }
            samples.series.push(Arc::clone(series));
            for (last, values) in wanted() {
                samples.values.push(*last);
                summaries.counts.push(values.count);
                summaries.min.push(values.min);
                summaries.max.push(values.max);
                summaries.sum.push(values.sum);
            }
        }
        if is_raw != Some(true) {
            samples.windows = Some(summaries);
        }
        if !samples.values.is_empty() {
            blocks.push(samples);
        }
    };
    push(&regular, None);
    for row in with_raw {
        push(&[row], Some(true));
        push(&[row], Some(false));
    }
}

/// Returns the histograms of windows.
pub(super) fn histograms(
    columns: &[Arc<SeriesRecord>],
    block: &Block,
    windows: &BlockWindows,
) -> Vec<HistogramRecord> {
    let record = |histogram: &BlockHistogram| {
        let series = columns.get(*block.columns.get(histogram.position)?)?;
        Some(HistogramRecord {
            series: Arc::clone(series),
            time_us: *block.times_us.get(histogram.tick)?,
            counts: histogram.counts.clone(),
        })
    };
    windows.histograms.iter().filter_map(record).collect()
}

fn cells<'a>(
    block: &Block,
    windows: &BlockWindows,
    columns: &'a [Arc<SeriesRecord>],
) -> Vec<(&'a Arc<SeriesRecord>, Cells)> {
    let rows = block.times_us.len();
    let present = block.columns.iter().enumerate();
    let series = present.filter_map(|(position, column)| Some((position, columns.get(*column)?)));
    series
        .map(|(position, series)| {
            let at = position * rows..(position + 1) * rows;
            let part = |part: &[u64], row: usize| part.get(row).copied().unwrap_or_default();
            let cells = at.map(|at| {
                let last = part(&block.values, at);
                let BlockWindows { counts, min, max, sum, .. } = windows;
                let packed = [last, part(counts, at), part(min, at), part(max, at), part(sum, at)];
                (last, Summary::unpack(packed, &series.metric))
            });
            (series, cells.collect())
        })
        .collect()
}
