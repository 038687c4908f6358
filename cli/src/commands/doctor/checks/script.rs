//! Scripts of a scheduler.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SCRIPT_BYTES: u64 = 1024 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Script {
    Calls {
        /// It lets Polymeter start an agent.
        starts_agent: bool,
    },
    Other,
    NotExecutable,
    /// Reason why it cannot be read.
    Unreadable(String),
}

impl Script {
    pub(super) fn read(path: &Path) -> Self {
        let (metadata, text) = match metadata_and_text(path) {
            Ok(found) => found,
            Err(error) => return Self::Unreadable(format!("{}: {error}", path.display())),
        };
        let mut code = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let calls = code.clone().any(|line| line.to_lowercase().contains("polymeter"));
        match (calls, metadata.permissions().mode() & 0o111) {
            (false, _) => Self::Other,
            (true, 0) => Self::NotExecutable,
            (true, _) => Self::Calls {
                starts_agent: code.any(|line| line.contains("job start") && !line.contains("--no-agent")),
            },
        }
    }
}

fn metadata_and_text(path: &Path) -> io::Result<(fs::Metadata, String)> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > SCRIPT_BYTES {
        return Err(io::Error::other("it is no script"));
    }
    Ok((metadata, String::from_utf8_lossy(&fs::read(path)?).into_owned()))
}

/// Expands a pattern of slurm.conf, sorted: an absolute path, whose last part may have an asterisk.
pub(super) fn files(pattern: &str) -> Vec<PathBuf> {
    let path = Path::new(pattern);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((before, after)) = name.split_once('*') else { return vec![path.to_owned()] };
    let entries =
        path.parent().and_then(|directory| fs::read_dir(directory).ok()).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
        })
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_found_and_judged() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str, mode| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Script::read(&path)
        };
        let packaged =
            fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/slurm/prolog")).unwrap();
        assert_eq!(put("50-polymeter", &packaged, 0o755), Script::Calls { starts_agent: true });
        let service = packaged.replace("--exit-when-idle", "--no-agent");
        assert_eq!(put("60-service", &service, 0o755), Script::Calls { starts_agent: false });
        assert_eq!(put("70-plain", &packaged, 0o644), Script::NotExecutable);
        assert_eq!(put("80-other", "#!/bin/sh\n# polymeter is not used\ntrue\n", 0o755), Script::Other);
        assert!(matches!(Script::read(directory.path()), Script::Unreadable(_)));
        let names = |pattern: &str| {
            let found = files(&directory.path().join(pattern).display().to_string());
            found
                .iter()
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("*"), ["50-polymeter", "60-service", "70-plain", "80-other"]);
        assert_eq!(
            (names("*-plain"), names("5*")),
            (vec!["70-plain".to_owned()], vec!["50-polymeter".to_owned()])
        );
        assert_eq!(names("absent"), ["absent"]);
    }
}
