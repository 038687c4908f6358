//! The section `[retention]`: the time for which samples and rollups are kept.

use polymeter_service::document::{Faults, Reporter, Section};
use polymeter_store::{Keep, Level, Retention};

/// The raw section.
#[derive(Debug, Default)]
pub(super) struct RawRetention {
    keep: [Option<Keep>; Level::ALL.len()],
    /// The file and line of the section.
    place: String,
}

impl RawRetention {
    /// Takes the section out of the document.
    pub(super) fn take(root: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Self {
        let place = root.span("retention").map(|span| reporter.place(&span)).unwrap_or_default();
        let Some(mut section) = root.section("retention", reporter) else { return Self::default() };
        let keep = Level::ALL.map(|level| section.parse(level.key(), reporter, str::parse));
        section.finish(reporter);
        Self { keep, place }
    }

    /// Adds a fault for each level that would be removed before a finer one.
    pub(super) fn check(&self, faults: &mut Faults) {
        let retention = self.resolve();
        for (coarse, fine) in retention.conflicts() {
            faults.add(
                &*self.place,
                format!(
                    "[retention]: `{}` is kept for a shorter time ({}) than `{}` ({}); set `{}` to {} or longer",
                    coarse.key(),
                    retention.of(coarse),
                    fine.key(),
                    retention.of(fine),
                    coarse.key(),
                    retention.of(fine)
                ),
            );
        }
    }

    pub(super) fn resolve(&self) -> Retention {
        let usual = Retention::default();
        let [samples, ten_seconds, minute, hour] = self.keep;
        Retention {
            samples: samples.unwrap_or(usual.samples),
            ten_seconds: ten_seconds.unwrap_or(usual.ten_seconds),
            minute: minute.unwrap_or(usual.minute),
            hour: hour.unwrap_or(usual.hour),
        }
    }
}
