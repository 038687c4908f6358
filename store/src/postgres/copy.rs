//! Encoding for PostgreSQL's binary COPY into large buffers: a writer that sends row by row costs several
//! times as much.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// The head of a binary COPY: the signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// The trailer of a binary COPY.
const TRAILER: i16 = -1;

/// Microseconds from the Unix epoch to 2000-01-01, PostgreSQL's epoch.
const POSTGRES_EPOCH_US: i64 = 946_684_800 * 1_000_000;

/// Appends the head of a COPY.
pub(super) fn put_header(out: &mut BytesMut) {
    out.put_slice(HEADER);
}

/// Appends the trailer of a COPY.
pub(super) fn put_trailer(out: &mut BytesMut) {
    out.put_i16(TRAILER);
}

/// Appends a row of the table `samples`: three fields, each preceded by its length.
pub(super) fn put_sample(out: &mut BytesMut, time_us: i64, series_id: i64, value: f64) {
    out.put_i16(3);
    out.put_i32(8);
    out.put_i64(time_us - POSTGRES_EPOCH_US);
    out.put_i32(8);
    out.put_i64(series_id);
    out.put_i32(8);
    out.put_f64(value);
}

/// A `timestamptz`, in microseconds since the Unix epoch and within the range of
/// [`crate::bounds::stored_us`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timestamp(pub(super) i64);

impl ToSql for Timestamp {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i64(self.0 - POSTGRES_EPOCH_US);
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Timestamp {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let since_2000_us = i64::from_be_bytes(raw.try_into()?);
        Ok(Self(since_2000_us.saturating_add(POSTGRES_EPOCH_US)))
    }

    accepts!(TIMESTAMPTZ);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_one_row_has_the_bytes_of_the_manual() {
        let mut out = BytesMut::new();
        put_header(&mut out);
        put_sample(&mut out, POSTGRES_EPOCH_US + 1, 7, 1.0);
        put_trailer(&mut out);
        let mut expected = b"PGCOPY\n\xff\r\n\0".to_vec();
        expected.extend_from_slice(&[0; 8]);
        expected.extend_from_slice(&[0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        expected.extend_from_slice(&[
            0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xff, 0xff,
        ]);
        assert_eq!(out, expected);
    }
}
