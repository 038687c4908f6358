//! Overview of a store.

use polymeter_store::{
    Administration, Keep, KeptJob, Level, LevelState, Part, Storage, StoreError, StoreUrl,
};
use serde::Serialize;

use crate::calendar::{DAY_US, date};
use crate::disk::{UnknownSpace, disk_of};
use crate::output::table::{figure, head, table_within};
use crate::output::units;

const KEPT_MAX: usize = 20;

const CONFIRM: &str = "Correct the clock; if it is right, run polymeter store confirm-clock";

#[derive(Debug, Serialize)]
pub(super) struct Overview {
    store: String,
    bytes: u64,
    /// Free space within the store, which the next samples use.
    free_bytes: u64,
    /// An estimate.
    samples: u64,
    jobs: u64,
    /// Mean of the last days, without what retention removes; null before there is a whole day.
    growth_bytes_per_day: Option<u64>,
    disk_free_bytes: Option<u64>,
    disk_unknown: Option<String>,
    /// Null if the disk lasts for years, or if it or the growth is not known.
    days_until_full: Option<u32>,
    returns_space: bool,
    levels: Vec<LevelLine>,
    kept_jobs: Vec<KeptLine>,
    /// Why no rows are removed; null if the clock is plausible.
    clock_jump: Option<String>,
}

#[derive(Debug, Serialize)]
struct LevelLine {
    relation: &'static str,
    /// Such as `90d`, or `forever`.
    keep: String,
    bytes: Option<u64>,
    /// Day before which rows were removed.
    dropped_before: Option<String>,
    next_drop: Option<NextDrop>,
}

#[derive(Debug, Serialize)]
struct NextDrop {
    from: String,
    to: String,
    bytes: Option<u64>,
    on: String,
}

#[derive(Debug, Serialize)]
struct KeptLine {
    job: String,
    job_key: i64,
    until: Option<String>,
}

impl Overview {
    pub(super) fn gather(store: &mut Administration, url: &StoreUrl) -> Result<Self, StoreError> {
        let (storage, states, kept) = (store.storage()?, store.retention()?, store.kept_jobs()?);
        let now_us = store.now_us()?;
        let free_bytes = disk_of(&storage).map(|disk| disk.free_bytes);
        let clock_jump = store.clock_jump()?.map(|jump| jump.to_string());
        let overview = Self::new(url.to_string(), &storage, &states, kept, free_bytes, now_us);
        Ok(Self { clock_jump, ..overview })
    }

    fn new(
        store: String,
        storage: &Storage,
        states: &[LevelState],
        kept: Vec<KeptJob>,
        disk: Result<u64, UnknownSpace>,
        now_us: i64,
    ) -> Self {
        let free_bytes = disk.as_ref().ok().copied();
        Self {
            store,
            bytes: storage.bytes,
            free_bytes: storage.free_bytes,
            samples: storage.samples,
            jobs: storage.jobs,
            growth_bytes_per_day: storage.growth_bytes().map(whole),
            disk_free_bytes: free_bytes,
            days_until_full: free_bytes.and_then(|free| storage.days_until_full(states, free, now_us)),
            disk_unknown: disk.err().map(|reason| reason.to_string()),
            returns_space: storage.returns_space,
            levels: states.iter().map(|state| LevelLine::new(state, storage, now_us)).collect(),
            kept_jobs: kept.into_iter().map(KeptLine::from).collect(),
            clock_jump: None,
        }
    }

