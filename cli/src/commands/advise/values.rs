//! Values of options: what could not be read, and how they are written. Pure.

use std::fmt::Display;

/// Values that could not be read, each with its option and the reason.
#[derive(Debug, Default)]
pub(super) struct Unread(pub(super) Vec<String>);

impl Unread {
    /// None if the value cannot be read.
    pub(super) fn read<T, E: Display>(
        &mut self,
        name: &str,
        text: &str,
        parse: impl FnOnce() -> Result<T, E>,
    ) -> Option<T> {
        parse().map_err(|error| self.0.push(format!("cannot read `{text}` of {name}: {error}"))).ok()
    }

    /// Reads a number above 0.
    pub(super) fn number(&mut self, name: &str, text: &str) -> Option<f64> {
        self.read(name, text, || match text.parse::<u32>() {
            Ok(number) if number > 0 => Ok(f64::from(number)),
            Ok(_) | Err(_) => Err("expected a number above 0"),
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
pub(super) fn time_text(seconds: f64) -> String {
    let minutes = (seconds / 60.0).ceil() as u64;
    format!("{:02}:{:02}:00", minutes / 60, minutes % 60)
}

/// Text as Slurm reads it, rounded up.
pub(super) fn memory_text(bytes: f64) -> String {
    const MIB: f64 = 1_048_576.0;
    let mib = (bytes / MIB).ceil();
    if mib % 1024.0 == 0.0 { format!("{:.0}G", mib / 1024.0) } else { format!("{mib:.0}M") }
}
