//! Kernel text files: their paths, the format of their lines, and the addresses of values in them.

use crate::period::Period;

#[derive(Debug, PartialEq, Eq)]
pub struct TextFile {
    /// Directory that the path is relative to.
    pub hierarchy: Hierarchy,
    /// Path below that directory. Each component may have one `*`, which matches any text without `/`; in a
    /// component that contains a `.`, it matches no text with a `.`.
    pub path: &'static str,
    /// Labels whose values are the matches of the path's `*`s, in their order.
    pub path_labels: &'static [&'static str],
    /// Devices that have this file, by the value of the first label.
    pub devices: Devices,
    pub form: Form,
    /// Longest lag of its values behind the counted quantity; none if they are exact at every read.
    pub granularity: Option<Period>,
    /// True if the file excludes descendants of the cgroup, so that a job's value is the sum over its cgroup
    /// and all descendants.
    pub is_local: bool,
    /// True where a read may wait for a device, so that the file is read in the slow lane. Requires
    /// [`Form::Values`].
    pub is_blocking: bool,
    /// True if one thread reads this blocking file for all devices, of which there may be hundreds; new
    /// devices are not noticed then. Otherwise each directory has a thread.
    pub is_joined: bool,
    /// Labels whose values are the texts of other files of the same directory.
    pub label_files: &'static [LabelFile],
    /// File of the same directory that states how often the hardware updates the values of a blocking file.
    /// Shorter periods are granted at that interval.
    pub refresh_file: Option<RefreshFile>,
    /// Longest time between two reads of a blocking file that loses no counts, such as a counter whose driver
    /// adds up a hardware counter at each read. Its thread reads in between where deadlines are further
    /// apart.
    pub longest_gap: Option<Period>,
}

/// File that states how often hardware updates its values. The source's thread reads it once. A file that is
/// missing or has no positive number limits nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefreshFile {
    pub name: &'static str,
    pub unit: RefreshUnit,
}

/// Unit in which a [`RefreshFile`] states how often values are updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshUnit {
    Milliseconds,
    Hertz,
}

/// Devices, by the beginning of their names. Drivers differ in the units of the same file, and in the files
/// that they fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    All,
    /// Row that is found by the beginning of its name.
    Named(&'static str),
    NotNamed(&'static str),
}

impl Devices {
    fn contain(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(prefix) => name.starts_with(prefix),
            Self::NotNamed(prefix) => !name.starts_with(prefix),
        }
    }
}

/// Label whose value is the text of a file, such as the name of a chip. The file is read when its source is
/// opened. The label is left out where the file is missing, empty, or no valid label.
#[derive(Debug, PartialEq, Eq)]
pub struct LabelFile {
    pub label: &'static str,
    /// A `*` stands for the match of the path's last `*`.
    pub name: &'static str,
}

/// Directory that a file's path is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hierarchy {
    /// A job's cgroup of this version 1 controller.
    V1(&'static str),
    /// A job's cgroup of version 2.
    V2,
    Proc,
    Sys,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One line of values: `memory.current`, `loadavg`, `cpuacct.usage_percpu`.
    Values,
    /// A key, then values: `memory.stat`, `vmstat`, `/proc/stat`, `meminfo` with its colons.
    Keyed,
    /// Values with the key among them, at this position counted from 0: `diskstats`.
    KeyedAt(usize),
    /// A key, then `name=value` pairs: `cpu.pressure`, `io.stat`.
    Pairs,
    /// Device, operation, value: `blkio.throttle.io_service_bytes`.
    Operations,
}

/// Address of a value in a file's text, and its scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub row: Row,
    pub cell: Cell,
    pub scale: Scale,
}

