//! Levels of resolution that a job still has.

use polymeter_proto::read::{JobRow, Rollup};

use super::recorded_statements::Reader;
use crate::StoreError;
use crate::retention::Level;
use crate::row::TimeNs;

impl Reader {
    /// Returns the finest rollup that has all of a job; none if its samples are complete.
    pub fn finest_rollup(&mut self, job: &JobRow) -> Result<Option<Rollup>, StoreError> {
        self.finest_rollup_of(job.job_key, job.started_ns)
    }

    /// Returns the finest rollup that has all of the job with a key and a start.
    pub(super) fn finest_rollup_of(
        &mut self,
        job_key: i64,
        started_ns: i64,
    ) -> Result<Option<Rollup>, StoreError> {
        let select = "SELECT relation, dropped_before,
             (SELECT is_complete FROM kept_job WHERE job_key = $1 AND (until IS NULL OR until > dropped_before)) FROM retention";
        let states: Vec<(Level, TimeNs<Option<i64>>, Option<bool>)> = self.rows(select, &[job_key.into()])?;
        let mut incomplete = Vec::new();
        for (level, TimeNs(dropped_ns), was_kept) in states {
            // A job that was kept in time has all of its rows; most jobs were never kept.
            if dropped_ns.is_some_and(|dropped_ns| dropped_ns > started_ns) && was_kept != Some(true) {
                incomplete.push(level);
            }
        }
        let is_complete = |level: Level| !incomplete.contains(&level);
        if is_complete(Level::Samples) {
            return Ok(None);
        }
        let coarser = [
            (Level::TenSeconds, Rollup::TenSeconds),
            (Level::Minute, Rollup::Minute),
            (Level::Hour, Rollup::Hour),
        ];
        let finest = coarser.into_iter().find(|(level, _)| is_complete(*level));
        Ok(Some(finest.map_or(Rollup::Hour, |(_, rollup)| rollup)))
    }
}
