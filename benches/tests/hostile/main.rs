//! Sources of all kinds on a machine whose files are damaged: nothing may panic or block, a value is that of
//! the file or absent, and what is absent has a reason.
#![cfg(test)]

mod damage;
mod machine;
mod readings;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use polymeter_e2e::random::Random;
use polymeter_proto::catalogue;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use damage::{DAMAGES, Damage};
use machine::{Machine, Subject};
use readings::{Readings, Values};

/// Files without which no other is looked for: the tables of mounts, the lists of devices.
const SKELETON: [&str; 3] = ["proc/self/mountinfo", "sys/devices/system/cpu/online", "/name"];

/// Files that are not damaged here: a shorter list is that of fewer processes, clients or counts, and a
/// program that answers otherwise is waited for.
const LISTS: [&str; 6] =
    ["/cgroup.procs", "/children", "/fdinfo/3", "/io", "usr/lpp/mmfs/bin/answer", "usr/bin/beegfs-ctl"];

/// Files of processes, whose values are sums: the sums of the others alone are right, too.
const PROCESSES: [&str; 2] = ["proc/424", "sys/class/kfd/kfd/proc/"];

/// Number of entries of a text, which may be cut off.
const COUNTS: &str = "node.lustre.jobs{}";

const EDITS: u64 = 6;

/// Mixtures of damages, each with a seed of its own.
const MIXTURES: u64 = 6;

/// Damages of the `SKELETON`, too.
const OF_SKELETON: [Damage; 4] = [Damage::Absent, Damage::Empty, Damage::Binary, Damage::Directory];

/// Damages after which a file cannot be read. An empty file may be one of devices that follow.
const UNREADABLE: [Damage; 5] =
    [Damage::Absent, Damage::Directory, Damage::DanglingLink, Damage::LinkLoop, Damage::Denied];

fn is_of_skeleton(path: &Path) -> bool {
    let path = path.to_string_lossy();
    SKELETON.iter().any(|name| path.ends_with(name))
}

fn is_of_list(path: &Path) -> bool {
    let path = path.to_string_lossy();
    LISTS.iter().any(|name| path.ends_with(name))
}

fn is_of_process(path: &Path) -> bool {
    let path = path.to_string_lossy();
    PROCESSES.iter().any(|name| path.starts_with(name))
}

/// True if a series has one origin only, so that no other file takes the place of a damaged one.
fn has_one_origin(series: &str) -> bool {
    let name = series.split('{').next().unwrap_or_default();
    catalogue::find(name).is_some_and(|definition| definition.metric.origins.len() == 1)
}

fn intact(subject: Subject) -> Values {
    let machine = Machine::new();
    let mut readings = Readings::open(&machine, subject);
    let first = readings.read();
    assert!(first.len() > 5, "{subject:?}: {first:?}");
    first
}

/// Finds values that differ from those of the machine without damage.
fn wrong(what: &str, values: &Values, intact: &Values) -> Vec<String> {
    let mut wrong = Vec::new();
    for (series, value) in values.iter().filter(|(series, _)| *series != COUNTS) {
        // A broken file may hide a label of another one.
        if let Some(expected) = intact.get(series).filter(|expected| *expected != value) {
            wrong.push(format!("{what}: {series} is {value}, not {expected}"));
        }
    }
    wrong
}

fn missing(what: &str, values: &Values, intact: &Values) -> Vec<String> {
    let missing = intact.keys().filter(|series| !values.contains_key(*series));
    missing.map(|series| format!("{what}: {series} is missing")).collect()
}

