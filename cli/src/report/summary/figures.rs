//! The figures of tables, as text. Pure.

use polymeter_proto::units;

/// Formats a value; `-` for one that is not known.
pub(crate) fn figure<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

pub(crate) fn cores(value: Option<f64>) -> String {
    figure(value, |cores| format!("{cores:.2}"))
}

pub(crate) fn bytes(value: Option<f64>) -> String {
    figure(value, |bytes| units::value("bytes", bytes))
}

pub(crate) fn joules(value: Option<f64>) -> String {
    figure(value, |joules| units::value("joules", joules))
}

/// The imbalance of CPU time between the parts of a job.
pub(crate) struct Imbalance<'a> {
    /// The largest time over the mean.
    pub(crate) ratio: f64,
    /// The name of the part with the largest time, and this time.
    pub(crate) most: (&'a str, String),
    /// The name of the part with the smallest time, and this time.
    pub(crate) least: (&'a str, String),
}

impl<'a> Imbalance<'a> {
    /// Returns the imbalance between parts, given as names and CPU times in seconds; none for fewer than two
    /// parts whose times are known, and for idle ones.
    pub(crate) fn of(parts: impl Iterator<Item = (&'a str, Option<f64>)>) -> Option<Self> {
        let known: Vec<(&str, f64)> = parts.filter_map(|(name, cpu_s)| Some((name, cpu_s?))).collect();
        let (most, most_s) = known.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let (least, least_s) = known.iter().min_by(|one, other| one.1.total_cmp(&other.1))?;
        let mean_s = known.iter().map(|(_, cpu_s)| cpu_s).sum::<f64>() / units::to_f64(known.len() as u64);
        if known.len() < 2 || mean_s <= 0.0 {
            return None;
        }
        Some(Self {
            ratio: most_s / mean_s,
            most: (most, units::elapsed(*most_s)),
            least: (least, units::elapsed(*least_s)),
        })
    }
}
