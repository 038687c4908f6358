//! PostgreSQL's binary COPY: encoding into large buffers, since a writer that sends row by row costs several
//! times as much, and decoding of numbers and times.

use std::error::Error;

use bytes::{Buf, BufMut, BytesMut};
use polymeter_proto::read::SampleWindow;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::bounds::stored_count;
use crate::error::{DatabaseError, ErrorKind};
use crate::row::unexpected;
use crate::value::{Column, ColumnType, Number};

/// Head of a binary COPY: the signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

const TRAILER: i16 = -1;

const NULL: i32 = -1;

const POSTGRES_EPOCH_US: i64 = 946_684_800 * 1_000_000;

pub(super) fn put_header(out: &mut BytesMut) {
    out.put_slice(HEADER);
}

pub(super) fn put_trailer(out: &mut BytesMut) {
    out.put_i16(TRAILER);
}

/// Appends a row of the table `samples`: three fields, each preceded by its length, and the key of the node
/// where the table has it.
pub(super) fn put_sample(
    out: &mut BytesMut,
    time_us: i64,
    series_id: i64,
    value: f64,
    node_key: Option<i32>,
) {
    out.put_i16(if node_key.is_some() { 4 } else { 3 });
    put_value(out, time_us, series_id, value);
    put_key(out, node_key);
}

/// Appends a row of the table `samples` that is a window: seven fields, and the key of the node where the table
/// has it.
pub(super) fn put_window(
    out: &mut BytesMut,
    (time_us, series_id, value): (i64, i64, f64),
    window: &SampleWindow,
    node_key: Option<i32>,
) {
    out.put_i16(if node_key.is_some() { 8 } else { 7 });
    put_value(out, time_us, series_id, value);
    out.put_i32(8);
    out.put_i64(stored_count(window.count));
    for number in [window.min, window.max, window.sum] {
        if number.is_nan() {
            out.put_i32(NULL);
        } else {
            out.put_i32(8);
            out.put_f64(number);
        }
    }
    put_key(out, node_key);
}

fn put_value(out: &mut BytesMut, time_us: i64, series_id: i64, value: f64) {
    out.put_i32(8);
    out.put_i64(time_us - POSTGRES_EPOCH_US);
    out.put_i32(8);
    out.put_i64(series_id);
    out.put_i32(8);
    out.put_f64(value);
}

fn put_key(out: &mut BytesMut, node_key: Option<i32>) {
    if let Some(key) = node_key {
        out.put_i32(4);
        out.put_i32(key);
    }
}

/// Decodes the rows of a COPY TO, all of whose columns have eight bytes.
#[derive(Debug)]
pub(super) struct CopyReader<'a> {
    columns: &'a [Column],
    bytes: BytesMut,
    has_header: bool,
    row: Vec<Number>,
}

/// The bytes of a COPY TO have another form than its statement says.
#[derive(Debug, thiserror::Error)]
#[error("unexpected form of a binary COPY")]
struct UnexpectedCopy;

impl From<UnexpectedCopy> for DatabaseError {
    fn from(error: UnexpectedCopy) -> Self {
        Self::new(ErrorKind::Other, error)
    }
}

