//! A private, small file system for one program.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::namespaces::Namespaces;

/// Wraps `command` so that it sees a tmpfs of `size` mounted at `directory`, which must exist. The wrapper
/// becomes the program and keeps its pid. Only this program sees the file system, which is removed when it
/// ends.
pub fn with_tmpfs(directory: &Path, size: &str, command: &Command) -> Command {
    let script = "mount -t tmpfs -o \"size=$1\" tmpfs \"$2\" && shift 2 && exec \"$@\"";
    let mut within = Command::new("unshare");
    within.args(["--mount", "sh", "-c", script, "sh", size]).arg(directory);
    crate::basics::wrap(within, command)
}

/// A small file system that several programs share in a mount namespace of their own. It is removed when they
/// have ended.
pub struct SharedDisk {
    namespace: Namespaces,
    directory: PathBuf,
}

impl SharedDisk {
    /// Mounts a tmpfs of `size` over `directory`, with a copy of the directory's contents.
    pub fn over(directory: &Path, size: &str) -> Self {
        let script =
            "copy=$(mktemp -d); mount -t tmpfs -o \"size=$1\" tmpfs \"$copy\"; cp -a \"$2/.\" \"$copy\"
            mount --move \"$copy\" \"$2\"; rmdir \"$copy\"";
        let arguments = [size.as_ref(), directory.as_os_str()];
        let namespace = Namespaces::create(&["--mount"], script, &arguments).unwrap();
        Self { namespace, directory: directory.to_owned() }
    }

    /// Command with arguments that runs a program in the namespace.
    pub fn entered(&self) -> Vec<String> {
        self.namespace.entered()
    }

    /// Writes a file that takes all free space, until `free`.
    pub fn fill(&self) {
        self.shell("dd if=/dev/zero of=ballast bs=64k 2>/dev/null; test -s ballast");
    }

    pub fn free(&self) {
        self.shell("rm ballast");
    }

    fn shell(&self, script: &str) {
        let script = format!("cd '{}' && {{ {script}; }}", self.directory.display());
        let words = self.entered();
        let status = Command::new(&words[0]).args(&words[1..]).args(["sh", "-c", &script]).status().unwrap();
        assert!(status.success(), "{script}: {status}");
    }
}

/// Reason why this machine cannot mount a private file system.
pub fn missing() -> Option<String> {
    match Command::new("unshare").args(["--mount", "true"]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}
