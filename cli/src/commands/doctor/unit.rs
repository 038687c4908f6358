//! Unit of a daemon, as the files of systemd state it. No service manager is asked.

use std::fs;
use std::path::{Path, PathBuf};

/// Sorted by precedence.
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unit {
    /// None for root.
    pub(super) user: Option<String>,
    pub(super) capabilities: Vec<String>,
    /// None if it is not set.
    pub(super) rt_priority: Option<u64>,
    pub(super) is_enabled: bool,
}

impl Unit {
    /// Looks below `root`; none if the unit is not installed.
    pub(super) fn read(root: &Path, name: &str) -> Option<Self> {
        let file = format!("{name}.service");
        let directories = DIRECTORIES.map(|directory| root.join(directory.trim_start_matches('/')));
        let path = directories.iter().map(|directory| directory.join(&file)).find(|path| path.is_file())?;
        let mut unit = Self::default();
        unit.apply(&fs::read_to_string(path).ok()?);
        for path in drop_ins(&directories, &file) {
            unit.apply(&fs::read_to_string(path).unwrap_or_default());
        }
        unit.is_enabled = directories.iter().any(|directory| {
            fs::symlink_metadata(directory.join("multi-user.target.wants").join(&file)).is_ok()
        });
        Some(unit)
    }

    /// Applies the settings of a file: later ones replace earlier ones, those of lists are added, and an
    /// empty one resets a list.
    fn apply(&mut self, text: &str) {
        for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
            let value = value.trim();
            match key.trim() {
                "User" => self.user = (!value.is_empty() && value != "root").then(|| value.to_owned()),
                "LimitRTPRIO" => self.rt_priority = limit(value),
                "AmbientCapabilities" if value.is_empty() => self.capabilities.clear(),
                "AmbientCapabilities" => {
                    self.capabilities.extend(value.split_whitespace().map(str::to_owned));
                }
                _ => {}
            }
        }
    }
}

/// Sorted by their names.
fn drop_ins(directories: &[PathBuf], file: &str) -> Vec<PathBuf> {
    let entries = directories
        .iter()
        .filter_map(|directory| fs::read_dir(directory.join(format!("{file}.d"))).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "conf")).collect();
    paths.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    paths
}

/// Takes the hard limit, which is behind a colon.
fn limit(value: &str) -> Option<u64> {
    let hard = value.rsplit_once(':').map_or(value, |(_, hard)| hard);
    if hard == "infinity" { Some(u64::MAX) } else { hard.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_the_package_is_read_with_its_drop_ins() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(Unit::read(root.path(), "polymeter-agent"), None);
        let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/systemd/polymeter-agent.service");
        put("lib/systemd/system/polymeter-agent.service", &fs::read_to_string(packaged).unwrap());
        let unit = Unit::read(root.path(), "polymeter-agent").unwrap();
        assert_eq!(
            (unit.user.as_deref(), unit.rt_priority, unit.is_enabled),
            (Some("polymeter"), Some(10), false)
        );
        assert_eq!(unit.capabilities, ["CAP_PERFMON", "CAP_SYS_NICE", "CAP_SYS_PTRACE"]);
        let drop_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/systemd/drop-ins/root.conf");
        put("etc/systemd/system/polymeter-agent.service.d/root.conf", &fs::read_to_string(drop_in).unwrap());
        put("etc/systemd/system/multi-user.target.wants/polymeter-agent.service", "");
        let unit = Unit::read(root.path(), "polymeter-agent").unwrap();
        assert_eq!((unit.user, unit.is_enabled), (None, true));
    }
}
