//! Password files, in the form of libpq's `~/.pgpass`.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::error::SettingsError;

#[derive(Debug, Clone, Copy)]
pub(super) struct Login<'a> {
    /// Host name, or `localhost` for a Unix socket.
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// Permissions of the group and of others, none of which a file with passwords may have.
const OTHERS: u32 = 0o077;

/// Returns the text of a password file, which only its owner may access; none if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, SettingsError> {
    let failed = |error| SettingsError::file("read the password file", path, error);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    check_permissions(path, &metadata)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

/// Checks that nobody but the owner has access to a file with a secret.
pub(super) fn check_permissions(path: &Path, metadata: &fs::Metadata) -> Result<(), SettingsError> {
    if metadata.is_file() && metadata.permissions().mode() & OTHERS != 0 {
        return Err(SettingsError::Exposed(path.to_owned()));
    }
    Ok(())
}

pub(super) fn find(text: &str, login: Login<'_>) -> Option<String> {
    let port = login.port.to_string();
    let wanted = [login.host, &port, login.database, login.user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut rest = line;
        for wanted in wanted {
            let (field, after) = field(rest)?;
            if rest.split(':').next() != Some("*") && field != wanted {
                return None;
            }
            rest = after;
        }
        Some(field_to_end(rest))
    })
}

/// Takes a field up to the next `:` that no `\` precedes, and returns it with the text behind it.
fn field(text: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            ':' => return Some((field, characters.as_str())),
            '\\' => field.push(characters.next()?),
            character => field.push(character),
        }
    }
}

/// Returns the last field, in which `\` escapes the next character.
fn field_to_end(text: &str) -> String {
    let mut characters = text.chars();
    std::iter::from_fn(|| match characters.next()? {
        '\\' => characters.next(),
        ':' => None,
        character => Some(character),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# host:port:database:user:password\n\ndb.example:5432:metrics:other:no\ndb.example:5432:*:polymeter:a\\:b\\\\c\n*:*:*:*:any\n";

    fn password(host: &str, user: &str) -> Option<String> {
        find(TEXT, Login { host, port: 5432, database: "metrics", user })
    }

    #[test]
    fn the_first_line_that_matches_counts() {
        assert_eq!(password("db.example", "polymeter").as_deref(), Some(r"a:b\c"));
        assert_eq!(password("db.example", "other").as_deref(), Some("no"));
        assert_eq!(password("elsewhere", "polymeter").as_deref(), Some("any"));
        let login = Login { host: "h", port: 1, database: "d", user: "u" };
        assert_eq!(find("h:1:d\nh:1:d:u\nh:2:d:u:x\n", login), None);
        assert_eq!(find(r"\*:1:d:u:literal", login), None);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pass");
        assert_eq!(read(&path).unwrap(), None);
        fs::write(&path, TEXT).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some(TEXT));
    }
}
