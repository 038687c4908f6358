//! Roles of devices, as `/sys` tells them: which are parts of others, or stacked on others.
//!
//! The roles are read when a source is opened, for each of its devices, and not at its readings. Nothing here
//! waits for a device: the kernel has the names, links and numbers in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use polymeter_proto::series::{Device, Role, RoleKind};

use super::kernel_text;
use super::lock::lock;
use super::slot::Slot;
use super::target::Devices;

/// Bound of the devices below one: disks of an array, ports of a bridge.
const BELOW_MAX: usize = 256;

/// Type of the loopback interface: `ARPHRD_LOOPBACK`, include/uapi/linux/if_arp.h.
const LOOPBACK: &str = "772";

/// Finds the devices of slots. A device that `sys` lacks has no role.
pub(super) fn of_slots(sys: &Path, slots: &[Slot], names: Option<&InterfaceNames>) -> Devices {
    let has_interfaces = slots.iter().any(|slot| {
        matches!(Device::of(slot.definition.metric.name, &slot.labels), Some(Device::Interface(_)))
    });
    let names = names.filter(|_| has_interfaces);
    let renamed = names.map_or_else(BTreeMap::new, |names| names.renamed(sys));
    let mut known: BTreeMap<Device<'_>, Option<Role>> = BTreeMap::new();
    let mut roles = Vec::new();
    for (position, slot) in slots.iter().enumerate() {
        let Some(device) = Device::of(slot.definition.metric.name, &slot.labels) else { continue };
        let role = known.entry(device).or_insert_with(|| role(sys, device, &renamed));
        roles.extend(role.clone().map(|role| (position, role)));
    }
    Devices { roles, renamed }
}

/// Names of network interfaces in series. Each interface keeps its first name while the agent runs, so that
/// its counters go on when it is renamed; its index in the kernel identifies it.
#[derive(Debug, Default)]
pub struct InterfaceNames(Mutex<BTreeMap<u32, String>>);

impl InterfaceNames {
    /// Takes over the interfaces in `sys`. Returns the names in series of renamed ones.
    fn renamed(&self, sys: &Path) -> BTreeMap<String, String> {
        let all = sys.join("class/net");
        let now = names(&all).into_iter().filter_map(|name| {
            let index = line(&all.join(&name).join("ifindex"))?;
            Some((index.parse().ok()?, name))
        });
        let now: BTreeMap<u32, String> = now.collect();
        let mut first = lock(&self.0);
        first.retain(|index, _| now.contains_key(index));
        for (index, name) in &now {
            if !first.contains_key(index) {
                // Another interface, which was renamed, has the series of this name.
                let is_taken = first.values().any(|other| other == name);
                first.insert(*index, if is_taken { format!("{name}#{index}") } else { name.clone() });
            }
        }
        let renamed = now.into_iter().filter_map(|(index, name)| Some((first.get(&index)?, name)));
        renamed.filter(|(first, name)| *first != name).map(|(first, name)| (name, first.clone())).collect()
    }
}

fn role(sys: &Path, device: Device<'_>, renamed: &BTreeMap<String, String>) -> Option<Role> {
    match device {
        Device::Interface(name) => {
            let (kind, below) = interface(&sys.join("class/net"), name)?;
            let below: Vec<String> =
                below.iter().map(|name| renamed.get(name).unwrap_or(name).clone()).collect();
            Some(Role::new(kind, below.iter().map(String::as_str)))
        }
        Device::Block(name) => {
            let (kind, below) = BlockDevices { sys }.role(&name.replace('/', "!"))?;
            let names: Vec<String> = below.iter().map(|name| name.replace('!', "/")).collect();
            Some(Role::new(kind, names.iter().map(String::as_str)))
        }
        Device::Number(number) => {
            let devices = BlockDevices { sys };
            let (kind, below) = devices.role(&devices.name(number)?)?;
            // Paths of NVMe have no number: the kernel counts their bytes for the device above alone.
            let numbers: Vec<String> = below.iter().filter_map(|name| devices.number(name)).collect();
            let is_lowest = !below.is_empty() && numbers.is_empty();
            let kind = if is_lowest { RoleKind::Physical } else { kind };
            Some(Role::new(kind, numbers.iter().map(String::as_str)))
        }
    }
}