/// Damages the chosen files before or after the opening, and reads. Restores them, and reads again. Returns
/// what is wrong.
fn attack(
    what: &str,
    subject: Subject,
    intact: &Values,
    choose: &mut dyn FnMut(&Path) -> Option<Damage>,
) -> Vec<String> {
    // Before the opening.
    let machine = Machine::new();
    let damaged = damage_all(&machine, choose);
    let mut readings = Readings::open(&machine, subject);
    let mut found = wrong(&format!("{what}, before the opening"), &readings.read(), intact);
    if damaged.iter().all(|(_, damage)| UNREADABLE.contains(damage)) {
        found.extend(readings.without_reason(intact).map(|name| format!("{what}: no reason for {name}")));
    }
    // Between two reads.
    let machine = Machine::new();
    let mut readings = Readings::open(&machine, subject);
    readings.read();
    for (path, damage) in &damaged {
        damage.apply(&machine.root().join(path));
    }
    found.extend(wrong(&format!("{what}, after the opening"), &readings.read(), intact));
    // The files return.
    machine.restore();
    found.extend(wrong(&format!("{what}, restored"), &readings.read(), intact));
    let values = Readings::open(&machine, subject).read();
    found.extend(wrong(&format!("{what}, opened anew"), &values, intact));
    found.extend(missing(&format!("{what}, opened anew"), &values, intact));
    found
}

fn damage_all(machine: &Machine, choose: &mut dyn FnMut(&Path) -> Option<Damage>) -> Vec<(PathBuf, Damage)> {
    let files = machine.files();
    let chosen = files.into_iter().filter_map(|path| choose(&path).map(|damage| (path, damage)));
    let chosen: Vec<(PathBuf, Damage)> = chosen.collect();
    for (path, damage) in &chosen {
        damage.apply(&machine.root().join(path));
    }
    chosen
}

/// Makes file permissions apply to this thread and those that it starts, even to root's.
fn give_up_rights() {
    if let Ok(mut sets) = capabilities(None) {
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, sets).unwrap();
    }
}

fn attack_all(subject: Subject) {
    give_up_rights();
    let intact = intact(subject);
    let mut found = Vec::new();
    for damage in DAMAGES {
        found.extend(attack(&format!("{subject:?}, {damage:?}"), subject, &intact, &mut |path| {
            Some(damage).filter(|_| !is_of_list(path) && !is_of_skeleton(path))
        }));
    }
    for damage in OF_SKELETON {
        let what = format!("{subject:?}, {damage:?} of all files");
        found.extend(attack(&what, subject, &intact, &mut |path| Some(damage).filter(|_| !is_of_list(path))));
    }
    let of_one_file: Values = intact.into_iter().filter(|(series, _)| has_one_origin(series)).collect();
    for seed in 0..MIXTURES {
        let mut random = Random::new(seed);
        found.extend(attack(&format!("{subject:?}, seed {seed}"), subject, &of_one_file, &mut |path| {
            let number = random.below(4 * DAMAGES.len() as u64);
            let damage = DAMAGES.get(usize::try_from(number).unwrap()).copied();
            damage.filter(|_| !is_of_list(path) && !is_of_process(path))
        }));
    }
    assert!(found.is_empty(), "{} wrong values:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_node_with_damaged_files() {
    attack_all(Subject::Node);
}

#[test]
fn a_job_in_cgroups_of_version_1_with_damaged_files() {
    attack_all(Subject::V1);
}

#[test]
fn a_job_in_cgroups_of_version_2_with_damaged_files() {
    attack_all(Subject::V2);
}

#[test]
fn a_job_of_processes_with_damaged_files() {
    attack_all(Subject::Processes);
}

/// A read in the slow lane may wait; nothing else does.
#[test]
fn files_that_block_stop_no_opening_and_no_read_of_the_fast_lane() {
    for subject in [Subject::Node, Subject::V1, Subject::V2, Subject::Processes] {
        let machine = Machine::new();
        let mut readings = Readings::open(&machine, subject);
        // Without the table of mounts no agent starts.
        for path in machine.files().iter().filter(|path| !path.ends_with("proc/self/mountinfo")) {
            Damage::Fifo.apply(&machine.root().join(path));
        }
        let within = |what: &str, act: &mut (dyn FnMut() + Send)| {
            let (ended, end) = std::sync::mpsc::sync_channel(1);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    act();
                    ended.send(()).unwrap();
                });
                let limit = std::time::Duration::from_secs(120);
                if end.recv_timeout(limit).is_err() {
                    // The thread that waits ends, so that the failure is reported.
                    machine.release();
                    panic!("{subject:?}: {what} waits for a FIFO");
                }
            });
        };
        within("the fast lane", &mut || readings.read_fast());
        within("an opening", &mut || drop(Readings::open_all(&machine, subject)));
        machine.release();
    }
}

