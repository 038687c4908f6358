//! Tests of the formats.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;

use super::*;
use polymeter_store::reader::SampleWindow;

use crate::rows::SeriesTexts;
use crate::writer::{COLUMNS, WriteError};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn series(job_id: Option<&str>, labels: &str) -> Arc<SeriesTexts> {
    Arc::new(SeriesTexts {
        job_id: job_id.map(str::to_owned),
        node: "n1".to_owned(),
        metric: "user.\"x\"".to_owned(),
        unit: "=bytes,".to_owned(),
        labels: labels.to_owned(),
    })
}

/// Writes 3 samples of a job and a window of its node.
fn written(format: Format) -> Vec<u8> {
    let output = Shared::default();
    let properties = vec![("polymeter.job".to_owned(), "{}".to_owned())];
    let mut encoder = Encoder::start(format.writer(output.clone(), properties).unwrap()).unwrap();
    let of_job = series(Some("42"), "{\"cpu\":\"0\"}");
    for (time_us, value) in [(-1, 0.1), (1_700_000_000_000_001, 1e300), (1_700_000_000_000_002, f64::NAN)] {
        assert!(encoder.add(&of_job, time_us, value, None));
    }
    let window = SampleWindow { count: 9, min: -4.5, max: 1e18, sum: f64::NAN };
    assert!(encoder.add(&series(None, "{}"), 0, -3.0, Some(window)));
    assert_eq!(encoder.finish().unwrap(), 4);
    output.0.lock().unwrap().clone()
}

#[test]
fn csv_is_quoted_and_no_formula() {
    let text = String::from_utf8(written(Format::Csv)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let texts = r#""user.""x""","'=bytes,","{""cpu"":""0""}""#;
    assert_eq!(lines[0], COLUMNS.join(","));
    assert_eq!(lines[1], format!("1969-12-31T23:59:59.999999Z,42,n1,{texts},0.1,,,,"));
    assert!(lines[2].starts_with("2023-11-14T22:13:20.000001Z,42,") && lines[2].ends_with("000000,,,,"));
    assert_eq!(lines[3], format!("2023-11-14T22:13:20.000002Z,42,n1,{texts},NaN,,,,"));
    assert_eq!(
        lines[4],
        r#"1970-01-01T00:00:00.000000Z,,n1,"user.""x""","'=bytes,",{},-3,9,-4.5,1000000000000000000,"#
    );
    assert_eq!(lines.len(), 5);
}

#[test]
fn each_json_line_is_an_object_with_all_columns() {
    let text = String::from_utf8(written(Format::Jsonl)).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    for line in &lines {
        assert!(COLUMNS[..7].iter().all(|column| line.get(column).is_some()), "{line}");
    }
    assert_eq!(lines[0]["time"], "1969-12-31T23:59:59.999999Z");
    assert_eq!((&lines[0]["unit"], &lines[0]["labels"]["cpu"]), (&"=bytes,".into(), &"0".into()));
    assert_eq!((lines[1]["value"].as_f64(), lines[2]["value"].is_null()), (Some(1e300), true));
    assert_eq!((lines[3]["job_id"].is_null(), lines[3]["value"].as_f64()), (true, Some(-3.0)));
    assert_eq!((lines[0].get("count"), &lines[3]["count"]), (None, &9.into()));
    let numbers = ["min", "max", "sum"].map(|name| lines[3][name].as_f64());
    assert_eq!(numbers, [Some(-4.5), Some(1e18), None]);
}

#[test]
fn parquet_has_all_rows_and_the_properties() {
    let reader = SerializedFileReader::new(bytes::Bytes::from(written(Format::Parquet))).unwrap();
    let properties = reader.metadata().file_metadata().key_value_metadata().unwrap();
    assert!(properties.iter().any(|pair| pair.key == "polymeter.job"));
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let columns: Vec<&str> = rows[0].get_column_iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(columns, COLUMNS);
    let field = |row: usize, column: usize| rows[row].get_column_iter().nth(column).unwrap().1.clone();
    assert_eq!((rows.len(), field(0, 0)), (4, Field::TimestampMicros(-1)));
    assert_eq!((field(0, 1), field(3, 1)), (Field::Str("42".to_owned()), Field::Null));
    assert_eq!((field(1, 6), field(3, 6)), (Field::Double(1e300), Field::Double(-3.0)));
    assert_eq!(field(0, 3), Field::Str("user.\"x\"".to_owned()));
    assert_eq!((field(0, 7), field(3, 7)), (Field::Null, Field::Long(9)));
    assert_eq!(
        (field(3, 8), field(3, 9), field(3, 10)),
        (Field::Double(-4.5), Field::Double(1e18), Field::Null)
    );
}

#[test]
fn parts_of_a_file_follow_each_other() {
    let output = Shared::default();
    let mut encoder = Encoder::start(Format::Parquet.writer(output.clone(), Vec::new()).unwrap()).unwrap();
    let (first, second) = (series(Some("42"), "{}"), series(None, "{}"));
    for number in 0..600_000_u32 {
        let series = if number < 400_001 { &first } else { &second };
        assert!(encoder.add(series, i64::from(number), f64::from(number), None));
    }
    assert_eq!(encoder.finish().unwrap(), 600_000);
    let bytes = output.0.lock().unwrap().clone();
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 3);
    for (number, row) in reader.get_row_iter(None).unwrap().map(Result::unwrap).enumerate() {
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let number = u32::try_from(number).unwrap();
        assert_eq!(*fields[0], Field::TimestampMicros(number.into()));
        assert_eq!(*fields[1] == Field::Null, number >= 400_001);
        assert_eq!(*fields[6], Field::Double(f64::from(number)));
    }
}