/// Devices below `name`, the lowest first; `directly_below` finds those of one device.
fn all_below(name: &str, directly_below: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::from([name.to_owned()]);
    let mut all = vec![name.to_owned()];
    let mut next = 0;
    while let Some(above) = all.get(next) {
        for below in directly_below(above) {
            if all.len() <= BELOW_MAX && seen.insert(below.clone()) {
                all.push(below);
            }
        }
        next += 1;
    }
    all.remove(0);
    all.reverse();
    all
}

pub(super) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

fn line(path: &Path) -> Option<String> {
    let text = kernel_text::text(path).ok()?;
    Some(text.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Block devices, by the names of their directories in `/sys`.
struct BlockDevices<'a> {
    sys: &'a Path,
}

impl BlockDevices<'_> {
    /// Directory of a device; a partition has one within its disk's.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        let block = self.sys.join("block");
        let known = [self.sys.join("class/block").join(name), block.join(name)];
        known.into_iter().find(|directory| directory.is_dir()).or_else(|| {
            let mut in_disks = names(&block).into_iter().map(|disk| block.join(disk).join(name));
            in_disks.find(|directory| directory.join("partition").exists())
        })
    }

    /// Finds the name of a device by its number, `8:1`.
    fn name(&self, number: &str) -> Option<String> {
        if let Ok(link) = fs::read_link(self.sys.join("dev/block").join(number)) {
            return link.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        }
        let listed = ["class/block", "block"].map(|directory| names(&self.sys.join(directory)));
        listed.into_iter().flatten().find(|name| self.number(name).as_deref() == Some(number))
    }

    fn number(&self, name: &str) -> Option<String> {
        line(&self.directory(name)?.join("dev"))
    }

    fn role(&self, name: &str) -> Option<(RoleKind, Vec<String>)> {
        let directory = self.directory(name)?;
        let below = all_below(name, |name| self.directly_below(name));
        let is = |beginning: &str| name.starts_with(beginning);
        let kind = if directory.join("partition").exists() {
            RoleKind::Part
        } else if is("zram") || is("ram") {
            RoleKind::Local
        } else if !below.is_empty() || ["loop", "dm-", "md", "drbd", "zd"].into_iter().any(is) {
            // What is below a loop device is a file, which is on another device or on another node; DRBD and
            // ZFS do not tell the kernel what is below their devices.
            RoleKind::Stacked
        } else {
            RoleKind::Physical
        };
        Some((kind, below))
    }

    fn directly_below(&self, name: &str) -> Vec<String> {
        let Some(directory) = self.directory(name) else { return Vec::new() };
        let mut below = names(&directory.join("slaves"));
        if directory.join("partition").exists() {
            let disk =
                directory.canonicalize().ok().and_then(|path| Some(path.parent()?.file_name()?.to_owned()));
            below.extend(disk.and_then(|disk| disk.into_string().ok()));
        }
        if name.starts_with("nvme") {
            below.extend(names(&self.sys.join("block")).into_iter().filter(|other| is_path_of(other, name)));
        }
        below
    }
}

/// True for a path of a device with several paths. The kernel links them only by their names: `nvme0c1n1` of
/// `nvme0n1` (`nvme_set_disk_name`, drivers/nvme/host/multipath.c).
fn is_path_of(path: &str, device: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((subsystem, namespace)) = device.rsplit_once('n') else { return false };
    let controller = path.strip_prefix(subsystem).and_then(|rest| rest.strip_prefix('c'));
    let controller = controller.and_then(|rest| rest.strip_suffix(namespace)?.strip_suffix('n'));
    is_number(namespace) && controller.is_some_and(is_number)
}

