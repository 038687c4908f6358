//! Tests of taskstats: a real record, records of other versions, attribution, and the kernel itself.

use std::collections::BTreeSet;

use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use super::exited_jobs::Jobs;
use super::netlink::{Answer, answers, register_request};
use super::record::{Quantity, Record};
use super::*;
use crate::cgroups::{JobCgroups, Mounts};

/// Numbers of a record of Linux 6.18 that are not 0, in units of 8 bytes: `dd` writes 300 blocks of 4 KiB.
const DD: [(usize, u64); 26] = [
    (0, 0x10),
    (1, 0x20),
    (2, 0x388),
    (3, 0x34b7_715f),
    (8, 0xf4_2400),
    (9, 0x28c_7c4c),
    (10, 0x6464),
    (16, 0x6311_0000_6349),
    (17, 0x6b03_e4fb),
    (18, 0x11_e117),
    (20, 0x3e80),
    (21, 0x53),
    (23, 0x6c66),
    (24, 0xb526),
    (25, 0x6f0),
    (26, 0xb98),
    (27, 0x12_d800),
    (28, 0x12_c000),
    (32, 0x13_0000),
    (34, 0x384),
    (35, 0x3),
    (37, 0x3e80),
    (38, 0xf4_2400),
    (46, 0x6349),
    (47, 0x11_e117),
    (54, 0x229_5591),
];

const BYTES: usize = 560;

/// Head of the message that brought it, with the attribute of the thread's number behind it.
const HEAD: [u8; 36] = [
    0x54, 2, 0, 0, 0x1f, 0, 0, 0, 0x44, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0x40, 2, 4, 0, 8, 0, 1, 0, 0x49,
    0x63, 0, 0, 0x34, 2, 3, 0,
];

fn bytes_of(words: &[(usize, u64)], bytes: usize) -> Vec<u8> {
    let mut record = vec![0; bytes];
    for (place, word) in words {
        record[8 * place..8 * place + 8].copy_from_slice(&word.to_ne_bytes());
    }
    record
}

fn value(record: &Record, field: &str) -> Option<u64> {
    let position = QUANTITIES.iter().position(|quantity: &Quantity| quantity.field == field).unwrap();
    record.values[position]
}

#[test]
fn reads_a_record_of_a_kernel() {
    let record = Record::parse(&bytes_of(&DD, BYTES)).unwrap();
    assert_eq!((record.tid, record.pid, record.parent), (0x6349, Some(0x6349), 0x6311));
    assert_eq!(record.is_last, Some(true));
    assert_eq!(value(&record, "cpu_user"), Some(0));
    assert_eq!(value(&record, "cpu_system"), Some(16_000_000));
    assert_eq!(value(&record, "minor_faults"), Some(83));
    assert_eq!(value(&record, "memory_peak"), Some(0x6f0 * 1024));
    assert_eq!(value(&record, "wchar"), Some(300 * 4096));
    assert_eq!(value(&record, "write_bytes"), Some(0x13_0000));
    assert_eq!(value(&record, "voluntary_switches"), Some(900));
    assert_eq!(value(&record, "cpu_delay"), Some(0x34b7_715f));
    assert_eq!(value(&record, "block_io_delay"), Some(0), "delays were not accounted");
}

/// A record of a version, where each number is ten times its place in version 14.
fn of_version(version: u64) -> Record {
    let mut words: Vec<(usize, u64)> = (2..52).map(|place| (place, 10 * place as u64)).collect();
    words.insert(0, (0, version));
    let length = match version {
        9 => 43,
        10 => 44,
        11 => 46,
        13 => 52,
        15 => {
            // The delays of CPU, block I/O and swap have four numbers, and those of reclaim, thrashing and
            // compaction, too.
            for (place, _) in &mut words {
                let before = [4, 6, 8, 41, 43, 46, 52].iter().filter(|end| **end <= *place).count();
                *place += 2 * before;
            }
            70
        }
        _ => 70,
    };
    words.retain(|(place, _)| *place < length);
    Record::parse(&bytes_of(&words, 8 * length)).unwrap()
}

#[test]
fn reads_the_records_of_all_versions() {
    for version in [9, 10, 11, 13, 14, 15, 16, 17] {
        let record = of_version(version);
        let has = |field: &str, place: u64, factor: u64| {
            assert_eq!(value(&record, field), Some(10 * place * factor), "{field} of version {version}");
        };
        has("cpu_delay", 3, 1);
        has("block_io_delay", 5, 1);
        has("swap_delay", 7, 1);
        has("cpu_user", 19, 1_000);
        has("memory_peak", 25, 1_024);
        has("write_bytes", 32, 1);
        has("involuntary_switches", 35, 1);
        has("reclaim_delay", 40, 1);
        has("thrashing_delay", 42, 1);
        assert_eq!(value(&record, "compact_delay"), (version >= 11).then_some(450), "version {version}");
        assert_eq!(record.pid, (version >= 12).then_some(460), "version {version}");
        assert_eq!(record.is_last.is_some(), version >= 12);
    }
    assert_eq!(Record::parse(&bytes_of(&[(0, 8)], BYTES)), None);
}

