//! The version of the schema.

/// The newest version of the schema that this program knows. Each version has a file per backend in `schema/`, and since
/// version 6 one for all of them. Since version 7 there is a file per subject.
pub const SCHEMA_VERSION: i32 = 8;

/// Statements that add tables and columns to a version of the schema, without a new version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addition {
    /// A table that they create: where it exists, they were executed.
    pub(crate) table: &'static str,
    /// The statements.
    pub(crate) statements: &'static str,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::digest::digest;

    /// Returns the version of a file such as `7_views.sql` or `partitions_7.sql`.
    fn version_of(name: &str) -> i32 {
        let is_digit = |c: char| c.is_ascii_digit();
        let digits = name.trim_start_matches(|c| !is_digit(c));
        digits.split(|c| !is_digit(c)).next().unwrap().parse().unwrap()
    }

    /// The files of earlier versions have made stores that exist. A change of the schema belongs to the files of the current version; when
    /// the next version begins, the sums of this one are added by `sha256sum`.
    #[test]
    fn the_files_of_earlier_versions_are_unchanged() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
        let mut found = BTreeMap::new();
        for backend in ["all", "postgres", "sqlite"] {
            for entry in fs::read_dir(directory.join(backend)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if version_of(&name) < SCHEMA_VERSION {
                    let path = format!("{backend}/{name}");
                    let text = fs::read_to_string(directory.join(&path)).unwrap();
                    found.insert(path, digest(&text));
                }
            }
        }
        let sums = fs::read_to_string(directory.join("SHA256SUMS")).unwrap();
        let expected: BTreeMap<String, String> = sums
            .lines()
            .map(|line| line.split_once("  ").unwrap())
            .map(|(sum, path)| (path.to_owned(), sum.to_owned()))
            .collect();
        assert_eq!(found, expected);
    }
}