type Row = (SeriesTexts, i64, f64, Option<SampleWindow>);

/// Returns the rows of a file with the texts of their series.
fn read(bytes: &[u8]) -> Result<Vec<Row>, ReadError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let mut samples = Vec::new();
    SamplesFile::open(file)?.read(|rows| {
        for (series, of_series) in rows.series() {
            samples
                .extend(of_series.map(|(time_us, value, window)| (series.clone(), time_us, value, window)));
        }
        Ok::<_, ReadError>(())
    })?;
    Ok(samples)
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let samples = read(&written(Format::Parquet)).unwrap();
    let of_job = series(Some("42"), "{\"cpu\":\"0\"}");
    assert_eq!(samples[0], ((*of_job).clone(), -1, 0.1, None));
    assert_eq!(samples[1], ((*of_job).clone(), 1_700_000_000_000_001, 1e300, None));
    assert!(samples[2].2.is_nan());
    let (texts, time_us, value, window) = &samples[3];
    assert_eq!((texts, *time_us, *value), (&*series(None, "{}"), 0, -3.0));
    let window = window.unwrap();
    assert_eq!((window.count, window.min, window.max, window.sum.is_nan()), (9, -4.5, 1e18, true));
    assert_eq!(samples.len(), 4);
}

#[test]
fn large_files_are_read_in_parts() {
    let output = Shared::default();
    let mut encoder = Encoder::start(Format::Parquet.writer(output.clone(), Vec::new()).unwrap()).unwrap();
    let (first, second) = (series(Some("42"), "{}"), series(None, "{}"));
    for number in 0..300_000_u32 {
        let series = if number % 2 == 0 { &first } else { &second };
        assert!(encoder.add(series, i64::from(number), f64::from(number), None));
    }
    encoder.finish().unwrap();
    let samples = read(&output.0.lock().unwrap()).unwrap();
    assert_eq!(samples.len(), 300_000);
    for (number, (texts, time_us, value, _)) in (0_u32..).zip(samples) {
        assert_eq!((texts.job_id.is_some(), time_us, value), (number % 2 == 0, number.into(), number.into()));
    }
}

#[test]
fn other_files_are_refused() {
    let whole = written(Format::Parquet);
    for bytes in [b"".as_slice(), b"PAR1", b"time,job_id\n", &whole[..whole.len() - 9]] {
        assert!(matches!(read(bytes), Err(ReadError::Parquet(_))), "{bytes:?}");
    }
    let schema = "message sample { required int64 time (TIMESTAMP(MICROS, true)); required double value; }";
    let schema = Arc::new(::parquet::schema::parser::parse_message_type(schema).unwrap());
    let mut other = Vec::new();
    ::parquet::file::writer::SerializedFileWriter::new(&mut other, schema, Arc::default())
        .unwrap()
        .close()
        .unwrap();
    assert!(matches!(read(&other), Err(ReadError::OtherColumns)));
}

#[test]
fn an_error_of_the_output_ends_the_export() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut encoder = Encoder::start(Format::Jsonl.writer(Full, Vec::new()).unwrap()).unwrap();
    let of_job = series(Some("42"), "{}");
    while encoder.add(&of_job, 0, 0.0, None) {}
    let error = encoder.finish().unwrap_err();
    assert!(matches!(&error, WriteError::Io(error) if error.kind() == io::ErrorKind::StorageFull), "{error}");
}

#[test]
fn the_extension_of_a_file_names_its_format() {
    for format in Format::ALL {
        assert_eq!(Format::with_extension(format.extension()), Some(format));
    }
    assert_eq!(Format::with_extension("txt"), None);
}
