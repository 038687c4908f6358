//! Tests of the kind of BeeGFS with a script in place of `beegfs-ctl`.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use polymeter_proto::catalogue;

use super::*;
use crate::cgroups::Mounts;
use crate::sources::kind::SourceFactory;

/// Interfaces of a client of BeeGFS 7.4.
pub(super) const CLIENT_INFO: &str = "\
ClientID: 4F34-5DE9100E-node7
Interfaces:
+ ib0[ip addr: 10.1.2.3; type: RDMA]
+ ib0[ip addr: 10.1.2.3; type: TCP]
+ eth0[ip addr: 192.168.7.9; type: TCP]
Outbound RDMA Interfaces:
+ Any
";

/// Storage servers of BeeGFS 7.
pub(super) const STORAGE: &str = "\
Sum:            61999 [sum]  0 [ack]  20 [sChDrct]  0 [getFSize]  0 [sAttr]  18088 [statfs]  0 [trunc]  0 [close]  0 [fsync]  22385 [ops-rd]  3.28771e+08 [B-rd]  21506 [ops-wr]  8.80845e+07 [B-wr]  0 [gendbg]  0 [hrtbeat]  0 [remNode]  0 [storInf]  0 [unlnk]
10.1.2.3        61957 [sum]  0 [ack]  20 [sChDrct]  0 [getFSize]  0 [sAttr]  18048 [statfs]  0 [trunc]  0 [close]  0 [fsync]  22385 [ops-rd]  3.28771e+08 [B-rd]  21504 [ops-wr]  8.80804e+07 [B-wr]  0 [gendbg]  0 [hrtbeat]  0 [remNode]  0 [storInf]  0 [unlnk]
10.1.2.30       42 [sum]  0 [ack]  0 [sChDrct]  0 [getFSize]  0 [sAttr]  40 [statfs]  0 [trunc]  0 [close]  0 [fsync]  0 [ops-rd]  0 [B-rd]  2 [ops-wr]  4096 [B-wr]  0 [gendbg]  0 [hrtbeat]  0 [remNode]  0 [storInf]  0 [unlnk]
";

/// Metadata servers of BeeGFS 7. This node has two addresses there.
const METADATA: &str = "\
10.1.2.3        56624 [sum]  0 [ack]  10 [close]  0 [entInf]  0 [fndOwn]  0 [mkdir]  488 [rddir]  30911 [stat]  7723 [statLI]  17468 [revalLI]
192.168.7.9     7 [sum]  0 [ack]  3 [close]  0 [entInf]  0 [fndOwn]  4 [mkdir]  0 [rddir]  0 [stat]  0 [statLI]  0 [revalLI]
";

const MOUNTS: &str = "\
28 1 8:2 / / rw - ext4 /dev/sda2 rw
40 28 0:50 / /mnt/beegfs rw - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf
";

/// Answers as the servers of both types, and writes its arguments to the file `arguments`.
const ANSWERS: &str = "\
#!/bin/sh
cd \"${0%/*}\"
echo \"$@\" >> arguments
case $* in *--nodetype=storage*) cat storage;; *) cat metadata;; esac
";

struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        machine.write("proc/self/mountinfo", MOUNTS);
        machine.write("proc/fs/beegfs/4F34-5DE9100E-node7/client_info", CLIENT_INFO);
        machine.write("usr/bin/storage", STORAGE);
        machine.write("usr/bin/metadata", METADATA);
        machine.write("usr/bin/beegfs-ctl", ANSWERS);
        let program = machine.root.path().join("usr/bin/beegfs-ctl");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.root.path().join(path)).unwrap();
    }

    fn sources(&self) -> Vec<BeegfsSource> {
        let wanted = catalogue::select(&"node.beegfs.*".parse().unwrap());
        let mount = of_beegfs(super::super::mount_table::parse(MOUNTS)).remove(0);
        let [program, clients] =
            ["usr/bin/beegfs-ctl", "proc/fs/beegfs"].map(|path| self.root.path().join(path));
        Servers::ALL.map(|servers| BeegfsSource::new(&mount, servers, &wanted, &program, &clients)).into()
    }

    fn open(&self) -> (Vec<String>, BTreeSet<String>) {
        let mounts = Mounts::read(self.root.path()).unwrap();
        let wanted = catalogue::select(&"node.beegfs.*".parse().unwrap());
        let (opened, unavailable) = SourceFactory::of(&mounts).open(&Target::Node(Arc::default()), &wanted);
        let names = opened.into_iter().map(|opened| opened.name).collect();
        (names, unavailable.into_iter().map(|unavailable| unavailable.reason).collect())
    }
}

