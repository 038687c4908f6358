//! Requests as they are built and spooled: `prometheus.WriteRequest` of remote_write 1.0.

mod build;
mod messages;
mod read;
#[cfg(test)]
mod tests;

pub(in crate::sinks) use self::build::{NOT_A_NUMBER, RequestBuilder, STALE, Sample, encode_labels, hash};
pub(in crate::sinks) use self::messages::{Label, SampleMessage, TimeSeries, WriteRequest};
pub(in crate::sinks) use self::read::{decompress, read};
#[cfg(test)]
pub(in crate::sinks) use self::tests::{DecodedSeries, decode_v1, request, samples, text};
