//! The reading side of a store, for reports. The statements are the same for every backend.

mod connection;
mod history;
mod rows;
mod series;

pub use self::connection::Reader;
pub use self::rows::{
    JobRow, LedgerRow, LossRow, MarkRow, PlanChangeRow, RefusedRow, SeriesRow, SeriesScope, SeriesSummary,
};
