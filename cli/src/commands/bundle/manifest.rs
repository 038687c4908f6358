//! List of a bundle's files with their hashes, in the format of sha256sum(1).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Not listed in itself.
pub(super) const NAME: &str = "MANIFEST.sha256";

/// Some 20,000 files, where a bundle has a dozen.
pub(super) const BYTES_MAX: u64 = 2 * 1024 * 1024;

const CHUNK_BYTES: usize = 64 * 1024;

/// Hashes by path.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Manifest(pub(super) BTreeMap<String, String>);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidLine(pub(super) usize);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    Changed(String),
    Missing(String),
    /// Not listed in the manifest.
    Unknown(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(path) => write!(f, "{path} was changed"),
            Self::Missing(path) => write!(f, "{path} is missing"),
            Self::Unknown(path) => write!(f, "{path} is not in the manifest"),
        }
    }
}

impl Manifest {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidLine> {
        let lines = text.lines().enumerate();
        let files = lines.map(|(number, line)| line_parts(line).ok_or(InvalidLine(number + 1)));
        files.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn differences(&self, found: &Self) -> Vec<Difference> {
        let listed = self.0.iter().filter_map(|(path, hash)| match found.0.get(path) {
            None => Some(Difference::Missing(path.clone())),
            Some(other) => (other != hash).then(|| Difference::Changed(path.clone())),
        });
        let unknown =
            found.0.keys().filter(|path| !self.0.contains_key(*path)).cloned().map(Difference::Unknown);
        let mut differences: Vec<Difference> = listed.chain(unknown).collect();
        differences.sort_unstable();
        differences
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(path, hash)| writeln!(f, "{hash}  {path}"))
    }
}

/// Parses a line into path and hash. The path is only compared with those of the files found, and never
/// opened.
fn line_parts(line: &str) -> Option<(String, String)> {
    let (hash, path) = line.split_once("  ")?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_hash && !path.is_empty()).then(|| (path.to_owned(), hash.to_owned()))
}

/// Digest in hexadecimal digits.
pub(super) fn hash(path: &Path) -> io::Result<String> {
    let (mut file, mut hasher, mut chunk) = (File::open(path)?, Sha256::new(), vec![0; CHUNK_BYTES]);
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            read => hasher.update(chunk.get(..read).unwrap_or_default()),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn manifest(files: &[(&str, &str)]) -> Manifest {
        Manifest(files.iter().map(|(path, hash)| ((*path).to_owned(), (*hash).to_owned())).collect())
    }

    #[test]
    fn an_empty_file_has_the_known_hash() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(hash(file.path()).unwrap(), ZERO);
    }

    #[test]
    fn a_written_manifest_is_parsed_to_the_same() {
        let written = manifest(&[("a b", ZERO), ("plots/c.svg", ZERO)]);
        assert_eq!(written.to_string(), format!("{ZERO}  a b\n{ZERO}  plots/c.svg\n"));
        assert_eq!(Manifest::parse(&written.to_string()), Ok(written));
    }

    #[test]
    fn every_difference_is_found() {
        let other = "0".repeat(64);
        let listed = manifest(&[("changed", ZERO), ("missing", ZERO), ("same", ZERO)]);
        let found = manifest(&[("changed", &other), ("same", ZERO), ("unknown", ZERO)]);
        let differences: Vec<String> = listed.differences(&found).iter().map(ToString::to_string).collect();
        assert_eq!(
            differences,
            ["changed was changed", "missing is missing", "unknown is not in the manifest"]
        );
        assert_eq!(listed.differences(&listed), []);
    }

    #[test]
    fn other_text_is_rejected() {
        for line in
            ["x", "  ", &ZERO[1..], &format!("{ZERO}  "), &format!("{ZERO} a"), "ä  a", &"G".repeat(64)]
        {
            let text = format!("{ZERO}  a\n{line}\n");
            assert_eq!(Manifest::parse(&text), Err(InvalidLine(2)), "{line}");
        }
        assert_eq!(Manifest::parse(""), Ok(Manifest::default()));
    }
}
