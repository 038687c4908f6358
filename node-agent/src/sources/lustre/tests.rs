//! Tests of the kind of Lustre's statistics, on laid-out trees.

use std::collections::BTreeMap;

use polymeter_proto::catalogue;

use super::super::mount_table;
use super::*;

const MOUNTS: &str = "\
28 1 8:2 / / rw - ext4 /dev/sda2 rw
40 28 0:50 / /scratch rw - lustre 10.0.0.1@tcp:10.0.0.2@tcp:/scratch rw
41 28 0:51 / /home rw - lustre mgs@o2ib:/home/users rw
42 28 0:52 / /work rw - lustre mgs@o2ib:/work-1 rw
";

fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Mounts) {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files.iter().chain(&[("proc/self/mountinfo", MOUNTS)]) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mounts = Mounts::read(root.path()).unwrap();
    (root, mounts)
}

fn open(mounts: &Mounts) -> LustreSource {
    let table = MountTable::open(&mounts.proc.join("self/mountinfo")).unwrap();
    let wanted = catalogue::select(&"node.lustre.*".parse().unwrap());
    LustreSource::new(find(mounts, &table.mounts()), &wanted, table, mounts.clone())
}

fn read(source: &mut LustreSource) -> (Outcome, BTreeMap<String, u64>) {
    let mut reading = Reading::absent(source.slots.len());
    let outcome = source.read(&mut reading);
    (outcome, reading.by_series(&source.slots))
}

const STATS: &str = "\
snapshot_time             1700000369.331040915 secs.nsecs
read_bytes                449131 samples [bytes] 1 4194304 91756123 31789123897
open                      1381 samples [usec] 1 7252 102707 8835364
opencount                 1381 samples [reqs] 1 2 2071 3453
";

#[test]
fn a_client_has_series_for_each_mount() {
    let (_root, mounts) = machine(&[
        ("sys/kernel/debug/lustre/llite/scratch-ffff8f0e2d4f1800/stats", STATS),
        (
            "proc/fs/lustre/llite/home-ffff8f0e2d4f2800/stats",
            "write_bytes 3 samples [bytes] 1 2 5\nopen 7 samples [regs]\n",
        ),
        // The same mount in the old place.
        ("proc/fs/lustre/llite/scratch-ffff8f0e2d4f1800/stats", "read_bytes 1 samples [bytes] 1 1 1\n"),
    ]);
    let mut source = open(&mounts);
    let expected = [
        ("node.lustre.operation.time{filesystem=scratch,mount=/scratch,operation=open}", 102_707_000),
        ("node.lustre.operations{filesystem=home,mount=/home,operation=open}", 7),
        ("node.lustre.operations{filesystem=scratch,mount=/scratch,operation=open}", 1381),
        ("node.lustre.read.bytes{filesystem=scratch,mount=/scratch}", 91_756_123),
        ("node.lustre.read.operations{filesystem=scratch,mount=/scratch}", 449_131),
        ("node.lustre.write.bytes{filesystem=home,mount=/home}", 5),
        ("node.lustre.write.operations{filesystem=home,mount=/home}", 3),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(read(&mut source), (Outcome::Read, expected.into()));
}

#[test]
fn counters_may_be_reset_and_mounts_may_vanish() {
    let scratch = "sys/kernel/debug/lustre/llite/scratch-1/stats";
    let home = "sys/kernel/debug/lustre/llite/home-2/stats";
    let (root, mounts) = machine(&[(scratch, STATS), (home, STATS)]);
    let mut source = open(&mounts);
    assert_eq!(read(&mut source).1.len(), 8);
    fs::write(root.path().join(scratch), "snapshot_time 1.2 secs.nsecs\n").unwrap();
    assert_eq!(read(&mut source).1.len(), 4, "a reset counter has no line");
    fs::remove_file(root.path().join(home)).unwrap();
    assert_eq!(read(&mut source), (Outcome::Read, BTreeMap::new()));
    fs::remove_file(root.path().join(scratch)).unwrap();
    assert_eq!(read(&mut source).0, Outcome::Gone);
}

#[test]
fn two_mounts_of_one_file_system_are_told_apart() {
    let mounted = mount_table::parse(MOUNTS);
    let names = ["scratch-1", "scratch-2", "home-3", "work-1-4", "plain"].map(str::to_owned);
    let labels = |name: &str| {
        let labels = client_labels(name, &names, &mounted);
        labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    };
    assert_eq!(labels("scratch-1"), "filesystem=scratch,instance=1");
    assert_eq!(labels("scratch-2"), "filesystem=scratch,instance=2");
    assert_eq!(labels("home-3"), "filesystem=home,mount=/home");
    assert_eq!(labels("work-1-4"), "filesystem=work-1,mount=/work");
    assert_eq!(labels("plain"), "filesystem=plain");
}

#[test]
fn a_server_has_series_for_each_target() {
    let (_root, mounts) = machine(&[
        ("proc/fs/lustre/obdfilter/scratch-OST0003/stats", STATS),
        (
            "proc/fs/lustre/mdt/scratch-MDT0000/md_stats",
            "open 12 samples [reqs]\nsamedir_rename 2 samples [usec] 1 5 6 26\n",
        ),
    ]);
    let (outcome, values) = read(&mut open(&mounts));
    assert_eq!(outcome, Outcome::Read);
    let expected = [
        ("node.lustre.target.operation.time{operation=open,target=scratch-OST0003}", 102_707_000),
        ("node.lustre.target.operation.time{operation=samedir_rename,target=scratch-MDT0000}", 6_000),
        ("node.lustre.target.operations{operation=open,target=scratch-MDT0000}", 12),
        ("node.lustre.target.operations{operation=open,target=scratch-OST0003}", 1381),
        ("node.lustre.target.operations{operation=samedir_rename,target=scratch-MDT0000}", 2),
        ("node.lustre.target.read.bytes{target=scratch-OST0003}", 91_756_123),
        ("node.lustre.target.read.operations{target=scratch-OST0003}", 449_131),
    ];
    assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)).into());
}

#[test]
fn any_name_has_series() {
    let (_root, mounts) = machine(&[("proc/fs/lustre/obdfilter/a\"b&\n-OST0000/stats", STATS)]);
    let slots = open(&mounts).slots;
    assert!(!slots.is_empty());
    assert!(slots.iter().all(|slot| slot.labels.get("target") == Some(r#"a"b&\x0a-OST0000"#)), "{slots:?}");
}

#[test]
fn an_operation_has_a_series_once_it_has_occurred() {
    let path = "sys/kernel/debug/lustre/llite/scratch-1/stats";
    let (root, mounts) = machine(&[(path, "snapshot_time 1.2 secs.nsecs\n")]);
    let mut source = open(&mounts);
    let all = source.slots.len();
    source.keep_present();
    assert_eq!(source.slots.len(), all, "nothing is known of a new mount");
    fs::write(root.path().join(path), STATS).unwrap();
    let mut source = open(&mounts);
    source.keep_present();
    assert_eq!((source.slots.len(), read(&mut source).1.len()), (4, 4));
    fs::write(root.path().join(path), format!("{STATS}seek 1 samples [regs]\nunheard_of 1 samples [regs]\n"))
        .unwrap();
    let (outcome, values) = read(&mut source);
    assert_eq!((outcome, values.len()), (Outcome::Changed, 4));
    let mut source = open(&mounts);
    source.keep_present();
    let (outcome, values) = read(&mut source);
    assert_eq!((outcome, values.len()), (Outcome::Read, 5));
    assert_eq!(values["node.lustre.operations{filesystem=scratch,mount=/scratch,operation=seek}"], 1);
}
