//! A file that appears when it is complete.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::failure::Failure;

/// Mode before the user's mask applies.
const MODE: u32 = 0o666;

/// A file that has a temporary name in its directory until it is kept, and is removed if it is not.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    is_replaced: bool,
    incomplete: TempPath,
}

impl NewFile {
    /// Fails if the file exists, unless it is to be replaced; `remedy` says how to avoid that.
    pub(crate) fn create(path: PathBuf, is_replaced: bool, remedy: &str) -> Result<(Self, File), Failure> {
        if !is_replaced && path.symlink_metadata().is_ok() {
            let path = path.display();
            return Err(Failure::Failed(format!("cannot write {path}: the file exists; {remedy}")));
        }
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let created = tempfile::Builder::new()
            .prefix(".polymeter-")
            .permissions(Permissions::from_mode(MODE))
            .tempfile_in(directory.unwrap_or(Path::new(".")));
        let (file, incomplete) = created.map_err(|error| cannot_write(&path, &error))?.into_parts();
        Ok((Self { path, is_replaced, incomplete }, file))
    }

    /// Gives the complete file its name. Fails if a file has appeared there meanwhile that is not to be
    /// replaced.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        let Self { path, is_replaced, incomplete } = self;
        let kept = if is_replaced { incomplete.persist(&path) } else { incomplete.persist_noclobber(&path) };
        kept.map_err(|error| cannot_write(&path, &error.error))
    }
}

pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let kind = error.kind();
    let message = error.to_string();
    // tempfile adds the temporary name, which users do not know, and gives no access to the error of the
    // system.
    let cause = message.split(" at path \"").next().unwrap_or_default();
    let remedy = if kind == ErrorKind::NotFound {
        "; create the directory, or name another"
    } else if [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem].contains(&kind) {
        "; name a file in a directory that you can write to"
    } else if [ErrorKind::StorageFull, ErrorKind::QuotaExceeded].contains(&kind) {
        "; free some space, or name another directory"
    } else {
        ""
    };
    Failure::Failed(format!("cannot write {}: {cause}{remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_does_not_show_the_temporary_name() {
        let error = NewFile::create("/nowhere/page.html".into(), false, "").map(|_| ()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("cannot write /nowhere/page.html: ") && text.contains("create the directory")
        );
        assert!(!text.contains(".polymeter-"), "{text}");
    }
}
