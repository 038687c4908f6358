//! The sums of a store's ledger over all samples, and the check that they are consistent.

use std::error::Error;
use std::fmt;

use crate::store::Store;

/// Numbers of samples of all nodes and jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// Samples that should have been taken.
    pub due: u64,
    pub taken: u64,
    /// Samples whose deadline had passed when the agent reached it.
    pub missed: u64,
    /// Samples that had no value.
    pub absent: u64,
    /// Samples that were dropped because an agent's outbox was full.
    pub dropped: u64,
    /// Samples that rings let go, since nothing wanted them.
    pub not_kept: u64,
    /// Samples that were taken and can never be stored, for any other reason.
    pub lost: u64,
    /// Samples of the rows: a window stands for several. Those that rings kept are included.
    pub stored: u64,
}

impl Sums {
    pub fn read(store: &Store) -> Result<Self, Box<dyn Error>> {
        let total = |column: &str, table: &str| -> Result<u64, Box<dyn Error>> {
            let sql = format!("SELECT CAST(coalesce(sum({column}), 0) AS bigint) FROM {table}");
            Ok(store.ask(&sql)?.parse()?)
        };
        Ok(Self {
            due: total("due", "ledger")?,
            taken: total("taken", "ledger")?,
            missed: total("missed", "ledger")?,
            absent: total("absent", "ledger")?,
            dropped: total("dropped", "ledger")?,
            not_kept: total("not_kept", "ledger")?,
            lost: total("samples", "loss")?,
            stored: total("coalesce(count, 1)", "samples")? + total("1", "kept_sample")?,
        })
    }

    /// Checks that each sample that was due is accounted for exactly once.
    pub fn check(&self) -> Result<(), String> {
        if self.due != self.taken + self.missed + self.absent
            || self.taken != self.stored + self.dropped + self.not_kept + self.lost
        {
            return Err(format!("the samples do not add up: {self}"));
        }
        Ok(())
    }
}

/// Counts the samples that the store has more than once: of one series at one time.
pub fn stored_twice(store: &Store) -> Result<u64, Box<dyn Error>> {
    let mut twice = 0;
    for table in ["samples", "kept_sample"] {
        let sql = format!(
            "SELECT coalesce(sum(samples - instants), 0) FROM (
                 SELECT count(*) AS samples, count(DISTINCT time) AS instants FROM {table} GROUP BY series_id
             ) AS each"
        );
        twice += store.ask(&sql)?.parse::<u64>()?;
    }
    Ok(twice)
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { due, taken, missed, absent, dropped, not_kept, lost, stored } = self;
        write!(
            f,
            "due {due} = taken {taken} + missed {missed} + absent {absent}; stored {stored} = taken - dropped {dropped} - not kept {not_kept} - lost {lost}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_has_one_fate() {
        let sums =
            Sums { due: 12, taken: 9, missed: 2, absent: 1, dropped: 3, not_kept: 2, lost: 1, stored: 3 };
        assert_eq!(sums.check(), Ok(()));
        assert!(Sums { stored: 4, ..sums }.check().is_err(), "twice");
        assert!(Sums { stored: 2, ..sums }.check().is_err(), "lost silently");
        assert!(Sums { due: 13, ..sums }.check().is_err());
    }
}