/// Line, or lines, of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    Only,
    Key(&'static str),
    /// Line whose key is this text followed by the instance of the metric's family.
    Instance(&'static str),
    /// Every line whose key is `prefix` followed by the value of a label, each a series.
    Each {
        label: &'static str,
        prefix: &'static str,
        numeric: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// The n-th word of the line, counted from 0, keys included.
    Word(usize),
    /// Value after this name: `total=123`, or `Read 123`.
    Named(&'static str),
    /// Every word, each a series; the label's value is the word's number.
    Each(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// A whole number, multiplied by this: 4 for octets in units of four.
    Times(u64),
    /// A whole number; absent if it is this or more, or `max`, which both mean no limit.
    Limit(u64),
    /// A decimal fraction; the value is a double.
    Decimal,
    /// A decimal fraction, multiplied by this: 125,000,000 for gigabits as bytes. The value is a double.
    DecimalTimes(u32),
    /// A whole number that ends at this character or at the word's end: 4 in `4: ACTIVE`.
    Until(char),
    /// A whole number with the time of its measurement behind an `@`: `1234@1700000000.250000000`. In
    /// blocking files the value is absent while that time stays the same.
    Timed,
    /// A whole number, possibly negative, divided by this: 1000 for thousandths of a degree. The value is a
    /// double.
    Per(u32),
}

/// Smallest value that version 1 of cgroups writes without a limit: the largest number of whole pages in an
/// i64, with pages of 64 KiB, the largest of Linux.
pub(crate) const V1_UNLIMITED: u64 = 0x7fff_ffff_ffff_0000;

/// Nanoseconds in a tick of `USER_HZ`, which is 100 Hz on every architecture that Linux is used on in HPC.
pub(crate) const TICK_NS: u64 = 10_000_000;

impl TextFile {
    const fn new(hierarchy: Hierarchy, path: &'static str, form: Form) -> Self {
        Self {
            hierarchy,
            path,
            path_labels: &[],
            devices: Devices::All,
            form,
            granularity: None,
            is_local: false,
            is_blocking: false,
            is_joined: false,
            label_files: &[],
            refresh_file: None,
            longest_gap: None,
        }
    }

    pub(crate) const fn v1(controller: &'static str, path: &'static str, form: Form) -> Self {
        Self::new(Hierarchy::V1(controller), path, form)
    }

    pub(crate) const fn v2(path: &'static str, form: Form) -> Self {
        Self::new(Hierarchy::V2, path, form)
    }

    pub(crate) const fn proc(path: &'static str, form: Form) -> Self {
        Self::new(Hierarchy::Proc, path, form)
    }

    pub(crate) const fn sys(path: &'static str, form: Form) -> Self {
        Self::new(Hierarchy::Sys, path, form)
    }

    pub(crate) const fn labelled(self, path_labels: &'static [&'static str]) -> Self {
        Self { path_labels, ..self }
    }

    pub(crate) const fn of_devices(self, devices: Devices) -> Self {
        Self { devices, ..self }
    }

    pub(crate) const fn updated_every(self, granularity: Period) -> Self {
        Self { granularity: Some(granularity), ..self }
    }

    pub(crate) const fn local(self) -> Self {
        Self { is_local: true, ..self }
    }

    /// Marks the file as one whose reads may wait for a device.
    pub(crate) const fn blocking(self) -> Self {
        Self { is_blocking: true, ..self }
    }

    /// Marks the file as one whose reads may wait for a device, and which one thread reads for all devices.
    pub(crate) const fn blocking_together(self) -> Self {
        Self { is_blocking: true, is_joined: true, ..self }
    }

    pub(crate) const fn named_by(self, label_files: &'static [LabelFile]) -> Self {
        Self { label_files, ..self }
    }

    /// Names the file of its directory that states how often the values are updated.
    pub(crate) const fn refreshed_by(self, name: &'static str, unit: RefreshUnit) -> Self {
        Self { refresh_file: Some(RefreshFile { name, unit }), ..self }
    }

    /// Sets the time after which an unread counter loses counts.
    pub(crate) const fn read_within(self, longest_gap: Period) -> Self {
        Self { longest_gap: Some(longest_gap), ..self }
    }

    /// Returns the labels of the path `relative`, which is relative to the file's directory; none where it
    /// does not match the file's path.
    pub fn path_labels_of(&self, relative: &str) -> Option<Vec<(String, String)>> {
        let mut found = relative.split('/');
        let mut keys = self.path_labels.iter();
        let mut labels = Vec::new();
        for pattern in self.path.split('/') {
            match pattern_match(pattern, found.next()?)? {
                None => {}
                Some(value) => {
                    labels.push((keys.next().copied().unwrap_or("path").to_owned(), value.to_owned()))
                }
            }
        }
        let is_device = labels.first().is_none_or(|(_, name)| self.devices.contain(name));
        (found.next().is_none() && is_device).then_some(labels)
    }
}

/// Compares a component of a path with a pattern that may have one `*`. Returns none where they differ,
/// otherwise the text that the `*` stands for, if there is one.
pub fn pattern_match<'a>(pattern: &str, component: &'a str) -> Option<Option<&'a str>> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == component).then_some(None);
    };
    let value = component.strip_prefix(before)?.strip_suffix(after)?;
    // `hugetlb.2MB.rsvd.current` is no file of `hugetlb.*.current`, while the device `0000:00:1f.2` is one of
    // `*`.
    let is_other_file = pattern.contains('.') && value.contains('.');
    (!value.is_empty() && !is_other_file).then_some(Some(value))
}

