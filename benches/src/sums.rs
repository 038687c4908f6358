//! What a store's ledger says of all samples, and whether it adds up.

use std::error::Error;
use std::fmt;

use crate::store::Store;

/// Numbers of samples, of all nodes and jobs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// That should have been taken.
    pub due: u64,
    /// That were taken.
    pub taken: u64,
    /// Whose deadline had passed when the agent came to it.
    pub missed: u64,
    /// That had no value.
    pub absent: u64,
    /// That the agents had no room for.
    pub dropped: u64,
    /// That were taken and can never be stored, for whatever other reason.
    pub lost: u64,
    /// That are in the store.
    pub stored: u64,
}

impl Sums {
    /// Reads them.
    ///
    /// # Errors
    /// When the store does not say.
    pub fn read(store: &Store) -> Result<Self, Box<dyn Error>> {
        let sum = |column: &str, table: &str| -> Result<u64, Box<dyn Error>> {
            let sql = format!("SELECT CAST(coalesce(sum({column}), 0) AS bigint) FROM {table}");
            Ok(store.ask(&sql)?.parse()?)
        };
        Ok(Self {
            due: sum("due", "ledger")?,
            taken: sum("taken", "ledger")?,
            missed: sum("missed", "ledger")?,
            absent: sum("absent", "ledger")?,
            dropped: sum("dropped", "ledger")?,
            lost: sum("samples", "loss")?,
            stored: store.samples()?,
        })
    }

    /// Whether each sample that was due became something, and one thing only.
    ///
    /// # Errors
    /// When it did not.
    pub fn check(&self) -> Result<(), String> {
        if self.due != self.taken + self.missed + self.absent
            || self.taken != self.stored + self.dropped + self.lost
        {
            return Err(format!("the samples do not add up: {self}"));
        }
        Ok(())
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { due, taken, missed, absent, dropped, lost, stored } = self;
        write!(
            f,
            "due {due} = taken {taken} + missed {missed} + absent {absent}; stored {stored} = taken - dropped {dropped} - lost {lost}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_becomes_one_thing() {
        let sums = Sums { due: 10, taken: 7, missed: 2, absent: 1, dropped: 3, lost: 1, stored: 3 };
        assert_eq!(sums.check(), Ok(()));
        assert!(Sums { stored: 4, ..sums }.check().is_err(), "twice");
        assert!(Sums { stored: 2, ..sums }.check().is_err(), "lost silently");
        assert!(Sums { due: 11, ..sums }.check().is_err());
    }
}