impl<'a> CopyReader<'a> {
    pub(super) fn new(columns: &'a [Column]) -> Self {
        Self { columns, bytes: BytesMut::new(), has_header: false, row: Vec::new() }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Decodes the next row; none if it is not complete yet, or at the end.
    pub(super) fn next_row(&mut self) -> Result<Option<&[Number]>, DatabaseError> {
        if !self.has_header {
            if self.bytes.len() < HEADER.len() {
                return Ok(None);
            }
            self.has_header = self.bytes.split_to(HEADER.len()) == HEADER;
            if !self.has_header {
                return Err(UnexpectedCopy.into());
            }
        }
        let mut rest: &[u8] = &self.bytes;
        if decode(&mut rest, self.columns, &mut self.row)?.is_none() {
            return Ok(None);
        }
        let decoded = self.bytes.len() - rest.len();
        self.bytes.advance(decoded);
        Ok(Some(&self.row))
    }
}

/// Decodes a row of `columns`, or of the first of them, at the beginning of `bytes` into `row`, and advances
/// `bytes` behind it; none if it is not complete.
fn decode(bytes: &mut &[u8], columns: &[Column], row: &mut Vec<Number>) -> Result<Option<()>, DatabaseError> {
    row.clear();
    let count = match bytes.try_get_i16() {
        Err(_incomplete) => return Ok(None),
        Ok(TRAILER) => return Ok(None),
        Ok(count) => match usize::try_from(count) {
            Ok(count) if count <= columns.len() => count,
            _ => return Err(UnexpectedCopy.into()),
        },
    };
    for (number, (name, kind)) in (1..=count).zip(columns) {
        let value = match bytes.try_get_i32() {
            Err(_incomplete) => return Ok(None),
            Ok(NULL) if *kind == ColumnType::Real => {
                row.push(Number::of_real(None));
                continue;
            }
            Ok(NULL) => return Err(unexpected(number, Some(*name), "is NULL", expected(*kind))),
            Ok(8) => match bytes.try_get_i64() {
                Err(_incomplete) => return Ok(None),
                Ok(value) => value,
            },
            Ok(length) => {
                let found = format!("has {length} bytes");
                return Err(unexpected(number, Some(*name), &found, expected(*kind)));
            }
        };
        row.push(match kind {
            ColumnType::Real => Number::of_real(Some(f64::from_bits(value.cast_unsigned()))),
            ColumnType::Time => {
                Number::of_integer(value.saturating_add(POSTGRES_EPOCH_US).saturating_mul(1000))
            }
            ColumnType::Integer | ColumnType::Bool | ColumnType::Text | ColumnType::Json => {
                Number::of_integer(value)
            }
        });
    }
    Ok(Some(()))
}

const fn expected(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Real => "a floating-point number of 8 bytes",
        ColumnType::Time => "a time",
        ColumnType::Integer | ColumnType::Bool | ColumnType::Text | ColumnType::Json => {
            "an integer of 8 bytes"
        }
    }
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
        put_sample(&mut out, POSTGRES_EPOCH_US + 1, 7, 1.0, None);
        put_trailer(&mut out);
        let mut expected = b"PGCOPY\n\xff\r\n\0".to_vec();
        expected.extend_from_slice(&[0; 8]);
        expected.extend_from_slice(&[0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        expected.extend_from_slice(&[
            0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xff, 0xff,
        ]);
        assert_eq!(out, expected);
        let mut with_key = BytesMut::new();
        put_sample(&mut with_key, POSTGRES_EPOCH_US + 1, 7, 1.0, Some(-2));
        let row = &expected[19..expected.len() - 2];
        assert_eq!(with_key[..], [&[0, 4], &row[2..], &[0, 0, 0, 4, 255, 255, 255, 254]].concat());
    }

    #[test]
    fn a_window_has_four_more_fields_which_may_be_null() {
        let (mut plain, mut out) = (BytesMut::new(), BytesMut::new());
        put_sample(&mut plain, 5, 7, 1.0, Some(9));
        let window = SampleWindow { count: 3, min: 0.5, max: 2.0, sum: f64::NAN };
        put_window(&mut out, (5, 7, 1.0), &window, Some(9));
        let (values, key) = plain.split_at(plain.len() - 8);
        let mut expected = vec![0, 8];
        expected.extend_from_slice(&values[2..]);
        expected.extend_from_slice(&[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 3]);
        expected.extend_from_slice(&[0, 0, 0, 8, 0x3f, 0xe0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[0, 0, 0, 8, 0x40, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
        expected.extend_from_slice(key);
        assert_eq!(out, expected);
    }

    #[test]
    fn rows_are_decoded_from_any_pieces() {
        let mut out = BytesMut::new();
        put_header(&mut out);
        put_sample(&mut out, POSTGRES_EPOCH_US + 1, 7, 1.5, None);
        put_sample(&mut out, 5, -8, f64::NEG_INFINITY, None);
        put_sample(&mut out, 6, 9, 0.0, None);
        out.truncate(out.len() - 12);
        out.put_i32(NULL);
        put_trailer(&mut out);
        for piece in [1, 5, 19, 44, out.len()] {
            let (mut reader, mut rows) = (CopyReader::new(&COLUMNS), Vec::new());
            for bytes in out.chunks(piece) {
                reader.append(bytes);
                while let Some(row) = reader.next_row().unwrap() {
                    let [time, series_id, value] = row else { panic!("{row:?}") };
                    rows.push((time.integer(), series_id.integer(), value.real().to_bits()));
                }
            }
            let first = ((POSTGRES_EPOCH_US + 1) * 1000, 7, 1.5_f64.to_bits());
            let null = (6000, 9, f64::NAN.to_bits());
            assert_eq!(rows, [first, (5000, -8, f64::NEG_INFINITY.to_bits()), null]);
        }
    }

    const COLUMNS: [Column; 3] =
        [("time", ColumnType::Time), ("series_id", ColumnType::Integer), ("value", ColumnType::Real)];

    fn message(fields: &[u8]) -> String {
        let mut reader = CopyReader::new(&COLUMNS);
        reader.append(&[HEADER, &[0, 3], fields].concat());
        reader.next_row().unwrap_err().to_string()
    }

    #[test]
    fn null_and_other_lengths_are_errors_that_name_the_column() {
        let time: [u8; 12] = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(message(&[255; 4]), "column 1 (time) is NULL where a time is expected");
        assert_eq!(
            message(&[&time[..], &[0, 0, 0, 4]].concat()),
            "column 2 (series_id) has 4 bytes where an integer of 8 bytes is expected"
        );
        assert_eq!(
            message(&[&time[..], &time, &[0, 0, 0, 3]].concat()),
            "column 3 (value) has 3 bytes where a floating-point number of 8 bytes is expected"
        );
    }

    fn read(bytes: &[u8]) -> Result<bool, DatabaseError> {
        let mut reader = CopyReader::new(&[("number", ColumnType::Integer)]);
        reader.append(bytes);
        reader.next_row().map(|row| row.is_some())
    }

    #[test]
    fn other_bytes_are_an_error() {
        let mut head = HEADER.to_vec();
        assert!(matches!(read(&head), Ok(false)));
        head.extend_from_slice(&[0, 1, 0, 0, 0, 4, 0, 0, 0, 0]);
        assert!(read(&head).is_err(), "a field of four bytes");
        assert!(read(&[0; 19]).is_err(), "another head");
        assert!(read(&[HEADER, &[0, 2]].concat()).is_err(), "two columns");
    }
}
