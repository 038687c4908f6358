//! Tests of the kind of NFS mounts, and text of several kernels in the form of their sources.

use std::collections::BTreeMap;
use std::fs;

use polymeter_proto::catalogue;

use super::super::mount_table;
use super::*;

/// Linux 5.14 and later: version 4.2 with two connections, and RDMA.
pub(super) const NEW: &str = "\
device proc mounted on /proc with fstype proc
no device mounted on /sys/kernel/security with fstype securityfs
device 10.1.0.2:/export/home mounted on /home with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,nconnect=2,timeo=600,retrans=2,sec=sys
\tage:\t86412
\timpl_id:\tname='',domain='',date='0,0'
\tcaps:\tcaps=0xf3ffbfff,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffbfff,bm1=0xf9be3e,bm2=0x60800,acl=0x3,sessions,pnfs=not configured,lease_time=90,lease_expired=0
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t1 2 33 4 57 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 2 3 11 12
\tbytes:\t1234567 7654321 4096 8192 1300000 7700000 318 99
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 785 1 1 0 24 700 699 1 812 2 8 0 0
\txprt:\ttcp 786 1 2 0 24 700 699 0 812 3 8 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 120 123 3 26400 1315360 17 4096 5150 2
\t     GETATTR: 400 400 0 96000 98400 4 290 310 0
device nas:/a\\040b mounted on /mnt/a\\040b with fstype nfs statvers=1.1
\tage:\t12
\tbytes:\t1 2 3 4 5 6 7 8
\tRPC iostats version: 1.1  p/v: 100003/3 (nfs)
\txprt:\trdma 0 1 2 0 4 100 100 0 120 0 0 0 0 0 0 0 0 0 0 0
\tper-op statistics
\t       WRITE: 9 9 0 1 2 3 4 5 0
device tmpfs mounted on /tmp with fstype tmpfs
";

/// Linux 2.6.32 and 3.10: version 3 over UDP, without errors of operations.
pub(super) const OLD: &str = "\
device rootfs mounted on / with fstype rootfs
device filer:/vol/scratch mounted on /scratch with fstype nfs statvers=1.0
\topts:\trw,vers=3,rsize=32768,wsize=32768,proto=udp,timeo=11,retrans=3,sec=sys
\tage:\t7
\tcaps:\tcaps=0x3fef,wtmult=4096,dtsize=4096,bsize=0,namlen=255
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t0 0 0 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1
\tbytes:\t1 2 3 4 5 6 7 8
\tRPC iostats version: 1.0  p/v: 100003/3 (nfs)
\txprt:\tudp 892 1 412 410 0 500 0
\tper-op statistics
\t        NULL: 0 0 0 0 0 0 0 0
\t        READ: 1 2 3 4 5 6 70 88
";

const MOUNTS: &str = "\
28 1 8:2 / / rw - ext4 /dev/sda2 rw
40 28 0:50 / /home rw - nfs4 10.1.0.2:/export/home rw,vers=4.2
41 28 0:50 /bind /home/bind rw - nfs4 10.1.0.2:/export/home rw,vers=4.2
42 28 0:51 / /mnt/a\\040b rw - nfs nas:/a\\040b rw,vers=3
43 28 0:52 / /scratch rw - nfs filer:/vol/scratch rw,vers=3
44 28 0:53 / /gone rw - nfs filer:/gone rw,vers=3
";

fn wanted() -> Vec<Definition> {
    catalogue::select(&"node.nfs.*".parse().unwrap())
}

fn values(text: &str) -> BTreeMap<String, u64> {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("self")).unwrap();
    fs::write(root.path().join("self/mountstats"), text).unwrap();
    let mounts = of_nfs(mount_table::parse(MOUNTS));
    let mut source = NfsSource::new(root.path(), &mounts, &wanted());
    let mut reading = Reading::absent(source.slots.len());
    assert_eq!(source.read(&mut reading), Outcome::Read);
    reading.by_series(&source.slots)
}

#[test]
fn each_file_system_has_series_by_operation() {
    let found = values(&[NEW, OLD].concat());
    let home = "export=10.1.0.2:/export/home,mount=/home";
    for (name, value) in [
        (format!("node.nfs.read.bytes{{{home}}}"), 1_234_567),
        (format!("node.nfs.server.write.bytes{{{home}}}"), 7_700_000),
        (format!("node.nfs.delays{{{home}}}"), 3),
        (format!("node.nfs.transport.connects{{{home}}}"), 3),
        (format!("node.nfs.operations{{{home},operation=READ}}"), 120),
        (format!("node.nfs.operation.transmissions{{{home},operation=READ}}"), 123),
        (format!("node.nfs.operation.timeouts{{{home},operation=READ}}"), 3),
        (format!("node.nfs.operation.received.bytes{{{home},operation=READ}}"), 1_315_360),
        (format!("node.nfs.operation.response.time{{{home},operation=READ}}"), 4_096_000_000),
        (format!("node.nfs.operation.errors{{{home},operation=READ}}"), 2),
        ("node.nfs.write.bytes{export=nas:/a b,mount=/mnt/a b}".to_owned(), 2),
        ("node.nfs.delays{export=filer:/vol/scratch,mount=/scratch}".to_owned(), 1),
    ] {
        assert_eq!(found.get(&name), Some(&value), "{name}");
    }
    let absent = |part: &str| assert!(!found.keys().any(|name| name.contains(part)), "{part}");
    absent("operation=NULL");
    absent("mount=/gone");
    absent("connects{export=filer");
    absent("errors{export=filer");
    absent("/home/bind");
}

#[test]
fn a_mount_that_vanishes_has_no_values() {
    assert_eq!(values(""), BTreeMap::new());
    assert!(values(OLD).keys().all(|name| name.contains("/scratch")));
}

#[test]
fn a_table_that_is_missing_is_reported() {
    let root = tempfile::tempdir().unwrap();
    let mut source = NfsSource::new(root.path(), &of_nfs(mount_table::parse(MOUNTS)), &wanted());
    assert_eq!(source.read(&mut Reading::default()), Outcome::Gone);
}

#[test]
fn a_mount_has_series_of_what_it_shows() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("self")).unwrap();
    fs::write(root.path().join("self/mountstats"), [NEW, OLD].concat()).unwrap();
    let mut source = NfsSource::new(root.path(), &of_nfs(mount_table::parse(MOUNTS)), &wanted());
    let of_one = source.slots.len() / 4;
    source.keep_present();
    let count =
        |mount: &str| source.slots.iter().filter(|slot| slot.labels.get("mount") == Some(mount)).count();
    // 8 of bytes, 8 of events, 5 of the transport, 9 of each operation; over UDP there are no connections,
    // and OLD has no errors.
    assert_eq!([count("/home"), count("/scratch")], [8 + 8 + 5 + 2 * 9, 8 + 8 + 4 + 8]);
    assert_eq!(count("/gone"), of_one, "nothing is known of it");
    let mut reading = Reading::absent(source.slots.len());
    assert_eq!(source.read(&mut reading), Outcome::Read);
    let present = source.slots.iter().zip(reading.iter());
    assert!(
        present.filter(|(slot, _)| slot.labels.get("mount") != Some("/gone")).all(|(_, bits)| bits.is_some())
    );
}
