//! Managers of accounts: entries of the configuration, and a file in the form of `sacctmgr`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

use polymeter_service::document::read_text;
use polymeter_service::users::user_or_group;

const WRITABLE: u32 = 0o022;

/// Managers of an account, who read its jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managers {
    /// Account or project, as the scheduler names it.
    pub account: String,
    /// A leading `@` marks a group.
    pub names: Vec<String>,
}

impl FromStr for Managers {
    type Err = String;

    /// Parses `ACCOUNT|USER,@GROUP`. An account may have no managers: `ACCOUNT|`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('|').map(|(account, names)| (account.trim(), names));
        let Some((account, names)) = parts.filter(|(account, _)| !account.is_empty()) else {
            return Err(format!("expected ACCOUNT|USER,@GROUP, found `{text}`"));
        };
        if names.contains('|') {
            return Err(format!(
                "expected one `|`, found `{text}`; type: sacctmgr ... format=account,coordinators"
            ));
        }
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names =
            names.map(|name| user_or_group(name).map_err(|error| format!("invalid name `{name}`: {error}")));
        Ok(Self { account: account.to_owned(), names: names.collect::<Result<_, _>>()? })
    }
}

/// Reads a file with an entry on each line; empty lines and those with a `#` are comments. Returns the
/// faults, too: a line with one grants nothing, and neither does a file that others may change.
pub(super) fn read(path: &Path) -> (Vec<Managers>, Vec<String>) {
    if let Err(fault) = check_owner(path) {
        return (Vec::new(), vec![format!("cannot use the managers of {}: {fault}", path.display())]);
    }
    match read_text(path) {
        Ok(text) => parse(path, &text),
        Err(faults) => (Vec::new(), faults.0.iter().map(ToString::to_string).collect()),
    }
}

/// Refuses a file by which another user than root and this one could become a manager.
fn check_owner(path: &Path) -> Result<(), String> {
    let metadata = path.metadata().map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&metadata.uid()) {
        return Err(format!("it belongs to uid {}; type: chown root {}", metadata.uid(), path.display()));
    }
    if metadata.mode() & WRITABLE != 0 {
        return Err(format!("other users can change it; type: chmod go-w {}", path.display()));
    }
    Ok(())
}

fn parse(path: &Path, text: &str) -> (Vec<Managers>, Vec<String>) {
    let (mut managers, mut faults) = (Vec::new(), Vec::new());
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.parse() {
            Ok(entry) => managers.push(entry),
            Err(fault) => faults.push(format!("{}:{number}: {fault}", path.display())),
        }
    }
    (managers, faults)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(account: &str, names: &[&str]) -> Managers {
        Managers { account: account.to_owned(), names: names.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn a_file_has_the_lines_of_sacctmgr() {
        let text = "# Account|Coordinators\nchem|ada,bob\nbio|\n\n geo | @pi , eve \nchem\n|x\nx|a b,c\nmath|a\\|b\n";
        let (managers, faults) = parse(Path::new("m"), text);
        assert_eq!(
            managers,
            [
                entry("chem", &["ada", "bob"]),
                entry("bio", &[]),
                entry("geo", &["@pi", "eve"]),
                // Names of a domain may have spaces.
                entry("x", &["a b", "c"]),
            ]
        );
        let places: Vec<&str> = faults.iter().map(|fault| fault.split(": ").next().unwrap()).collect();
        assert_eq!(places, ["m:6", "m:7", "m:9"], "{faults:?}");
    }

    #[test]
    fn a_file_that_others_can_change_grants_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("managers");
        let missing = read(&path);
        assert!(missing.0.is_empty() && missing.1.len() == 1, "{missing:?}");
        fs::write(&path, "chem|ada\n").unwrap();
        for (mode, count) in [(0o644, 1), (0o664, 0), (0o646, 0), (0o600, 1)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let (managers, faults) = read(&path);
            assert_eq!((managers.len(), faults.len()), (count, 1 - count), "{mode:o}: {faults:?}");
        }
        fs::write(&path, b"chem|\xff\n").unwrap();
        assert_eq!(read(&path).1.len(), 1);
    }
}