fn interface(all: &Path, name: &str) -> Option<(RoleKind, Vec<String>)> {
    let directory = all.join(name);
    if !directory.is_dir() {
        return None;
    }
    if line(&directory.join("type")).as_deref() == Some(LOOPBACK) {
        return Some((RoleKind::Local, Vec::new()));
    }
    let below = all_below(name, |name| interfaces_below(&all.join(name)));
    let is_master = directory.join("bonding").exists() || directory.join("bridge").exists();
    // A child of IP over InfiniBand has a device, and its parent does not count its packets.
    let is_physical = below.is_empty() && !is_master && (has_device(&directory) || is_edge(all, &directory));
    let kind = if is_physical { RoleKind::Physical } else { RoleKind::Stacked };
    Some((kind, below))
}

/// Interfaces directly below one. Older kernels list only the ports of bonds and bridges.
fn interfaces_below(directory: &Path) -> Vec<String> {
    let entries = names(directory).into_iter();
    let mut below: Vec<String> =
        entries.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).collect();
    let ports = line(&directory.join("bonding/slaves")).unwrap_or_default();
    below.extend(ports.split_ascii_whitespace().map(str::to_owned));
    below.extend(names(&directory.join("brif")));
    below
}

fn has_device(interface: &Path) -> bool {
    interface.join("device").exists()
}

