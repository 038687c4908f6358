//! A private munged, with a key of its own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::wait_until;

/// A running munged, which stops when this value is dropped.
pub struct Munged {
    child: Child,
    directory: TempDir,
}

pub fn missing() -> Option<String> {
    ["munged", "munge", "unmunge"]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_err())
        .map(|program| format!("there is no {program}"))
}

impl Munged {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // munged refuses a socket that other users cannot reach.
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mut key = [0_u8; 128];
        File::open("/dev/urandom").unwrap().read_exact(&mut key).unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("key"), key).unwrap();
        fs::set_permissions(path("key"), PermissionsExt::from_mode(0o600)).unwrap();
        let files = ["key", "socket", "pid", "log", "seed"].map(|name| {
            let option = if name == "socket" { name.to_owned() } else { format!("{name}-file") };
            format!("--{option}={}", path(name).display())
        });
        let log = File::create(path("output")).unwrap();
        // `--force`, since parent directories such as /tmp may be writable by all users.
        let child = Command::new("munged")
            .args(["--foreground", "--force"])
            .args(files)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let munged = Self { child, directory };
        wait_until("munged answers", || munged.munge(&[], "").is_some());
        munged
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn munge(&self, options: &[&str], payload: &str) -> Option<String> {
        let mut child = Command::new("munge")
            .arg("--socket")
            .arg(self.socket())
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(payload.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Munged {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
