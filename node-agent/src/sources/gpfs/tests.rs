//! Tests of the kind of GPFS with scripts in place of `mmpmon`.

use std::fs;
use std::path::Path;

use polymeter_proto::catalogue;
use rustix::io::Errno;

use super::super::mount_table;
use super::*;

pub(super) const ANSWER: &str = "\
_fs_io_s_ _n_ 10.22.0.106 _nn_ node7 _rc_ 0 _t_ 1579358234 _tu_ 53212 _cl_ gpfs.site _fs_ scratch _d_ 48 _br_ 205607400434 _bw_ 74839282351 _oc_ 2377656 _cc_ 2201576 _rdc_ 59420404 _wc_ 18874626 _dir_ 40971 _iu_ 544768
_fs_io_s_ _n_ 10.22.0.106 _nn_ node7 _rc_ 0 _t_ 1579358234 _tu_ 53212 _cl_ gpfs.site _fs_ project _d_ 96 _br_ 0 _bw_ 0 _oc_ 513 _cc_ 513 _rdc_ 0 _wc_ 0 _dir_ 0 _iu_ 169
_ver_ _n_ 10.22.0.106 _nn_ node7 _v_ 3 _lv_ 5 _vt_ 0
";

const MOUNTS: &str = "\
28 1 8:2 / / rw - ext4 /dev/sda2 rw
40 28 0:50 / /scratch rw - gpfs /dev/scratch rw
41 28 0:51 / /projects rw - gpfs project rw
42 28 0:52 / /away rw - gpfs away rw
";

/// Answers each request, and writes its process id to the file `pid`.
const ANSWERS: &str = "echo $$ >> pid\nwhile read request; do case $request in ver) cat answer;; esac; done";

/// Limit for scripts that answer, long enough for a busy machine.
const LONG_NS: u64 = 120_000_000_000;

/// Lays out a script, which a shell runs in its directory.
fn script(text: &str, answer_ns: u64) -> (tempfile::TempDir, GpfsSource) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("answer"), ANSWER).unwrap();
    let text = format!("cd {}\n{text}", root.path().display());
    fs::write(root.path().join("mmpmon"), text).unwrap();
    let process = Process::new("/bin/sh".into(), vec![root.path().join("mmpmon").into()], answer_ns);
    let wanted = catalogue::select(&"node.gpfs.*".parse().unwrap());
    let source = GpfsSource::new(&of_gpfs(mount_table::parse(MOUNTS)), &wanted, process);
    (root, source)
}

fn read(source: &mut GpfsSource) -> (Outcome, Reading) {
    let mut reading = Reading::absent(source.slots.len());
    (source.read(&mut reading), reading)
}

/// True if there is a process with this id, be it only one whose end was not waited for.
fn exists(id: &str) -> bool {
    Path::new("/proc").join(id).exists()
}

#[test]
fn one_process_answers_all_requests() {
    let (root, mut source) = script(ANSWERS, LONG_NS);
    for _ in 0..3 {
        let (outcome, reading) = read(&mut source);
        assert_eq!(outcome, Outcome::Read);
        let values: Vec<_> = source
            .slots
            .iter()
            .map(|slot| format!("{}{{{}}}", slot.definition.name(), slot.labels))
            .zip(reading.iter())
            .filter(|(_, bits)| bits.is_some())
            .collect();
        assert_eq!(values.len(), 16, "those of /away are absent");
        assert_eq!(
            values[0],
            ("node.gpfs.read.bytes{filesystem=scratch,mount=/scratch}".to_owned(), Some(205_607_400_434))
        );
        assert_eq!(values[15].0, "node.gpfs.inode_updates{filesystem=project,mount=/projects}");
    }
    let ids = fs::read_to_string(root.path().join("pid")).unwrap();
    assert_eq!(ids.lines().count(), 1);
    assert_eq!(source.process.id().map(|id| id.to_string()), ids.lines().next().map(str::to_owned));
    drop(source);
    assert!(!exists(ids.trim()), "it has ended, and is no zombie");
}

#[test]
fn a_process_that_ends_is_started_again_later() {
    let (root, mut source) = script("echo $$ >> pid\nread request\nread request\ncat answer", LONG_NS);
    assert_eq!(read(&mut source).0, Outcome::Read);
    let (outcome, reading) = read(&mut source);
    assert_eq!(outcome, Outcome::Retry(Errno::PIPE));
    assert!(reading.iter().all(|value| value.is_none()));
    source.process.wait_for_end();
    let ids = || fs::read_to_string(root.path().join("pid")).unwrap();
    assert!(!exists(ids().trim()), "no zombie is left");
    assert_eq!(read(&mut source).0, Outcome::Retry(Errno::AGAIN), "not at once");
    source.process.forget_last_start();
    assert_eq!(read(&mut source).0, Outcome::Read);
    assert_eq!(ids().lines().count(), 2);
}

#[test]
fn a_process_that_does_not_answer_is_killed() {
    // It ignores the end of its input, and gives an incomplete answer.
    let (_root, mut source) = script("head -n 2 answer\nexec sleep 100", 1_000_000_000);
    let (outcome, reading) = read(&mut source);
    assert_eq!(outcome, Outcome::Retry(Errno::TIMEDOUT));
    assert!(reading.iter().all(|value| value.is_none()), "of an incomplete answer nothing is used");
    assert_eq!(source.process.id(), None);
    source.process.wait_for_end();
}

#[test]
fn an_endless_answer_is_cut_off() {
    let (_root, mut source) = script("while :; do cat answer answer answer | grep _io_s_; done", LONG_NS);
    assert_eq!(read(&mut source).0, Outcome::Retry(Errno::MSGSIZE));
}

#[test]
fn a_program_that_is_missing_is_reported() {
    let process = Process::new("/nonexistent/mmpmon".into(), Vec::new(), LONG_NS);
    let mut source = GpfsSource::new(&[], &[], process);
    assert_eq!(source.read(&mut Reading::default()), Outcome::Gone);
}
