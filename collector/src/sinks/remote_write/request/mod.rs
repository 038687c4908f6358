//! Bodies of requests: `prometheus.WriteRequest` of remote_write 1.0, and
//! `io.prometheus.write.v2.Request` of 2.0.
//!
//! Requests are built and spooled as 1.0. A receiver of 2.0 gets the same series with a table of symbols, in
//! which each name and value of a label occurs once, and InfluxDB gets lines.

mod build;
mod lines;
mod messages;
mod read;
#[cfg(test)]
mod tests;
mod v2;

pub(super) use self::build::{NOT_A_NUMBER, RequestBuilder, STALE, Sample, encode_labels, hash};
pub(super) use self::lines::Lines;
pub(super) use self::messages::{RequestV2, WriteRequest};
pub(super) use self::read::{decompress, read};
#[cfg(test)]
pub(super) use self::tests::{DecodedSeries, decode_v1, decode_v2};
