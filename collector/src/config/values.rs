//! Values that several sections have.

use std::path::PathBuf;
use std::time::Duration;

use super::clock::CoarseDuration;

/// Parses an absolute path.
///
/// # Errors
/// Returns a message if it is relative.
pub(super) fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(format!("expected an absolute path, found `{text}`")) }
}

/// Parses a duration in whole seconds, minutes or hours, of at most `longest`, which is such a text itself.
///
/// # Errors
/// Returns a message if it is longer or has another form.
pub(super) fn duration_up_to(text: &str, longest: &str) -> Result<Duration, String> {
    let parse = |text: &str| text.parse::<CoarseDuration>().ok().map(|duration| duration.0);
    parse(text).filter(|duration| Some(*duration) <= parse(longest)).ok_or_else(|| {
        format!("invalid duration `{text}`: expected a whole number of s or min, from 1s to {longest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_bounded() {
        assert_eq!(duration_up_to("60min", "1h"), Ok(Duration::from_secs(3600)));
        for text in ["61min", "0s", "1.5s", "s", ""] {
            let error = duration_up_to(text, "1h").unwrap_err();
            assert!(error.ends_with("from 1s to 1h"), "{error}");
        }
        assert!(duration_up_to("1h", "no duration").is_err());
    }

    #[test]
    fn a_relative_path_is_refused() {
        assert_eq!(absolute("/a"), Ok(PathBuf::from("/a")));
        assert!(absolute("a").is_err() && absolute("").is_err());
    }
}
