//! Certificates of an authority of our own, made by openssl.

#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority and what it has issued, in a directory that all users can read: NAME.crt and NAME.key.
#[derive(Debug)]
pub struct Authority {
    directory: tempfile::TempDir,
}

impl Authority {
    /// Creates root.crt with this name.
    pub fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let authority = Self { directory };
        authority.request("root", name, &["-addext", "basicConstraints=critical,CA:TRUE"]);
        authority
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Issues a certificate for servers and clients to a common name, which is also a host name.
    pub fn issue(&self, name: &str, common_name: &str) {
        let [root, key] = ["root.crt", "root.key"].map(|name| text(&self.path(name)));
        let host = format!("subjectAltName=DNS:{common_name}");
        let uses = "extendedKeyUsage=serverAuth,clientAuth";
        self.request(
            name,
            common_name,
            &[
                "-CA",
                &root,
                "-CAkey",
                &key,
                "-addext",
                "basicConstraints=CA:FALSE",
                "-addext",
                &host,
                "-addext",
                uses,
            ],
        );
    }

    fn request(&self, name: &str, common_name: &str, more: &[&str]) {
        let [certificate, key] = ["crt", "key"].map(|kind| text(&self.path(&format!("{name}.{kind}"))));
        let output = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"])
            .args(["-days", "2", "-out", &certificate, "-keyout", &key])
            .arg("-subj")
            .arg(format!("/CN={common_name}"))
            .args(more)
            .output()
            .expect("openssl can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