fn error(code: i32) -> Vec<u8> {
    let mut bytes = vec![36, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(code.to_ne_bytes());
    bytes.resize(36, 0);
    bytes
}

#[test]
fn messages_have_records_and_errors() {
    let message = [&HEAD[..], &bytes_of(&DD, BYTES)].concat();
    let [Answer::Ended(record)] = &answers(&message)[..] else { panic!("{:?}", answers(&message)) };
    assert_eq!(record.tid, 0x6349);
    let both = [error(0), error(-1), message].concat();
    let kinds: Vec<Answer> = answers(&both).into_iter().take(2).collect();
    assert_eq!(kinds, [Answer::Done(Ok(())), Answer::Done(Err(1))]);
    assert_eq!(answers(&both).len(), 3);
    let request = register_request(31, "0-1");
    assert_eq!(request.len(), 28);
    assert_eq!(request[16..], [1, 1, 0, 0, 8, 0, 3, 0, b'0', b'-', b'1', 0]);
}

proptest! {
    #[test]
    fn any_bytes_are_answers_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..700), kind in any::<u16>()) {
        answers(&bytes);
        Record::parse(&bytes);
        let mut framed = HEAD.to_vec();
        framed[4..6].copy_from_slice(&kind.to_ne_bytes());
        framed.extend(&bytes);
        prop_assert!(answers(&framed).len() <= framed.len());
    }
}

fn message(version: u64) -> Vec<u8> {
    let words: Vec<(usize, u64)> =
        DD.iter().map(|(at, word)| (*at, if *at == 0 { version } else { *word })).collect();
    [&HEAD[..], &bytes_of(&words, BYTES)].concat()
}

#[test]
fn records_of_old_kernels_are_not_counted_as_none() {
    let listener = Listener::default();
    listener.take(&message(16), Path::new("/nowhere"));
    assert!(!listener.is_unreadable() && listener.knows_processes());
    listener.take(&message(8), Path::new("/nowhere"));
    assert!(listener.is_unreadable());
}

fn mounts() -> Mounts {
    Mounts {
        v2: Some("/cg/unified".into()),
        v1: [("memory".to_owned(), "/cg/memory".into()), ("cpu".to_owned(), "/cg/cpu".into())].into(),
        ..Mounts::default()
    }
}

fn job(name: &str) -> Job {
    let cgroups = JobCgroups {
        v2: Some(format!("/cg/unified/slurm/{name}").into()),
        v1: [("memory".to_owned(), format!("/cg/memory/{name}").into())].into(),
        ..JobCgroups::default()
    };
    Job::new(&cgroups, &mounts())
}

fn cgroup_of(pid: u32) -> Option<String> {
    let text = match pid {
        10 => "5:memory:/other\n0::/slurm/job_1/step_0\n",
        20 => "5:cpu,memory:/job_11/step_0/task_0\n0::/\n",
        // An ended process has left its cgroups of version 1.
        21 => "5:cpu,memory:/\n0::/\n",
        30 => "5:cpu:/job_1\n0::/slurm\n",
        _ => return None,
    };
    Some(text.to_owned())
}

fn ended(tid: u32, parent: u32) -> Record {
    let values = [Some(5); QUANTITIES.len()];
    Record { tid, parent, is_last: Some(true), values, ..Record::default() }
}

#[test]
fn threads_belong_to_the_jobs_of_their_cgroups_parents_and_lists() {
    let mut jobs = Jobs::default();
    let (one, two) = (job("job_1"), job("job_11"));
    let sums = [Arc::clone(&one.sums), Arc::clone(&two.sums)];
    let first = jobs.add(one);
    jobs.add(two);
    jobs.count(&ended(10, 1), cgroup_of);
    jobs.count(&ended(21, 20), cgroup_of);
    jobs.count(&ended(30, 1), cgroup_of);
    jobs.count(&ended(40, 1), cgroup_of);
    let counts = || sums.each_ref().map(|sums| sums.processes.load(Relaxed));
    assert_eq!(counts(), [1, 1]);
    jobs.by_number.get_mut(&first).unwrap().processes = BTreeSet::from([40]);
    jobs.count(&ended(40, 1), cgroup_of);
    jobs.count(&ended(50, 40), cgroup_of);
    // A thread of a process that is listed.
    jobs.count(&Record { pid: Some(40), ..ended(41, 1) }, cgroup_of);
    assert_eq!(counts(), [4, 1]);
    let of = |field: &str| {
        let position = QUANTITIES.iter().position(|quantity| quantity.field == field).unwrap();
        sums[0].values[position].load(Relaxed)
    };
    assert_eq!((of("write_bytes"), of("memory_peak")), (20, 5), "a peak is no sum");
    let root = JobCgroups { v2: Some("/cg/unified".into()), ..JobCgroups::default() };
    let sums_of_root = {
        let job = Job::new(&root, &mounts());
        let sums = Arc::clone(&job.sums);
        jobs.add(job);
        sums
    };
    jobs.count(&ended(30, 1), cgroup_of);
    assert_eq!(sums_of_root.threads.load(Relaxed), 0, "the root has the processes of all");
}