    pub(super) fn text(&self, limit: Option<usize>) -> String {
        let of_samples = if self.samples > 0 {
            format!(
                ", {} bytes per sample (estimate)",
                units::number(units::to_f64(self.bytes) / units::to_f64(self.samples))
            )
        } else {
            String::new()
        };
        let growth = self.growth_bytes_per_day.map_or_else(
            || "not known before there is a whole day of samples".to_owned(),
            |bytes| format!("{} per day, the mean of up to 7 days", units::bytes(bytes)),
        );
        let disk = match (self.disk_free_bytes, self.days_until_full) {
            (Some(free), Some(0)) => format!("full: {} free", units::bytes(free)),
            (Some(free), Some(days)) => {
                format!("{} free, full in {} at this growth", units::bytes(free), units::counted(days, "day"))
            }
            (Some(free), None) if self.growth_bytes_per_day.is_none() => {
                format!("{} free", units::bytes(free))
            }
            (Some(free), None) => {
                format!("{} free, not full within ten years at this growth", units::bytes(free))
            }
            (None, _) => format!("unknown: {}", self.disk_unknown.as_deref().unwrap_or_default()),
        };
        let samples = match self.samples {
            0 => "no estimate before the next ANALYZE".to_owned(),
            samples => format!("{} (estimate)", units::number(units::to_f64(samples))),
        };
        let mut rows = vec![
            head(["store", self.store.as_str()]),
            vec!["size".to_owned(), format!("{}{of_samples}", units::bytes(self.bytes))],
            vec!["samples".to_owned(), samples],
            vec!["jobs".to_owned(), format!("{}, {} kept", self.jobs, self.kept_jobs.len())],
            vec!["growth".to_owned(), growth],
            vec!["disk".to_owned(), disk],
        ];
        if self.free_bytes > 0 {
            rows.push(vec![
                "free".to_owned(),
                format!("{} in the file, for the next samples", units::bytes(self.free_bytes)),
            ]);
        }
        let mut text = table_within(&rows, limit);
        if !self.returns_space {
            text.push_str("\nThe file does not shrink: see \"Retention\" in docs/how-to/store.md.\n");
        }
        if let Some(jump) = &self.clock_jump {
            text.push_str(&format!("\nNo rows are removed: {jump}. {CONFIRM}.\n"));
        }
        text.push('\n');
        text.push_str(&self.levels_text(limit));
        if !self.kept_jobs.is_empty() {
            text.push('\n');
            text.push_str(&self.kept_text(limit));
        }
        text
    }

    fn levels_text(&self, limit: Option<usize>) -> String {
        let mut rows = vec![head(["RELATION", "KEPT FOR", "SIZE", "REMOVED BEFORE", "NEXT REMOVAL"])];
        for line in &self.levels {
            let next = figure(line.next_drop.as_ref(), |next| {
                let bytes = next.bytes.map_or_else(String::new, |bytes| format!(", {}", units::bytes(bytes)));
                format!("on {}: {} to {}{bytes}", next.on, next.from, next.to)
            });
            rows.push(vec![
                line.relation.to_owned(),
                line.keep.clone(),
                figure(line.bytes, units::bytes),
                figure(line.dropped_before.clone(), |day| day),
                next,
            ]);
        }
        table_within(&rows, limit)
    }

    fn kept_text(&self, limit: Option<usize>) -> String {
        let mut rows = vec![head(["KEPT JOB", "KEY", "UNTIL"])];
        for line in self.kept_jobs.iter().take(KEPT_MAX) {
            let until = line.until.clone().unwrap_or_else(|| "forever".to_owned());
            rows.push(vec![line.job.clone(), line.job_key.to_string(), until]);
        }
        let more = self.kept_jobs.len().saturating_sub(KEPT_MAX);
        let table = table_within(&rows, limit);
        if more == 0 { table } else { format!("{table}and {more} more: --json lists all\n") }
    }
}

impl LevelLine {
    fn new(state: &LevelState, storage: &Storage, now_us: i64) -> Self {
        let size = storage.levels.iter().find(|size| size.level == state.level);
        Self {
            relation: state.level.relation(),
            keep: state.keep.to_string(),
            bytes: size
                .map(|size| size.bytes)
                .filter(|_| storage.levels.len() > 1 || !storage.parts.is_empty()),
            dropped_before: state.dropped_before_us.map(date),
            next_drop: next_drop(state.level, state.keep, &storage.parts, now_us),
        }
    }
}

/// Parts of kept jobs may be older.
fn next_drop(level: Level, keep: Keep, parts: &[Part], now_us: i64) -> Option<NextDrop> {
    let keep_us = i64::from(keep.days()?) * DAY_US;
    let next = parts
        .iter()
        .filter(|part| part.level == level && part.end_us + keep_us > now_us)
        .min_by_key(|part| part.end_us)?;
    Some(NextDrop {
        from: date(next.begin_us),
        to: date(next.end_us),
        bytes: next.bytes,
        on: date(next.end_us + keep_us),
    })
}

