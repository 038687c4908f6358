//! Service files: named sets of connection parameters.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use super::error::{InvalidLine, SettingsError};
use super::words::Word;

/// Returns the parameters of a service, from the first of `files` that has it.
///
/// # Errors
/// Returns an error if no file has the service, or a file cannot be read or parsed.
pub(super) fn find(service: &str, files: &[PathBuf]) -> Result<Vec<Word>, SettingsError> {
    for file in files {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(SettingsError::file("read the service file", file, error)),
        };
        let found =
            parse(&text, service).map_err(|line| SettingsError::ServiceFile { path: file.clone(), line })?;
        if let Some(words) = found {
            return Ok(words);
        }
    }
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    Err(SettingsError::Invalid(format!(
        "unknown service `{}`: no section of that name in {}",
        service.escape_debug(),
        files.join(", ")
    )))
}

/// Returns the parameters in the section of `service`; none without such a section.
fn parse(text: &str, service: &str) -> Result<Option<Vec<Word>>, InvalidLine> {
    let mut found: Option<Vec<Word>> = None;
    let mut is_inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let invalid = |fault| InvalidLine { number, fault };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| invalid("missing `]`"))?;
            // As in libpq, the first section of a name counts.
            is_inside = name.trim() == service && found.is_none();
            if is_inside {
                found = Some(Vec::new());
            }
            continue;
        }
        if let Some(words) = found.as_mut().filter(|_| is_inside) {
            let (name, value) = line.split_once('=').ok_or_else(|| invalid("missing `=`"))?;
            if name.trim() == "service" {
                return Err(invalid("a service cannot refer to another one"));
            }
            words.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# databases\n[a]\nhost=one\n[metrics]\nhost = db.example\n\npassword=p=q\n[metrics]\nhost=second\n";

    #[test]
    fn the_first_section_of_the_name_counts() {
        let words = parse(TEXT, "metrics").unwrap().unwrap();
        let expected = [("host", "db.example"), ("password", "p=q")];
        assert_eq!(words, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(parse(TEXT, "b"), Ok(None));
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(parse("[a\n", "a").unwrap_err().to_string(), "line 1: missing `]`");
        assert_eq!(parse("[a]\nhost\n", "a").unwrap_err().to_string(), "line 2: missing `=`");
        assert_eq!(parse("[b]\nhost\n", "a"), Ok(None));
        assert!(parse("[a]\nservice=b\n", "a").unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn the_users_file_precedes_the_systems() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let files = [
            directory.path().join("none"),
            file("user", "[a]\nhost=user\n"),
            file("system", "[a]\nhost=s\n[b]\nhost=s\n"),
        ];
        let host = |service| find(service, &files).unwrap()[0].1.clone();
        assert_eq!((host("a"), host("b")), ("user".to_owned(), "s".to_owned()));
        let error = find("c", &files).unwrap_err().to_string();
        assert!(error.starts_with("unknown service `c`") && error.contains("system"), "{error}");
    }
}
