//! Devices that contain each other: a partition is a part of a disk, a volume or a bond is stacked on others,
//! and the kernel counts the same bytes for each of them. Sums take each byte once.

use std::collections::{BTreeMap, BTreeSet};

use super::labels::Labels;
use super::role::{Role, RoleKind};

/// Beginnings of the names of network interfaces that are stacked on others.
const STACKED_INTERFACES: [&str; 10] =
    ["bond", "br", "cni", "docker", "dummy", "flannel", "team", "tun", "veth", "virbr"];

/// Device of a series, by the label that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device<'a> {
    /// Major and minor number of a block device, `259:0`.
    Number(&'a str),
    Block(&'a str),
    Interface(&'a str),
}

impl<'a> Device<'a> {
    pub const INTERFACE: &'static str = "interface";

    /// Returns none for a series without a device that can contain others.
    pub fn of(metric: &str, labels: &'a Labels) -> Option<Self> {
        if metric.starts_with("io.") {
            labels.get("device").map(Self::Number)
        } else if metric.starts_with("node.disk.") {
            labels.get("device").map(Self::Block)
        } else if metric.starts_with("node.network.") {
            labels.get(Self::INTERFACE).map(Self::Interface)
        } else {
            None
        }
    }

    pub const fn name(self) -> &'a str {
        match self {
            Self::Number(name) | Self::Block(name) | Self::Interface(name) => name,
        }
    }

    /// Returns the role that the name suggests, for series without a recorded one. A number suggests none.
    fn role_by_name(self) -> Option<Role> {
        let unknown = |kind| Some(Role::new(kind, []));
        match self {
            Self::Number(number) => {
                let parts = number.split_once(':');
                let has_form = parts.is_some_and(|(major, minor)| is_number(major) && is_number(minor));
                // The kernel writes `(unknown)` for the paths of an NVMe device, which counts their bytes.
                if has_form { None } else { unknown(RoleKind::Stacked) }
            }
            Self::Block(name) => match disk_of(name) {
                Some(disk) => Some(Role::new(RoleKind::Part, [disk])),
                None if is_numbered(name, &["loop", "dm-", "md", "drbd", "zd"]) => unknown(RoleKind::Stacked),
                None if is_numbered(name, &["ram", "zram"]) => unknown(RoleKind::Local),
                None => unknown(RoleKind::Physical),
            },
            Self::Interface("lo") => unknown(RoleKind::Local),
            Self::Interface(name) => {
                let is_stacked = name.contains('.')
                    || STACKED_INTERFACES.iter().any(|beginning| name.starts_with(beginning));
                unknown(if is_stacked { RoleKind::Stacked } else { RoleKind::Physical })
            }
        }
    }
}

/// Returns true for a series of I/O over all devices of a job, which its processes provide until the cgroup's
/// file appears: it contains the cgroup's.
fn is_of_all_devices(metric: &str, labels: &Labels) -> bool {
    metric.starts_with("io.") && labels.get("device").is_none()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for one of `beginnings`, then a number.
fn is_numbered(name: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| name.strip_prefix(beginning).is_some_and(is_number))
}

/// Returns the disk of a partition, by its name: `sda` of `sda1`, `nvme0n1` of `nvme0n1p2`.
fn disk_of(name: &str) -> Option<&str> {
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if disk.len() == name.len() {
        return None;
    }
    if let Some(disk) = disk.strip_suffix('p')
        && disk.ends_with(|c: char| c.is_ascii_digit())
        && (disk.starts_with("nvme") || disk.starts_with("mmcblk"))
    {
        return Some(disk);
    }
    let is_lettered =
        |letters: &str| !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_lowercase());
    ["sd", "hd", "vd", "xvd"]
        .iter()
        .any(|beginning| disk.strip_prefix(beginning).is_some_and(is_lettered))
        .then_some(disk)
}

/// Returns the recorded role of a series' device, or else the one that its name suggests; none for a series
/// that is not of a device, and where the name does not tell.
pub fn role_of(metric: &str, labels: &Labels) -> Option<Role> {
    let device = Device::of(metric, labels)?;
    labels.role().cloned().or_else(|| device.role_by_name())
}