pub(crate) const EACH_CPU: Row = Row::Each { label: "cpu", prefix: "", numeric: true };
/// One line for each block device, by its major and minor number.
pub(crate) const EACH_DEVICE: Row = Row::Each { label: "device", prefix: "", numeric: false };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_of_a_path_become_labels() {
        static PORT: TextFile =
            TextFile::sys("class/infiniband/*/ports/*/counters/port_rcv_data", Form::Values)
                .labelled(&["device", "port"]);
        let path = "class/infiniband/mlx5_0/ports/1/counters/port_rcv_data";
        let labels =
            [("device", "mlx5_0"), ("port", "1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(PORT.path_labels_of(path), Some(labels.into()));
        for other in [
            "class/infiniband/mlx5_0/ports/1/counters",
            "class/infiniband/mlx5_0/ports/1/counters/port_rcv_data/x",
            "class/infiniband/mlx5_0/ports//counters/port_rcv_data",
            "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data",
        ] {
            assert_eq!(PORT.path_labels_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_may_be_of_some_devices_only() {
        static ALL: TextFile =
            TextFile::sys("class/infiniband/*/ports/*/x", Form::Values).labelled(&["device", "port"]);
        let [hfi, others] = [Devices::Named("hfi"), Devices::NotNamed("hfi")]
            .map(|devices| TextFile::sys(ALL.path, ALL.form).labelled(ALL.path_labels).of_devices(devices));
        let of = |file: &TextFile| {
            ["hfi1_0", "mlx5_0"]
                .map(|device| file.path_labels_of(&format!("class/infiniband/{device}/ports/1/x")).is_some())
        };
        assert_eq!([of(&ALL), of(&hfi), of(&others)], [[true, true], [true, false], [false, true]]);
    }

    #[test]
    fn a_wildcard_between_dots_matches_no_dot() {
        assert_eq!(pattern_match("hugetlb.*.current", "hugetlb.2MB.current"), Some(Some("2MB")));
        assert_eq!(pattern_match("hugetlb.*.current", "hugetlb.2MB.rsvd.current"), None);
        assert_eq!(pattern_match("*", "0000:00:1f.2"), Some(Some("0000:00:1f.2")));
        assert_eq!(pattern_match("hwmon*", "hwmon12"), Some(Some("12")));
        assert_eq!(pattern_match("hwmon*", "hwmon"), None);
        assert_eq!(pattern_match("ports", "ports"), Some(None));
    }
}
