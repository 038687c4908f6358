//! Credentials of devices, from files that nobody else can read.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use polymeter_service::key_files::read_secret;

use super::connection::DeviceError;

/// Keys and secrets of one device: a TOML file of strings, such as `community = "..."`.
pub struct Credentials {
    entries: BTreeMap<String, String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.keys()).finish()
    }
}

impl Credentials {
    /// Reads the file at `path`, which no other user may be able to read, with some of the keys `known`.
    ///
    /// # Errors
    ///
    /// The error contains no part of the file.
    pub fn read(path: &Path, known: &[&str]) -> Result<Self, DeviceError> {
        Self::parse(&read_secret(path)?, known)
            .map_err(|reason| DeviceError::Credentials(format!("{}: {reason}", path.display())))
    }

    fn parse(text: &str, known: &[&str]) -> Result<Self, InvalidCredentials> {
        // The parser's own message would quote the line.
        let entries: BTreeMap<String, String> = toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            InvalidCredentials::Syntax(before.matches('\n').count() + 1)
        })?;
        let unknown = entries.keys().position(|key| !known.contains(&key.as_str()));
        match unknown {
            Some(position) => Err(InvalidCredentials::Unknown(position + 1, known.join(", "))),
            None => Ok(Self { entries }),
        }
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(String::as_str)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum InvalidCredentials {
    #[error("line {0} is not of the form key = \"text\"")]
    Syntax(usize),
    #[error("key {0} in alphabetical order is unknown; known keys are {1}")]
    Unknown(usize, String),
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nothing_prints_a_secret() {
        let credentials = Credentials::parse("community = 'hunter2'\n", &["community"]).unwrap();
        assert_eq!(credentials.get("community"), Some("hunter2"));
        assert_eq!(format!("{credentials:?}"), r#"{"community"}"#);
        for wrong in ["hunter2", "a = 1\ncommunity = hunter2", "hunter2 = 'x'", "community = ['hunter2']"] {
            let error = Credentials::parse(wrong, &["community"]).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pdu3");
        fs::write(&path, "community = 'hunter2'\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Credentials::read(&path, &["community"]).unwrap_err().to_string();
        assert!(error.contains("chmod 600") && !error.contains("hunter2"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Credentials::read(&path, &["community"]).is_ok());
    }
}
