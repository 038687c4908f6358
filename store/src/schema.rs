//! Version of the schema, and its changes from one version to the next.

/// Version that the files in `schema/` create.
pub(crate) const FIRST_VERSION: i32 = 1;

#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

/// Changes since version 1; the first leads to version 2. A new store gets them too: the files of version 1,
/// and changes that were released, stay as they are.
const MIGRATIONS: &[Migration] = &[];

/// Version of the schema that this program creates and reads.
pub const SCHEMA_VERSION: i32 = version_after(MIGRATIONS);

const fn version_after(mut migrations: &[Migration]) -> i32 {
    let mut version = FIRST_VERSION;
    while let [_, rest @ ..] = migrations {
        version += 1;
        migrations = rest;
    }
    version
}

/// Statement that creates the table of the store's version. Development revisions had a table
/// `schema_version`.
pub(crate) const CREATE_VERSION: &str = "CREATE TABLE store_version (version integer NOT NULL)";

/// Returns the changes that a store of version `found` lacks, `later` ones included, each with the version
/// that it leads to. `found` is 0 for a new store. None if the store is newer than the last change.
pub(crate) fn missing(found: i32, later: &'static [Migration]) -> Option<Vec<(i32, Migration)>> {
    let all = MIGRATIONS.iter().chain(later).copied();
    let changes: Vec<_> = (FIRST_VERSION + 1..).zip(all).collect();
    let newest = changes.last().map_or(FIRST_VERSION, |(newest, _)| *newest);
    (found <= newest).then(|| changes.into_iter().filter(|(version, _)| *version > found).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: Migration = Migration { sqlite: "", postgres: "" };

    #[test]
    fn the_changes_behind_a_version_follow_in_their_order() {
        let versions = |found| -> Option<Vec<i32>> {
            Some(missing(found, &[CHANGE, CHANGE])?.into_iter().map(|(version, _)| version).collect())
        };
        let newest = SCHEMA_VERSION + 2;
        let known: Vec<i32> = (FIRST_VERSION + 1..=newest).collect();
        assert_eq!(versions(0).unwrap(), known);
        assert_eq!(versions(FIRST_VERSION).unwrap(), known);
        assert_eq!(versions(newest - 1).unwrap(), [newest]);
        assert_eq!(versions(newest).unwrap(), Vec::<i32>::new());
        assert_eq!(versions(newest + 1), None);
    }

    #[test]
    fn each_change_raises_the_version() {
        assert_eq!(version_after(&[]), FIRST_VERSION);
        assert_eq!(version_after(&[CHANGE, CHANGE]), FIRST_VERSION + 2);
    }
}
