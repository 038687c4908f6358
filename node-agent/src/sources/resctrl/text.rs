//! Text of resctrl's files. Pure. Source: `Documentation/filesystems/resctrl.rst` and `rdtgroup_mondata_show`
//! in `fs/resctrl/ctrlmondata.c` of Linux.

use std::collections::BTreeSet;

use crate::sources::UnknownLines;

/// An event that a monitoring group counts in each L3 domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// Bytes of the cache that are occupied.
    Occupancy,
    /// Bytes that were moved between the cache and any memory.
    TotalBytes,
    /// Bytes that were moved between the cache and the domain's own memory.
    LocalBytes,
}

pub(super) const EVENTS: [Event; 3] = [Event::Occupancy, Event::TotalBytes, Event::LocalBytes];

impl Event {
    /// Name of its files, which `mon_features` lists, and of its field.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Occupancy => "llc_occupancy",
            Self::TotalBytes => "mbm_total_bytes",
            Self::LocalBytes => "mbm_local_bytes",
        }
    }

    /// True if its value is a count since the group was created, which begins anywhere.
    pub(super) const fn is_counter(self) -> bool {
        match self {
            Self::Occupancy => false,
            Self::TotalBytes | Self::LocalBytes => true,
        }
    }
}

/// Value of an event; `None` for `Unavailable` (the hardware does not know it now), `Error` (it cannot be
/// read) and `Unassigned` (no hardware counter is assigned to the group).
pub(super) fn value(text: &str) -> Option<u64> {
    text.trim_end().parse().ok()
}

/// Number of the L3 domain of a directory in `mon_data`; `None` if it is of another resource. With sub-NUMA
/// clustering a domain's directory has others for its parts (`mon_sub_L3_01`); its own files have the sum.
pub(super) fn domain(directory: &str) -> Option<u32> {
    directory.strip_prefix("mon_L3_")?.parse().ok()
}

pub(super) fn tasks(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

pub(super) fn has_feature(mon_features: &str, event: Event) -> bool {
    mon_features.lines().any(|line| line.trim() == event.name())
}

/// Words that stand for a value that is not known now.
const NO_VALUE: [&str; 3] = ["Unavailable", "Error", "Unassigned"];

/// True if the text of an event is neither a value nor a word for none.
pub(super) fn is_unknown(text: &str) -> bool {
    value(text).is_none() && !NO_VALUE.contains(&text.trim_end()) && !text.is_empty()
}

/// Features that are no event here, without the files that configure events.
pub(super) fn unknown_features(mon_features: &str) -> UnknownLines {
    let mut unknown = UnknownLines::default();
    let names = mon_features.lines().map(str::trim).filter(|name| !name.is_empty());
    for name in names.filter(|name| !name.ends_with("_config")) {
        if EVENTS.iter().all(|event| event.name() != name) {
            unknown.add(name.as_bytes());
        }
    }
    unknown
}

/// Any text, and the counts of a series of texts separated by zeros.
pub(in crate::sources) fn check(data: &[u8]) {
    let (mut counter, mut last) = (super::counter::Counter::default(), 0);
    for text in data.split(|byte| *byte == 0).map(String::from_utf8_lossy) {
        assert!(tasks(&text).len() <= text.lines().count());
        assert!(domain(&text).is_none() || text.starts_with("mon_L3_"));
        assert!(EVENTS.iter().all(|event| !has_feature(&text, *event) || text.contains(event.name())));
        if let Some(value) = value(&text) {
            let total = counter.read(value);
            assert!(total >= last);
            last = total;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Linux 5.15 on Intel.
    const OLD_FEATURES: &str = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n";

    /// Linux 6.18 on AMD, whose events can be configured.
    const NEW_FEATURES: &str = "llc_occupancy\nmbm_total_bytes\nmbm_total_bytes_config\nmbm_local_bytes\n\
                                mbm_local_bytes_config\n";

    /// Linux 5.4 on Intel without memory bandwidth.
    const FEW_FEATURES: &str = "llc_occupancy\n";

    #[test]
    fn features_of_several_kernels() {
        let features = |text: &str| EVENTS.map(|event| has_feature(text, event));
        assert_eq!(features(OLD_FEATURES), [true; 3]);
        assert_eq!(features(NEW_FEATURES), [true; 3]);
        assert_eq!(features(FEW_FEATURES), [true, false, false]);
        assert_eq!(features("mbm_total_bytes_config\n"), [false; 3]);
    }

    #[test]
    fn lines_that_no_rule_takes_are_counted() {
        let of = |text: &str| unknown_features(text).lines;
        assert_eq!([OLD_FEATURES, NEW_FEATURES, FEW_FEATURES, ""].map(of), [0; 4]);
        assert_eq!(of("llc_occupancy\nmbm_read_bytes\nmbm_read_bytes_config\n"), 1);
        assert!(
            ["12\n", "Unavailable\n", "Error\n", "Unassigned\n", ""].iter().all(|text| !is_unknown(text))
        );
        assert!(
            ["-1\n", "Assigned\n", "12 13\n", "18446744073709551616\n"].iter().all(|text| is_unknown(text))
        );
    }

    #[test]
    fn words_are_no_values() {
        assert_eq!(value("16234000\n"), Some(16_234_000));
        assert_eq!(value("0\n"), Some(0));
        assert_eq!(value("18446744073709551615\n"), Some(u64::MAX));
        for text in ["Unavailable\n", "Error\n", "Unassigned\n", "", "\n", "-1\n", "12 13\n"] {
            assert_eq!(value(text), None, "{text:?}");
        }
    }

    #[test]
    fn domains_have_numbers() {
        let names = [
            "mon_L3_00",
            "mon_L3_11",
            "mon_L3_4096",
            "mon_sub_L3_01",
            "mon_MB_00",
            "mon_L3_",
            "mon_PERF_PKG_00",
        ];
        assert_eq!(names.map(domain), [Some(0), Some(11), Some(4096), None, None, None, None]);
    }

    #[test]
    fn tasks_are_threads() {
        assert_eq!(tasks("1\n4242\n4243\n"), [1, 4242, 4243].into());
        assert_eq!(tasks(""), BTreeSet::new());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,60}") {
            value(&text);
            domain(&text);
            tasks(&text);
            has_feature(&text, Event::TotalBytes);
        }
    }
}