fn read(source: &mut BeegfsSource) -> (Outcome, BTreeMap<String, u64>) {
    let mut reading = Reading::absent(source.slots.len());
    let outcome = source.read(&mut reading);
    (outcome, reading.by_series(&source.slots))
}

#[test]
fn the_counts_are_those_of_this_node() {
    let machine = Machine::new();
    let [storage, metadata] = &mut machine.sources()[..] else { panic!("two sources") };
    let (outcome, values) = read(storage);
    assert_eq!((outcome, values.len()), (Outcome::Read, 12));
    let expected = [
        ("read.bytes{mount=/mnt/beegfs}", 328_771_000),
        ("read.operations{mount=/mnt/beegfs}", 22_385),
        ("write.bytes{mount=/mnt/beegfs}", 88_080_400),
        ("write.operations{mount=/mnt/beegfs}", 21_504),
        ("storage.operations{mount=/mnt/beegfs,operation=statfs}", 18_048),
        ("storage.operations{mount=/mnt/beegfs,operation=fsync}", 0),
    ];
    for (name, value) in expected {
        assert_eq!(values[&format!("node.beegfs.{name}")], value, "{name}");
    }
    let (outcome, values) = read(metadata);
    let operation =
        |name: &str| format!("node.beegfs.metadata.operations{{mount=/mnt/beegfs,operation={name}}}");
    assert_eq!((outcome, values.len()), (Outcome::Read, 8), "those that this version counts");
    assert_eq!(
        ["close", "mkdir", "stat", "entInf"].map(|name| values[&operation(name)]),
        [13, 4, 30_911, 0],
        "over both interfaces"
    );
    let arguments = fs::read_to_string(machine.root.path().join("usr/bin/arguments")).unwrap();
    assert_eq!(
        arguments,
        "--clientstats --allstats --rwunit=B --interval=0 --nodetype=storage --mount=/mnt/beegfs\n\
         --clientstats --allstats --rwunit=B --interval=0 --nodetype=meta --mount=/mnt/beegfs\n"
    );
}

#[test]
fn values_are_absent_while_the_servers_or_the_client_are_unknown() {
    let machine = Machine::new();
    let mut sources = machine.sources();
    let storage = &mut sources[0];
    machine.write("usr/bin/storage", "10.1.2.30  42 [sum]\n");
    assert_eq!(read(storage), (Outcome::Read, BTreeMap::new()), "this node has used no server");
    machine.write("usr/bin/beegfs-ctl", "#!/bin/sh\necho '10.1.2.3  42 [sum]  7 [ops-rd]'\nexit 1\n");
    assert_eq!(read(storage), (Outcome::Retry(Errno::IO), BTreeMap::new()), "the program failed");
    machine.remove("proc/fs/beegfs/4F34-5DE9100E-node7/client_info");
    assert_eq!(read(storage), (Outcome::Retry(Errno::NODATA), BTreeMap::new()));
}

#[test]
fn each_type_of_servers_is_a_source() {
    let machine = Machine::new();
    let names = ["beegfs/mounts", "beegfs/storage/mnt/beegfs", "beegfs/metadata/mnt/beegfs"];
    assert_eq!(machine.open(), (names.map(str::to_owned).into(), BTreeSet::new()));
    machine.remove("usr/bin/beegfs-ctl");
    let program = machine.root.path().join("usr/bin/beegfs-ctl");
    let missing = BTreeSet::from([format!("{} does not exist", program.display())]);
    assert_eq!(machine.open(), (vec!["beegfs/mounts".to_owned()], missing));
    machine.write("opt/beegfs/sbin/beegfs-ctl", ANSWERS);
    assert_eq!(machine.open().0.len(), 3, "the directory of the package");
    machine.write("proc/self/mountinfo", "28 1 8:2 / / rw - ext4 /dev/sda2 rw\n");
    let none = BTreeSet::from(["no BeeGFS file system is mounted".to_owned()]);
    assert_eq!(machine.open(), (vec!["beegfs/mounts".to_owned()], none));
}
