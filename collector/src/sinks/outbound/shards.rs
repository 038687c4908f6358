//! Batches of the shards, and the directory of their spools.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polymeter_service::spool::lock_directory;
use tracing::warn;

use super::config::{OutboundConfig, SHARDS_MAX};
use super::request::{RequestBuilder, Sample};
use super::series::{SeriesTable, shard_of};
use super::spool::record::encode_times;
use super::spool::{Log, SpoolBounds};

/// Limit before compression.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Limit of all requests in memory while the disk refuses them.
const MEMORY_BYTES: usize = 64 << 20;

/// Each shard has at least one file.
const FILE_BYTES_MAX: u64 = 16 << 20;

pub(super) struct Output {
    pub(super) shards: Vec<ShardOutput>,
    pub(super) encoder: snap::raw::Encoder,
    pub(super) batch_samples: u32,
    pub(super) now: Duration,
}

pub(super) struct ShardOutput {
    pub(super) batch: RequestBuilder,
    /// First sample of the batch.
    pub(super) since: Duration,
    pub(super) log: Arc<Log>,
}

pub(super) struct Spools {
    pub(super) shards: Vec<ShardOutput>,
    /// Last times of series, in milliseconds since the epoch, by hash.
    pub(super) times: HashMap<u64, i64>,
    /// Keeps other processes from using the spools.
    pub(super) lock: File,
}

/// Fails if the directory cannot be read and written, or another process uses it.
pub(super) fn open_spools(config: &OutboundConfig) -> io::Result<Spools> {
    let lock = lock_directory(&config.spool, "collector")?;
    let (count, mut times) = arrange_shards(config)?;
    let mut shards = Vec::new();
    for number in 0..count {
        let of_shard = times.iter().filter(|(hash, _)| shard_of(**hash, count) == number);
        let initial = encode_times(of_shard.map(|(hash, time_ms)| (*hash, *time_ms)));
        let (log, found) = Log::open(&directory(&config.spool, number), bounds(config, count), &initial)?;
        times.extend(found);
        let log = Arc::new(log);
        shards.push(ShardOutput { batch: RequestBuilder::default(), since: Duration::ZERO, log });
    }
    Ok(Spools { shards, times, lock })
}

impl Output {
    /// Adds samples of a series to the batch of its shard, with the time since which a counter counts.
    pub(super) fn add(&mut self, shard: usize, labels: &[u8], samples: &[Sample], start_ms: Option<i64>) {
        let now = self.now;
        let Some(shard) = self.shards.get_mut(shard) else { return };
        if shard.batch.samples() == 0 {
            shard.since = now;
        }
        shard.batch.add(labels, samples, start_ms);
    }

    pub(super) fn is_full(&self, shard: usize) -> bool {
        self.shards.get(shard).is_some_and(|shard| {
            shard.batch.samples() >= self.batch_samples || shard.batch.len() >= BODY_BYTES_MAX
        })
    }

    pub(super) fn flush(&mut self, number: usize, table: &SeriesTable) {
        let Some(shard) = self.shards.get_mut(number) else { return };
        // Only a body beyond 4 GiB cannot be compressed.
        if let Ok(payload) = self.encoder.compress_vec(shard.batch.body()) {
            let (samples, newest_ms) = (shard.batch.samples(), shard.batch.newest_ms());
            shard.log.append(payload, samples, newest_ms, || table.encode_times(number));
        }
        shard.batch.clear();
    }
}

fn directory(spool: &Path, number: usize) -> PathBuf {
    spool.join(format!("shard-{number}"))
}

/// Number of shards, and the last times of series if their shards change. It is the configured number, or
/// that of a spool that still has samples, since another number would mix up the order of their series.
fn arrange_shards(config: &OutboundConfig) -> io::Result<(usize, HashMap<u64, i64>)> {
    let path = config.spool.join("shards");
    let stored = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse::<usize>().ok().filter(|count| (1..=SHARDS_MAX).contains(count)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut times = HashMap::new();
    if let Some(stored) = stored.filter(|stored| *stored != config.shards) {
        for number in 0..stored {
            // What was accepted does not keep the shards.
            let bounds = SpoolBounds { resend_window: Duration::ZERO, ..bounds(config, stored) };
            let (log, found) = Log::open(&directory(&config.spool, number), bounds, &[])?;
            if log.stats().samples > 0 {
                let sink = config.protocol.sink;
                warn!(
                    shards = stored,
                    "the spool of {sink} has samples: `shards` changes with the next start after they were sent"
                );
                return Ok((stored, HashMap::new()));
            }
            times.extend(found);
        }
        (0..stored).try_for_each(|number| fs::remove_dir_all(directory(&config.spool, number)))?;
    }
    fs::write(&path, format!("{}\n", config.shards))?;
    Ok((config.shards, times))
}

fn bounds(config: &OutboundConfig, shards: usize) -> SpoolBounds {
    let shards = shards.max(1) as u64;
    let bytes = config.spool_bytes / shards;
    SpoolBounds {
        bytes,
        file_bytes: (bytes / 8).clamp(64 << 10, FILE_BYTES_MAX),
        memory_bytes: MEMORY_BYTES / usize::try_from(shards).unwrap_or(1),
        resend_window: config.resend_window,
    }
}
