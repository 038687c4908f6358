//! The levels of resolution that a job still has.

use polymeter_proto::read::{JobRow, Rollup};

use super::connection::Reader;
use crate::StoreError;
use crate::retention::Level;

impl Reader {
    /// Returns the finest rollup that has all of a job; none if its samples are complete.
    ///
    /// # Errors
    /// Returns an error if the store fails.
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
        let incomplete = self.rows(select, &[job_key.into()], |row| {
            let (level, dropped_ns) = (Level::of_relation(&row.text()), row.optional_time_ns());
            // A job that was kept in time has all of its rows.
            let was_kept = row.boolean();
            let is_dropped = dropped_ns.is_some_and(|dropped_ns| dropped_ns > started_ns);
            level.filter(|_| is_dropped && !was_kept)
        })?;
        let is_complete = |level: Level| !incomplete.contains(&Some(level));
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
