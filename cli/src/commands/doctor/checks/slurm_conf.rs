//! `slurm.conf`, as far as the tracking of jobs depends on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Sorted by precedence. The last one is that of a node without configuration files of its own.
const PLACES: [&str; 4] = [
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
];

/// Includes are followed to this depth.
const DEPTH: u32 = 4;

/// Grouped by their names in lower case.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SlurmConf {
    settings: BTreeMap<String, Vec<String>>,
}

impl SlurmConf {
    pub(super) fn find() -> Option<PathBuf> {
        let named = std::env::var_os("SLURM_CONF").map(PathBuf::from);
        named.into_iter().chain(PLACES.map(PathBuf::from)).find(|path| path.is_file())
    }

    /// Also reads the files that it includes.
    pub(super) fn read(path: &Path) -> std::io::Result<Self> {
        let mut conf = Self::default();
        conf.add(path, &fs::read_to_string(path)?, DEPTH);
        Ok(conf)
    }

    fn add(&mut self, path: &Path, text: &str, depth: u32) {
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some((word, file)) = line.split_once(char::is_whitespace)
                && word.eq_ignore_ascii_case("include")
                && depth > 0
            {
                let file = path.parent().unwrap_or(Path::new("/")).join(file.trim());
                self.add(&file, &fs::read_to_string(&file).unwrap_or_default(), depth - 1);
                continue;
            }
            for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
                self.settings.entry(key.to_lowercase()).or_default().push(value.to_owned());
            }
        }
    }

    /// Values of a setting that may be given several times, and as lists.
    pub(super) fn values(&self, key: &str) -> Vec<&str> {
        let values = self.settings.get(&key.to_lowercase()).into_iter().flatten();
        values.flat_map(|value| value.split(',')).filter(|value| !value.is_empty()).collect()
    }

    /// True if a value of a setting contains a word, in any case.
    pub(super) fn has(&self, key: &str, word: &str) -> bool {
        self.values(key).iter().any(|value| value.eq_ignore_ascii_case(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_in_any_case_and_in_included_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("slurm.conf");
        fs::write(directory.path().join("more.conf"), "Epilog=/etc/slurm/epilog.d/*\n").unwrap();
        fs::write(
            &path,
            "SlurmctldHost=head # the controller\nPROLOG=/a\nProlog=/b/*\nPrologFlags=Alloc,contain\n\
             #ProctrackType=proctrack/pgid\nInclude more.conf\nNodeName=n[1-4] CPUs=8 State=UNKNOWN\n",
        )
        .unwrap();
        let conf = SlurmConf::read(&path).unwrap();
        assert_eq!(conf.values("Prolog"), ["/a", "/b/*"]);
        assert_eq!(conf.values("epilog"), ["/etc/slurm/epilog.d/*"]);
        assert!(conf.has("PrologFlags", "Contain") && !conf.has("PrologFlags", "X11"));
        assert_eq!((conf.values("ProctrackType").len(), conf.values("SlurmctldHost")), (0, vec!["head"]));
    }
}