/// Bytes of the files are changed, removed and repeated at random. Values may change, too.
#[test]
fn edited_files_make_nothing_panic() {
    for seed in 0..EDITS {
        let mut random = Random::new(seed);
        for subject in [Subject::Node, Subject::V1, Subject::V2, Subject::Processes] {
            let machine = Machine::new();
            let mut readings = Readings::open(&machine, subject);
            let files = machine.files();
            for path in files.iter().filter(|_| random.percent(50)).collect::<Vec<_>>() {
                let path = machine.root().join(path);
                let text = edited(&fs::read(&path).unwrap(), &mut random);
                fs::write(path, text).unwrap();
            }
            readings.read();
            readings.read();
            Readings::open(&machine, subject).read();
        }
    }
}

fn edited(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..=random.choose(4) {
        let at = random.choose(text.len() + 1).min(text.len());
        let count = random.choose(20).min(text.len() - at);
        match random.choose(4) {
            0 => drop(text.drain(at..at + count)),
            1 => {
                let bytes = random.bytes(count);
                text.splice(at..at + count, bytes).for_each(drop);
            }
            2 => {
                let again = text[at..at + count].to_vec();
                text.splice(at..at, again).for_each(drop);
            }
            _ => {
                let digits = b"18446744073709551615".to_vec();
                text.splice(at..at, digits).for_each(drop);
            }
        }
    }
    text
}

/// Devices whose names are no valid labels, or none that a kernel gives, hide no others.
#[test]
fn devices_with_odd_names_hide_no_others() {
    let names: [&[u8]; 9] = [
        b"eth 0",
        b"eth\n1",
        "\u{e9}th\u{2028}".as_bytes(),
        b"\xff\xfe",
        b"a\"b{c=d},e",
        b"*",
        b"99999999999999999999",
        b"-1",
        &[b'x'; 200],
    ];
    for subject in [Subject::Node, Subject::V1, Subject::Processes] {
        let intact = intact(subject);
        let machine = Machine::new();
        for directory in machine.devices() {
            for name in names {
                let copy = directory.with_file_name(OsStr::from_bytes(name));
                machine.copy(&directory, &copy);
            }
        }
        let values = Readings::open(&machine, subject).read();
        let what = format!("{subject:?}, odd names");
        assert_eq!(wrong(&what, &values, &intact), Vec::<String>::new());
        assert_eq!(missing(&what, &values, &intact), Vec::<String>::new());
    }
}

/// A new kind is attacked without further ado, if the machine has its files.
#[test]
fn every_kind_that_reads_files_is_attacked() {
    let subjects = [Subject::Node, Subject::V1, Subject::V2, Subject::Processes];
    let attacked: BTreeSet<&str> = subjects
        .into_iter()
        .flat_map(|subject| {
            let machine = Machine::new();
            let mut readings = Readings::open(&machine, subject);
            readings.read();
            readings.kinds()
        })
        .collect();
    // Those of other interfaces than files.
    let others = [
        "perf",
        "ebpf",
        "taskstats",
        "ipmi",
        "device",
        "nvidia",
        "nvidia_job",
        "stacks",
        "stacks_dwarf",
        "stacks_wait",
        "agent",
    ];
    let missing: Vec<&str> = polymeter_agent::sources::KINDS
        .iter()
        .map(|kind| kind.name())
        .filter(|kind| !attacked.contains(kind) && !others.contains(kind))
        .collect();
    assert!(missing.is_empty(), "no values of {missing:?} on the machine of this test");
}
