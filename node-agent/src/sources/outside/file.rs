//! Files of lines `name value [time]`, which users or tools write.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::connection::{Connection, DeviceError, Found, Number};
use super::lines::{Value, Values};
use super::named_lines::{find_names, offer_names};
use super::settings::DeviceMetric;

/// Bytes of a file that are read.
const FILE_BYTES: u64 = 1024 * 1024;

/// Time of a measurement: the one that its line states, or the time of the last change of the file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Measured {
    Stated(f64),
    Written(i64, i64),
}

#[derive(Debug)]
pub(super) struct FileLines {
    path: PathBuf,
    /// Measurements that were read last, by name.
    last: BTreeMap<String, Measured>,
}

impl FileLines {
    /// `path` is absolute, below `root`.
    pub(super) fn new(root: &Path, path: &str) -> Self {
        Self { path: root.join(path.trim_start_matches('/')), last: BTreeMap::new() }
    }

    /// Reads all values, and the time of the last change of the file.
    fn values(&self) -> Result<(Values, Measured), DeviceError> {
        let file = open(&self.path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file").into());
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES + 1).read_to_end(&mut text)?;
        if text.len() as u64 > FILE_BYTES {
            return Err(DeviceError::Malformed("the file has more than 1 MiB"));
        }
        let mut values = Values::default();
        let whole = values.take_lines(&text);
        values.take_line(text.get(whole..).unwrap_or_default());
        Ok((values, Measured::Written(metadata.mtime(), metadata.mtime_nsec())))
    }
}

/// Follows no link that a user may have put in the place of the file, and does not wait for the other end of
/// a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

impl Connection for FileLines {
    fn find(&mut self, metrics: &[DeviceMetric]) -> Result<Vec<Found>, DeviceError> {
        let (values, _) = self.values()?;
        Ok(find_names(metrics, values.by_name.keys()))
    }

    fn read(&mut self, wanted: &[&str], numbers: &mut [Option<Number>]) -> Result<(), DeviceError> {
        let (values, written) = self.values()?;
        for (address, number) in wanted.iter().zip(numbers) {
            let Some(Value { number: read, time }) = values.by_name.get(*address) else { continue };
            let measured = time.map_or(written, Measured::Stated);
            if self.last.insert((*address).to_owned(), measured) != Some(measured) {
                *number = Some(Number::Double(*read));
            }
        }
        Ok(())
    }

    fn offers(&mut self) -> Result<Vec<DeviceMetric>, DeviceError> {
        let (values, _) = self.values()?;
        Ok(offer_names(values.by_name.keys()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn metric(name: &str, address: &str) -> DeviceMetric {
        DeviceMetric::new(
            polymeter_proto::name::MetricName::new(name.to_owned()).unwrap(),
            address.to_owned(),
        )
    }

    fn read(file: &mut FileLines, found: &[Found]) -> Vec<Option<Number>> {
        let wanted: Vec<&str> = found.iter().map(|found| &*found.address).collect();
        let mut numbers = vec![None; wanted.len()];
        file.read(&wanted, &mut numbers).unwrap();
        numbers
    }

    #[test]
    fn each_measurement_is_read_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("power");
        fs::write(&path, "n1 10 1700000000\nn2 20\n").unwrap();
        let mut file = FileLines::new(root.path(), "/power");
        let found = file.find(&[metric("power", "n?")]).unwrap();
        let labels: Vec<_> = found.iter().map(|found| found.labels[0].clone()).collect();
        assert_eq!(labels, ["n1", "n2"].map(|name| ("name".to_owned(), name.to_owned())));
        let both = |one, other| [one, other].map(|value: Option<f64>| value.map(Number::Double)).to_vec();
        assert_eq!(read(&mut file, &found), both(Some(10.0), Some(20.0)));
        assert_eq!(read(&mut file, &found), both(None, None), "nothing was written");
        fs::write(&path, "n1 10 1700000000\nn2 20\n").unwrap();
        let later = fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_eq!(read(&mut file, &found), both(None, Some(20.0)), "the time of n1 is the same");
        fs::write(&path, "n1 11 1700000001").unwrap();
        assert_eq!(read(&mut file, &found), both(Some(11.0), None), "n2 is missing");
    }

    #[test]
    fn other_files_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let secret = root.path().join("secret");
        fs::write(&secret, "n1 1\n").unwrap();
        std::os::unix::fs::symlink(&secret, root.path().join("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        fs::write(root.path().join("huge"), vec![b'\n'; 1024 * 1024 + 1]).unwrap();
        for name in ["link", "pipe", "huge", "missing", "."] {
            let mut file = FileLines::new(root.path(), name);
            assert!(file.find(&[metric("power", "*")]).is_err(), "{name}");
        }
    }
}