impl From<KeptJob> for KeptLine {
    fn from(KeptJob { job_key, job_id, until_us }: KeptJob) -> Self {
        Self { job: job_id, job_key, until: until_us.map(date) }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size is not negative, and rounded"
)]
fn whole(bytes: f64) -> u64 {
    bytes.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use polymeter_store::LevelSize;

    use super::*;
    use crate::snapshot;

    const NOW_US: i64 = 20_779 * DAY_US + DAY_US / 3;

    fn storage(growth_bytes: impl Into<Option<f64>>) -> Storage {
        let growth_bytes = growth_bytes.into();
        let level = |level, bytes, growth_bytes| LevelSize { level, bytes, growth_bytes };
        Storage {
            form: "PostgreSQL with a partition per day",
            is_timescale: false,
            is_citus: false,
            bytes: 310_000_000_000,
            free_bytes: 0,
            samples: 90_000_000_000,
            jobs: 100_000,
            levels: vec![
                level(Level::Samples, 240_000_000_000, growth_bytes),
                level(Level::TenSeconds, 50_000_000_000, growth_bytes.map(|bytes| bytes / 5.0)),
            ],
            parts: Vec::new(),
            directory: Err("the server is reached over the network"),
            returns_space: true,
        }
    }

    fn states() -> Vec<LevelState> {
        let state = |level, keep, dropped_before_us| LevelState { level, keep, dropped_before_us };
        vec![
            state(Level::Samples, Keep::Days(90), Some((20_779 - 90) * DAY_US)),
            state(Level::TenSeconds, Keep::Days(90), None),
            state(Level::Minute, Keep::Days(365), None),
            state(Level::Hour, Keep::Forever, None),
        ]
    }

    #[test]
    fn a_store_is_laid_out_as_recorded() {
        let kept = vec![
            KeptJob { job_key: 7, job_id: "4711".to_owned(), until_us: None },
            KeptJob { job_key: 9, job_id: "4712".to_owned(), until_us: Some(21_000 * DAY_US) },
        ];
        let name = "PostgreSQL database polymeter at db.example.org".to_owned();
        let unknown = Err(UnknownSpace::NoDirectory("the server is reached over the network"));
        let overview = Overview::new(name.clone(), &storage(2.6e9), &states(), kept, unknown, NOW_US);
        let text = overview.text(Some(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        snapshot::check("store", &text);
        let full = Overview::new(name, &storage(2.6e9), &states(), Vec::new(), Ok(31_200_000_000), NOW_US);
        assert_eq!(full.days_until_full, Some(11));
        assert!(
            full.text(None).contains("29.1 GiB free, full in 11 days at this growth"),
            "{}",
            full.text(None)
        );
    }

    #[test]
    fn a_full_disk_is_called_full() {
        for growth in [None, Some(0.0), Some(2.6e9)] {
            let storage = storage(growth);
            let full = Overview::new("a store".to_owned(), &storage, &states(), Vec::new(), Ok(0), NOW_US);
            assert_eq!(full.days_until_full, Some(0));
            assert!(full.text(None).contains("full: 0 B free\n"), "{}", full.text(None));
        }
    }

    #[test]
    fn a_store_of_hours_has_no_forecast() {
        let young = Overview::new(
            "a store".to_owned(),
            &storage(None::<f64>),
            &states(),
            Vec::new(),
            Ok(1 << 40),
            NOW_US,
        );
        let text = young.text(None);
        assert_eq!((young.growth_bytes_per_day, young.days_until_full), (None, None));
        assert!(text.contains("not known before") && text.contains("1 TiB free\n"), "{text}");
    }

    #[test]
    fn a_file_that_does_not_shrink_is_named() {
        let storage = Storage { returns_space: false, free_bytes: 5000, ..storage(0.0) };
        let overview =
            Overview::new("sqlite:p.db".to_owned(), &storage, &states(), Vec::new(), Ok(1 << 30), NOW_US);
        let text = overview.text(None);
        assert!(text.contains("does not shrink") && text.contains("4.88 KiB in the file"), "{text}");
        assert_eq!(overview.days_until_full, None);
    }
}