/// Node, metric and labels of a series, all that sums need of it.
pub type SeriesOfSum<'a> = (&'a str, &'a str, &'a Labels);

/// Node, metric and other labels: the same for series whose devices may contain each other.
type Group<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>);

enum Place<'a> {
    /// Nothing that contains others.
    None,
    AllDevices(Group<'a>),
    Device(Group<'a>, Role),
}

#[derive(Default)]
struct Devices<'a> {
    names: BTreeSet<&'a str>,
    has_physical: bool,
}

/// Returns for each series whether sums leave it out, because its bytes are those of others. All series must
/// be of nodes, or all of one job.
///
/// The lowest devices that have series count: one that is stacked on others counts if none of them has a
/// series, such as paths of a multipath device that the kernel does not count for a job. One whose devices
/// below are unknown counts if no physical device has a series.
pub fn contained<'a>(series: impl IntoIterator<Item = SeriesOfSum<'a>>) -> Vec<bool> {
    let mut devices: BTreeMap<Group<'a>, Devices<'a>> = BTreeMap::new();
    let mut places = Vec::new();
    for (node, metric, labels) in series {
        if is_of_all_devices(metric, labels) {
            places.push(Place::AllDevices((node, metric, labels.iter().collect())));
            continue;
        }
        let place = Device::of(metric, labels).and_then(|device| {
            let others: Vec<_> =
                labels.iter().filter(|(key, _)| !["device", "interface"].contains(key)).collect();
            let group = (node, metric, others);
            let of_group = devices.entry(group.clone()).or_default();
            of_group.names.insert(device.name());
            let role = role_of(metric, labels)?;
            of_group.has_physical |= role.kind() == RoleKind::Physical;
            Some(Place::Device(group, role))
        });
        places.push(place.unwrap_or(Place::None));
    }
    places.into_iter().map(|place| is_contained(place, &devices)).collect()
}

