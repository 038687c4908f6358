//! The bodies of requests: `prometheus.WriteRequest` of remote_write 1.0, and
//! `io.prometheus.write.v2.Request` of 2.0.
//!
//! Requests are built and spooled as 1.0. A receiver of 2.0 gets the same series with a table of symbols, in
//! which each name and value of a label occurs once.

mod build;
mod halve;
mod read;
#[cfg(test)]
mod tests;
mod v2;

pub(super) use self::build::{NOT_A_NUMBER, RequestBuilder, STALE, Sample, encode_labels, hash};
pub(super) use self::halve::halves;
#[cfg(test)]
pub(super) use self::read::Series;
pub(super) use self::read::{count, decompress, series};
pub(super) use self::v2::decode_v2;
pub(super) use self::v2::to_v2;
