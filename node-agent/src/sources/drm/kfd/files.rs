//! Driver's files: their place, and their texts.

use std::io::ErrorKind;
use std::path::Path;

use crate::sources::kernel_text;

/// Directory of the driver, below `/sys`.
pub(super) const DIRECTORY: &str = "class/kfd/kfd";

/// Number in a file; `None` if the file does not exist, or the text is no number.
pub(super) fn number(path: &Path) -> Result<Option<u64>, ErrorKind> {
    match kernel_text::text(path) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.kind()),
    }
}

fn parse(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Number of the device `renderD*` in a node's properties.
pub(super) fn render_minor(properties: &str) -> Option<&str> {
    let minor =
        kernel_text::lines(properties).find_map(|line| line.strip_prefix("drm_render_minor "))?.trim();
    minor.bytes().all(|byte| byte.is_ascii_digit()).then_some(minor)
}

pub(in crate::sources) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    assert!(parse(&text).is_none_or(|number| text.trim().trim_start_matches(['+', '0']).len() <= number.to_string().len()));
    assert!(render_minor(&text).is_none_or(|minor| !minor.contains(['/', '\n'])));
}