fn is_contained<'a>(place: Place<'a>, devices: &BTreeMap<Group<'a>, Devices<'a>>) -> bool {
    let (group, role) = match place {
        Place::None => return false,
        Place::AllDevices(group) => return devices.contains_key(&group),
        Place::Device(group, role) => (group, role),
    };
    let Some(Devices { names, has_physical }) = devices.get(&group) else { return false };
    match role.kind() {
        RoleKind::Physical => false,
        RoleKind::Local => true,
        RoleKind::Part | RoleKind::Stacked if role.below().next().is_none() => *has_physical,
        RoleKind::Part | RoleKind::Stacked => role.below().any(|name| names.contains(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)], role: Option<&str>) -> Labels {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Labels::new(pairs).unwrap().with_role(role.map(|role| role.parse().unwrap()))
    }

    fn summed<'a>(metric: &str, key: &str, devices: &[(&'a str, Option<&str>)]) -> Vec<&'a str> {
        let all: Vec<Labels> = devices.iter().map(|(name, role)| labels(&[(key, name)], *role)).collect();
        let contained = contained(all.iter().map(|labels| ("n1", metric, labels)));
        devices
            .iter()
            .zip(contained)
            .filter(|(_, contained)| !contained)
            .map(|((name, _), _)| *name)
            .collect()
    }

    #[test]
    fn the_lowest_devices_that_have_series_count() {
        let of_job = |devices: &[(&'static str, Option<&str>)]| summed("io.read.bytes", "device", devices);
        let disks = [("259:0", Some("physical")), ("259:1", Some("physical"))];
        let raid = ("9:127", Some("stacked 259:0 259:1"));
        let volume = ("253:0", Some("stacked 259:0 259:1 9:127"));
        assert_eq!(of_job(&[volume, raid, disks[0], disks[1]]), ["259:0", "259:1"]);
        assert_eq!(of_job(&[volume, raid]), ["9:127"], "the disks are not counted for the job");
        assert_eq!(of_job(&[volume]), ["253:0"]);
        let paths = ("253:5", Some("stacked 8:16 8:32"));
        assert_eq!(of_job(&[paths, disks[0]]), ["253:5", "259:0"], "other disks are not below it");
        assert_eq!(of_job(&[paths, ("8:32", Some("physical"))]), ["8:32"]);
        assert_eq!(of_job(&[("7:0", Some("stacked")), disks[1]]), ["259:1"]);
        assert_eq!(of_job(&[("7:0", Some("stacked"))]), ["7:0"], "nothing else is known");
        assert_eq!(of_job(&[("252:0", Some("local"))]), [""; 0]);
        assert_eq!(of_job(&[("7:0", None), ("8:0", None)]), ["7:0", "8:0"], "a number tells nothing");
        assert_eq!(of_job(&[("(unknown)", None), ("259:0", Some("physical"))]), ["259:0"], "a path of NVMe");
    }

    #[test]
    fn the_processes_of_a_job_do_not_count_beside_its_devices() {
        let (all, disk) = (labels(&[], None), labels(&[("device", "8:0")], None));
        let of_step = labels(&[("step", "0")], None);
        let of = |metric: &'static str| {
            let series =
                [("n1", metric, &all), ("n1", metric, &disk), ("n1", metric, &of_step), ("n2", metric, &all)];
            contained(series)
        };
        assert_eq!(of("io.read.bytes"), [true, false, false, false]);
        assert_eq!(of("gpu.power"), [false; 4]);
        let volume = labels(&[("device", "253:0")], Some("stacked 8:0"));
        assert_eq!(
            contained([("n1", "io.read.bytes", &volume), ("n1", "io.read.bytes", &disk)]),
            [true, false]
        );
    }

    #[test]
    fn steps_metrics_and_nodes_are_summed_each_by_itself() {
        let stacked = [("device", "253:0"), ("step", "0")];
        let (disk, of_step) =
            (labels(&[("device", "8:0")], Some("physical")), labels(&stacked, Some("stacked 8:0")));
        let series = [("n1", "io.read.bytes", &disk), ("n1", "io.read.bytes", &of_step)];
        assert_eq!(contained(series), [false, false], "another level");
        let whole = labels(&[("device", "253:0")], Some("stacked 8:0"));
        let series = [
            ("n1", "io.read.bytes", &disk),
            ("n1", "io.write.bytes", &whole),
            ("n2", "io.read.bytes", &whole),
        ];
        assert_eq!(contained(series), [false; 3]);
        assert_eq!(
            contained([("n1", "io.read.bytes", &disk), ("n1", "io.read.bytes", &whole)]),
            [false, true]
        );
    }

    #[test]
    fn names_decide_without_a_recorded_role() {
        let interfaces = |names: &[&'static str]| {
            let devices: Vec<_> = names.iter().map(|name| (*name, None)).collect();
            summed("node.network.receive.bytes", "interface", &devices)
        };
        assert_eq!(
            interfaces(&[
                "eth0", "eno1", "enp3s0f0", "ib0", "hsn1", "lo", "bond0", "br-0123", "eth0.17", "veth77a",
                "docker0"
            ]),
            ["eth0", "eno1", "enp3s0f0", "ib0", "hsn1"]
        );
        assert_eq!(interfaces(&["lo", "bond0"]), ["bond0"]);
        let disks = [
            "sda",
            "sda1",
            "xvdb",
            "nvme0n1",
            "nvme0n1p12",
            "mmcblk0",
            "mmcblk0p1",
            "sr0",
            "dm-0",
            "md127",
            "loop0",
            "zram0",
        ];
        let devices: Vec<_> = disks.iter().map(|name| (*name, None)).collect();
        let counted = summed("node.disk.read.sectors", "device", &devices);
        assert_eq!(counted, ["sda", "xvdb", "nvme0n1", "mmcblk0", "sr0"]);
        assert_eq!(
            summed("node.disk.read.sectors", "device", &[("vda3", None)]),
            ["vda3"],
            "its disk is absent"
        );
        assert_eq!(
            summed("node.infiniband.receive.bytes", "device", &[("lo", None)]),
            ["lo"],
            "another metric"
        );
    }

    #[test]
    fn the_kernels_word_counts_more_than_a_name() {
        let named = [
            ("data0", Some("stacked br0p1 tun-east")),
            ("br0p1", Some("physical")),
            ("tun-east", Some("physical")),
        ];
        assert_eq!(summed("node.network.receive.bytes", "interface", &named), ["br0p1", "tun-east"]);
    }
}
