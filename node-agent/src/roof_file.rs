//! File with the roofs of the node, which `polymeter calibrate` writes.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use polymeter_proto::series::Roofs;
use serde::Deserialize;

pub const DEFAULT_PATH: &str = "/var/lib/polymeter/roofs.json";

/// A file of `polymeter calibrate` has less than a kilobyte.
const BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, Deserialize)]
struct Contents {
    roofs: Roofs,
}

#[derive(Debug, thiserror::Error)]
pub enum RoofFileError {
    #[error("cannot read the roofs in {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot use the roofs in {}; write the file again with `polymeter calibrate`", .0.display())]
    Contents(PathBuf, #[source] serde_json::Error),
    #[error("cannot use the roofs in {}: one is 0; write the file again with `polymeter calibrate`", .0.display())]
    Zero(PathBuf),
}

/// Reads the roofs; none if there is no such file.
pub fn read(path: &Path) -> Result<Option<Roofs>, RoofFileError> {
    let mut text = Vec::new();
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened,
    };
    file.and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text))
        .map_err(|error| RoofFileError::Read(path.to_owned(), error))?;
    let Contents { roofs } =
        serde_json::from_slice(&text).map_err(|error| RoofFileError::Contents(path.to_owned(), error))?;
    let Roofs { memory_bytes_per_s, double_flop_per_s, single_flop_per_s } = roofs;
    if [memory_bytes_per_s, double_flop_per_s, single_flop_per_s].contains(&0) {
        return Err(RoofFileError::Zero(path.to_owned()));
    }
    Ok(Some(roofs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_all_roofs_or_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("roofs.json");
        assert_eq!(read(&path).unwrap(), None);
        let text = |single: u64| {
            format!(
                r#"{{"node":"n1","roofs":{{"memory_bytes_per_s":3,"double_flop_per_s":2,"single_flop_per_s":{single}}}}}"#
            )
        };
        std::fs::write(&path, text(4)).unwrap();
        let roofs = Roofs { memory_bytes_per_s: 3, double_flop_per_s: 2, single_flop_per_s: 4 };
        assert_eq!(read(&path).unwrap(), Some(roofs));
        for unusable in
            [text(0), "{}".to_owned(), String::new(), r#"{"roofs":{"memory_bytes_per_s":3}}"#.into()]
        {
            std::fs::write(&path, unusable).unwrap();
            let text = read(&path).unwrap_err().to_string();
            assert!(text.contains("polymeter calibrate") && text.contains("roofs.json"), "{text}");
        }
        assert!(matches!(read(directory.path()), Err(RoofFileError::Read(..))));
    }
}
