//! Values that several sections have.

use std::path::PathBuf;
use std::time::Duration;

use polymeter_service::keys::{self, Setting, Value};

use crate::limits;

const UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3_600), ("d", 86_400)];

/// Takes a section that must have `required`, for instance with the value `example`.
pub(super) fn section_with<C: 'static>(
    mut value: Value<'_, '_, '_>,
    settings: impl IntoIterator<Item = &'static Setting<C>> + Clone,
    mut target: C,
    required: &str,
    example: &str,
) -> Option<C> {
    let (place, name) = (value.span()?, value.key.name);
    let section = value.table()?;
    if section.span(required).is_none() {
        let remedy = format_args!("remove the section, or set {required} = {example}");
        value.reporter.fault(&place, format_args!("[{name}]: missing `{required}`; {remedy}"));
    }
    keys::read(settings, &mut target, section, value.reporter);
    Some(target)
}

/// Whole seconds, minutes, hours or days, from a second to [`limits::SAMPLE_DISTANCE_MAX`]: `90s`, `5min`,
/// `12h`, `366d`.
pub(super) fn coarse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let seconds = text.split_at_checked(digits).and_then(|(number, unit)| {
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        number.parse::<u64>().ok()?.checked_mul(*factor)
    });
    let duration = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    duration.filter(|duration| *duration <= limits::SAMPLE_DISTANCE_MAX).ok_or_else(|| {
        format!("invalid duration `{text}`: expected a whole number of s, min, h or d, from 1s to 3660d")
    })
}

pub(super) fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(format!("expected an absolute path, found `{text}`")) }
}

/// Whole seconds, minutes or hours, of at most `longest`, which is such a text itself.
pub(super) fn duration_up_to(text: &str, longest: &str) -> Result<Duration, String> {
    let longest_duration = coarse_duration(longest).ok();
    let duration = coarse_duration(text).ok();
    duration.filter(|duration| Some(*duration) <= longest_duration).ok_or_else(|| {
        format!("invalid duration `{text}`: expected a whole number of s or min, from 1s to {longest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_bounds() {
        let seconds = |text: &str| coarse_duration(text).map(|duration| duration.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("5min"), Ok(300));
        assert_eq!(seconds("3660d"), Ok(limits::SAMPLE_DISTANCE_MAX.as_secs()));
        for wrong in ["", "s", "0s", "12", "1 h", "-1h", "3661d", "99999999999999999999d", "10ms", "1µs"] {
            assert!(seconds(wrong).unwrap_err().contains("3660d"), "{wrong}");
        }
    }

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