/// True for the end of a link to another namespace where this namespace has no hardware interface, as in a
/// container: nothing below it is visible.
fn is_edge(all: &Path, interface: &Path) -> bool {
    let index = |file: &str| line(&interface.join(file));
    let is_linked = index("iflink").is_some_and(|link| link != "0" && Some(link) != index("ifindex"));
    is_linked && !names(all).iter().any(|name| has_device(&all.join(name)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use polymeter_proto::series::{Labels, contained};

    use super::*;

    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn link(&self, path: &str, at: &str) {
            let at = self.0.path().join(at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(self.0.path().join(path), at).unwrap();
        }

        /// Adds a block device, below `disk` if it is a partition. Paths have no number.
        fn block(&self, name: &str, number: Option<&str>, disk: Option<&str>, slaves: &[&str]) {
            let path = match disk {
                Some(disk) => format!("devices/{disk}/{name}"),
                None => format!("devices/{name}"),
            };
            self.write(&format!("{path}/stat"), "0");
            if disk.is_some() {
                self.write(&format!("{path}/partition"), "1\n");
            }
            self.link(&path, &format!("class/block/{name}"));
            if disk.is_none() {
                self.link(&path, &format!("block/{name}"));
            }
            if let Some(number) = number {
                self.write(&format!("{path}/dev"), &format!("{number}\n"));
                self.link(&path, &format!("dev/block/{number}"));
            }
            for slave in slaves {
                self.write(&format!("{path}/slaves/{slave}"), "");
            }
        }

        fn interface(&self, name: &str, kind: u32, files: &[&str]) {
            self.write(&format!("class/net/{name}/type"), &format!("{kind}\n"));
            files.iter().for_each(|file| self.write(&format!("class/net/{name}/{file}"), ""));
        }

        fn role(&self, device: Device<'_>) -> String {
            role(self.0.path(), device, &BTreeMap::new())
                .map_or_else(|| "none".to_owned(), |role| role.to_string())
        }

        fn sum(&self, metric: &str, key: &str, devices: &[(&str, u64)]) -> u64 {
            let labels: Vec<Labels> = devices
                .iter()
                .map(|(name, _)| {
                    let labels = Labels::new(vec![(key.to_owned(), (*name).to_owned())]).unwrap();
                    let device = Device::of(metric, &labels).unwrap();
                    let role = role(self.0.path(), device, &BTreeMap::new());
                    labels.with_role(role)
                })
                .collect();
            let contained = contained(labels.iter().map(|labels| ("n1", metric, labels)));
            devices
                .iter()
                .zip(contained)
                .filter(|(_, contained)| !contained)
                .map(|((_, bytes), _)| bytes)
                .sum()
        }
    }

    fn storage() -> Sys {
        let sys = Sys::new();
        sys.block("sda", Some("8:0"), None, &[]);
        sys.block("sda1", Some("8:1"), Some("sda"), &[]);
        sys.block("sda2", Some("8:2"), Some("sda"), &[]);
        sys.block("nvme0n1", Some("259:0"), None, &[]);
        sys.block("nvme1n1", Some("259:1"), None, &[]);
        sys.block("md127", Some("9:127"), None, &["nvme0n1", "nvme1n1"]);
        sys.block("dm-0", Some("253:0"), None, &["md127"]);
        sys.block("dm-1", Some("253:1"), None, &["sda2"]);
        sys.block("sdb", Some("8:16"), None, &[]);
        sys.block("sdc", Some("8:32"), None, &[]);
        sys.block("dm-2", Some("253:2"), None, &["sdb", "sdc"]);
        sys.block("dm-3", Some("253:3"), None, &["dm-2"]);
        sys.block("loop0", Some("7:0"), None, &[]);
        sys.block("zram0", Some("252:0"), None, &[]);
        sys.block("drbd1", Some("147:1"), None, &[]);
        sys.block("zd16", Some("230:16"), None, &[]);
        sys.block("nvme2n1", Some("259:5"), None, &[]);
        sys.block("nvme2c0n1", None, None, &[]);
        sys.block("nvme2c1n1", None, None, &[]);
        sys.block("nvme2n1p1", Some("259:6"), Some("nvme2n1"), &[]);
        sys.block("cciss!c0d0", Some("104:0"), None, &[]);
        sys
    }

    #[test]
    fn roles_of_block_devices_are_those_of_the_kernel() {
        let sys = storage();
        let expected = [
            ("sda", "physical", "8:0", "physical"),
            ("sda1", "part sda", "8:1", "part 8:0"),
            ("md127", "stacked nvme1n1 nvme0n1", "9:127", "stacked 259:1 259:0"),
            ("dm-0", "stacked nvme1n1 nvme0n1 md127", "253:0", "stacked 259:1 259:0 9:127"),
            ("dm-1", "stacked sda sda2", "253:1", "stacked 8:0 8:2"),
            ("dm-3", "stacked sdc sdb dm-2", "253:3", "stacked 8:32 8:16 253:2"),
            ("loop0", "stacked", "7:0", "stacked"),
            ("zram0", "local", "252:0", "local"),
            ("drbd1", "stacked", "147:1", "stacked"),
            ("zd16", "stacked", "230:16", "stacked"),
            ("nvme2n1", "stacked nvme2c1n1 nvme2c0n1", "259:5", "physical"),
            ("nvme2n1p1", "part nvme2c1n1 nvme2c0n1 nvme2n1", "259:6", "part 259:5"),
            ("cciss/c0d0", "physical", "104:0", "physical"),
            ("vda", "none", "254:0", "none"),
        ];
        for (name, by_name, number, by_number) in expected {
            assert_eq!(sys.role(Device::Block(name)), by_name);
            assert_eq!(sys.role(Device::Number(number)), by_number, "{name}");
        }
        fs::remove_dir_all(sys.0.path().join("dev")).unwrap();
        assert_eq!(
            sys.role(Device::Number("253:0")),
            "stacked 259:1 259:0 9:127",
            "found by the files `dev`"
        );
    }

    #[test]
    fn devices_in_a_circle_end() {
        let sys = Sys::new();
        sys.block("dm-0", Some("253:0"), None, &["dm-1"]);
        sys.block("dm-1", Some("253:1"), None, &["dm-0"]);
        assert_eq!(sys.role(Device::Block("dm-0")), "stacked dm-1");
        let many: Vec<String> = (0..2 * BELOW_MAX).map(|number| format!("x{number}")).collect();
        sys.block("dm-2", None, None, &many.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(
            role(sys.0.path(), Device::Block("dm-2"), &BTreeMap::new()).unwrap().below().count() <= BELOW_MAX
        );
    }

    /// Lets bytes arrive at a device and pass on to those below it in equal parts.
    fn pass(stack: &[(&str, &[&str])], device: &str, bytes: u64, counted: &mut BTreeMap<String, u64>) -> u64 {
        *counted.entry(device.to_owned()).or_default() += bytes;
        let below = stack.iter().find(|(name, _)| *name == device).map_or(&[][..], |(_, below)| *below);
        if below.is_empty() {
            return bytes;
        }
        below.iter().map(|name| pass(stack, name, bytes / below.len() as u64, counted)).sum()
    }

    #[test]
    fn each_byte_that_passes_through_a_stack_is_summed_once() {
        let sys = storage();
        let disks: [(&str, &[&str]); 8] = [
            ("253:0", &["9:127"]),
            ("9:127", &["259:0", "259:1"]),
            ("253:1", &["8:0"]),
            ("253:2", &["8:16", "8:32"]),
            ("253:3", &["253:2"]),
            ("7:0", &["8:0"]),
            ("8:1", &["8:0"]),
            ("259:6", &["259:5"]),
        ];
        // Each number chooses where bytes arrive: all combinations of devices.
        let tops = ["253:0", "9:127", "253:1", "253:3", "8:16", "7:0", "8:0", "259:5"];
        for choice in 1..1_u32 << tops.len() {
            let mut counted = BTreeMap::new();
            let mut moved = 0;
            for (position, top) in tops.iter().enumerate().filter(|(position, _)| choice >> position & 1 == 1)
            {
                moved += pass(&disks, top, 4096 << position, &mut counted);
            }
            // A cgroup's file has no partitions. The worker of a loop device may count for another cgroup.
            let lines: Vec<(&str, u64)> =
                counted.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
            assert_eq!(sys.sum("io.read.bytes", "device", &lines), moved, "{lines:?}");
        }
        let paths_without_lines = [("253:3", 100), ("253:2", 100), ("8:0", 7), ("252:0", 50)];
        assert_eq!(sys.sum("io.read.bytes", "device", &paths_without_lines), 107);
    }

    fn network() -> Sys {
        let sys = Sys::new();
        sys.interface("lo", 772, &[]);
        for port in ["eno1", "eno2", "bond-like", "ib0", "ib0.8001"] {
            sys.interface(port, if port.starts_with("ib") { 32 } else { 1 }, &["device/vendor"]);
        }
        sys.interface("data0", 1, &["lower_eno1", "lower_eno2", "bonding/mode"]);
        sys.interface("vlan100", 1, &["lower_data0"]);
        sys.interface("br0", 1, &["lower_vlan100", "lower_vnet3", "bridge/bridge_id"]);
        sys.interface("ovs-system", 1, &["lower_bond-like"]);
        sys.interface("ovsbr0", 1, &[]);
        for tunnel in ["vnet3", "wg-site", "calia12", "tap0"] {
            sys.interface(tunnel, 1, &[]);
        }
        sys.interface("macvlan0", 1, &["lower_eno1"]);
        sys.interface("old-bond", 1, &["bonding/mode"]);
        sys.write("class/net/old-bond/bonding/slaves", "eno1 eno2\n");
        sys.interface("old-bridge", 1, &["bridge/bridge_id", "brif/eno2"]);
        sys.interface("empty", 1, &["bridge/bridge_id"]);
        sys
    }

    #[test]
    fn roles_of_interfaces_are_those_of_the_kernel() {
        let sys = network();
        let expected = [
            ("lo", "local"),
            ("eno1", "physical"),
            ("bond-like", "physical"),
            ("ib0.8001", "physical"),
            ("data0", "stacked eno2 eno1"),
            ("vlan100", "stacked eno2 eno1 data0"),
            ("br0", "stacked eno2 eno1 data0 vnet3 vlan100"),
            ("ovs-system", "stacked bond-like"),
            ("ovsbr0", "stacked"),
            ("wg-site", "stacked"),
            ("macvlan0", "stacked eno1"),
            ("old-bond", "stacked eno2 eno1"),
            ("old-bridge", "stacked eno2"),
            ("empty", "stacked"),
            ("eth0", "none"),
        ];
        for (name, role) in expected {
            assert_eq!(sys.role(Device::Interface(name)), role, "{name}");
        }
        let ports = [("eno1", 1_u64), ("eno2", 2), ("bond-like", 4), ("ib0", 8), ("ib0.8001", 16)];
        let mut all = ports.to_vec();
        let listed = names(&sys.0.path().join("class/net"));
        let others = listed.iter().filter(|name| !ports.iter().any(|(port, _)| port == name));
        all.extend(others.map(|name| (name.as_str(), 1000)));
        assert_eq!(sys.sum("node.network.receive.bytes", "interface", &all), 31);
    }

    #[test]
    fn the_link_of_a_container_counts_for_it() {
        let sys = Sys::new();
        sys.interface("lo", 772, &[]);
        for (name, index, link) in
            [("eth0", "12", "13"), ("wg0", "3", "3"), ("docker0", "4", "4"), ("tunl0", "5", "0")]
        {
            sys.interface(name, 1, &[]);
            sys.write(&format!("class/net/{name}/ifindex"), index);
            sys.write(&format!("class/net/{name}/iflink"), link);
        }
        let all = [("lo", 1000), ("eth0", 5), ("wg0", 4), ("docker0", 3), ("tunl0", 2)];
        assert_eq!(sys.sum("node.network.transmit.bytes", "interface", &all), 5);
        sys.interface("eno1", 1, &["device/vendor"]);
        assert_eq!(sys.role(Device::Interface("eth0")), "stacked", "the host's end of a link");
    }

    fn roles_in_series(sys: &Sys, names: &InterfaceNames, interfaces: &[&str]) -> Vec<String> {
        let definition = polymeter_proto::catalogue::find("node.network.receive.bytes").unwrap();
        let slots = interfaces.iter().map(|name| Slot {
            definition: definition.clone(),
            labels: Labels::new(vec![("interface".to_owned(), (*name).to_owned())]).unwrap(),
        });
        let slots: Vec<Slot> = slots.collect();
        let devices = of_slots(sys.0.path(), &slots, Some(names));
        let roles = devices.roles.iter().map(|(position, role)| {
            let slot = &slots[*position];
            let in_series = devices.in_series(slot).unwrap_or_else(|| slot.clone());
            format!("{} {role}", in_series.labels.get("interface").unwrap())
        });
        roles.collect()
    }

    #[test]
    fn an_interface_keeps_its_first_name_in_series() {
        let sys = Sys::new();
        let add = |name: &str, index: &str, files: &[&str]| {
            sys.interface(name, 1, files);
            sys.write(&format!("class/net/{name}/ifindex"), index);
        };
        add("eth0", "2\n", &["device/x"]);
        add("eth1", "3\n", &["device/x"]);
        add("bond0", "4\n", &["lower_eth0", "bonding/slaves"]);
        let names = InterfaceNames::default();
        let found = |interfaces: &[&str]| roles_in_series(&sys, &names, interfaces);
        assert_eq!(
            found(&["eth0", "eth1", "bond0"]),
            ["eth0 physical", "eth1 physical", "bond0 stacked eth0"]
        );
        let net = sys.0.path().join("class/net");
        fs::rename(net.join("eth0"), net.join("lan0")).unwrap();
        fs::rename(net.join("bond0/lower_eth0"), net.join("bond0/lower_lan0")).unwrap();
        let renamed = ["eth1 physical", "bond0 stacked eth0", "eth0 physical"];
        assert_eq!(found(&["eth1", "bond0", "lan0"]), renamed);
        // Another interface takes the name that the first one had.
        add("eth0", "9\n", &["device/x"]);
        assert_eq!(found(&["lan0", "eth0"]), ["eth0 physical", "eth0#9 physical"]);
        fs::remove_dir_all(net.join("lan0")).unwrap();
        fs::remove_dir_all(net.join("eth0")).unwrap();
        add("eth0", "10\n", &["device/x"]);
        assert_eq!(found(&["eth0"]), ["eth0 physical"], "both are gone");
    }
}
