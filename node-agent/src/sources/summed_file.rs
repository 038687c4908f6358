//! Sums of a kernel file of version 1 that counts for its own cgroup alone: over a cgroup and all below it,
//! including removed ones.
//!
//! `oom_kill` of `memory.oom_control` counts in the cgroup of the killed process, `memory.failcnt` in that of
//! the limit, which with Slurm are a step and its tasks, and not the job (`memcg_memory_event`,
//! mm/memcontrol.c).
//!
//! The supervisor opens the files of new cgroups, and closes those of removed ones; the sampler only reads.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use polymeter_proto::catalogue::Form;
use polymeter_proto::series::Kind;

use super::outcome::Outcome;
use super::read_buffer::ReadBuffer;
use super::reading::Reading;
use super::slot::{Slot, Wanted};
use super::text_file::{OpenError, TextFileSource};

/// Bound of the files of one source, each of which takes a descriptor and less than a microsecond of a
/// reading.
const FILES_MAX: usize = 256;

/// Bound of the files that wait to be read or closed. The next scan finds more.
const WAITING_MAX: usize = 32;

#[derive(Debug)]
struct Member {
    file: TextFileSource,
    reading: Reading,
    /// Last value of each slot, even if the last reading lacks it.
    last: Vec<u64>,
}

/// The same file of a cgroup and of all below it.
#[derive(Debug)]
pub struct SummedFileSource {
    members: Vec<Member>,
    slots: Vec<Slot>,
    /// Counts of files that are gone, by slot.
    gone: Vec<u64>,
    exchange: Arc<Exchange>,
}

/// Files on their way to the sampler, and back to be closed.
#[derive(Debug)]
struct Exchange {
    came: ArrayQueue<Box<Member>>,
    left: ArrayQueue<Box<Member>>,
}

/// Finds new cgroups below that of a source, and hands their files over to be read with it.
#[derive(Debug)]
pub struct Descendants {
    top: PathBuf,
    name: &'static str,
    form: Form,
    wanted: Vec<Wanted>,
    slots: Vec<Slot>,
    exchange: Arc<Exchange>,
    /// Cgroups whose files are read, with their inodes: a cgroup that was created again is another one.
    known: BTreeSet<(PathBuf, u64)>,
    is_full: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanResult {
    /// All cgroups are read, or the excess was reported before.
    All,
    /// More were found than can wait: scan again soon.
    Some,
    TooMany,
}

impl SummedFileSource {
    pub const CGROUPS: usize = FILES_MAX;

    /// Opens the file `name` in the cgroup `top`, which must be usable, and in those below as
    /// [`Descendants::scan`] finds them.
    pub fn open(
        top: &Path,
        name: &'static str,
        form: Form,
        wanted: Vec<Wanted>,
        labels: &[(String, String)],
    ) -> Result<(Self, Descendants), OpenError> {
        let file = TextFileSource::open(&top.join(name), form, &wanted, labels)?;
        let slots = file.slots().to_vec();
        let exchange =
            Arc::new(Exchange { came: ArrayQueue::new(WAITING_MAX), left: ArrayQueue::new(WAITING_MAX) });
        let mut source = Self {
            members: vec![Member::new(file)],
            gone: vec![0; slots.len()],
            slots: slots.clone(),
            exchange: Arc::clone(&exchange),
        };
        let (top, known) = (top.to_owned(), BTreeSet::new());
        let mut below = Descendants { top, name, form, wanted, slots, exchange, known, is_full: false };
        below.find(|member| {
            source.members.push(*member);
            true
        });
        Ok((source, below))
    }

    pub(crate) fn reserve(&self, text: &mut ReadBuffer) {
        self.members.iter().for_each(|member| member.file.reserve(text));
    }

    /// Reads all files. Does not allocate.
    pub fn read(&mut self, text: &mut ReadBuffer, reading: &mut Reading) -> Outcome {
        while self.members.len() < FILES_MAX
            && let Some(member) = self.exchange.came.pop()
        {
            self.members.push(*member);
        }
        let mut outcome = Outcome::Read;
        let mut number = 0;
        while let Some(member) = self.members.get_mut(number) {
            match member.read(text) {
                Outcome::Read | Outcome::Changed => number += 1,
                // The file of the cgroup itself: the source has ended.
                gone if number == 0 => {
                    outcome = gone;
                    number += 1;
                }
                // Its values stay as last read.
                Outcome::Retry(_) => number += 1,
                Outcome::Gone | Outcome::Fault(_) => {
                    let member = self.members.swap_remove(number);
                    for ((slot, gone), last) in self.slots.iter().zip(&mut self.gone).zip(&member.last) {
                        if slot.definition.metric.kind == Kind::Counter {
                            *gone = gone.saturating_add(*last);
                        }
                    }
                    // The supervisor closes it; without room in the queue it is closed here.
                    drop(self.exchange.left.push(Box::new(member)));
                }
            }
        }
        self.sum(reading);
        outcome
    }

    /// Sums counters, and takes the highest gauge. Absent where a file lacks a value: a lower sum would look
    /// like a counter that began anew.
    fn sum(&self, reading: &mut Reading) {
        reading.clear();
        for (slot, (place, gone)) in (0..).zip(self.slots.iter().zip(&self.gone)) {
            let mut values = self.members.iter().map(|member| member.reading.get(slot));
            let value = match place.definition.metric.kind {
                Kind::Counter => values.try_fold(*gone, |sum, value| Some(sum.saturating_add(value?))),
                Kind::Gauge => values.flatten().max(),
            };
            if let Some(bits) = value {
                reading.set(slot, bits);
            }
        }
    }

    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

impl Member {
    /// Reads the file once, because its cgroup may be gone before the next reading.
    fn new(file: TextFileSource) -> Self {
        let slots = file.slots().len();
        let mut member = Self { file, reading: Reading::absent(slots), last: vec![0; slots] };
        member.read(&mut ReadBuffer::default());
        member
    }

    fn read(&mut self, text: &mut ReadBuffer) -> Outcome {
        let outcome = self.file.read(text, &mut self.reading);
        for (last, value) in self.last.iter_mut().zip(self.reading.iter()) {
            *last = value.unwrap_or(*last);
        }
        outcome
    }
}

impl Descendants {
    pub fn scan(&mut self) -> ScanResult {
        while let Some(gone) = self.exchange.left.pop() {
            drop(gone);
        }
        let exchange = Arc::clone(&self.exchange);
        let looked = self.find(|member| exchange.came.push(member).is_ok());
        let is_news = looked == ScanResult::TooMany && !self.is_full;
        self.is_full |= looked == ScanResult::TooMany;
        if looked == ScanResult::TooMany && !is_news { ScanResult::All } else { looked }
    }

    /// Passes the files of new cgroups to `take`, until it accepts no more.
    fn find(&mut self, mut take: impl FnMut(Box<Member>) -> bool) -> ScanResult {
        let found = below(&self.top);
        self.known.retain(|known| found.contains(known));
        for cgroup in found {
            if self.known.contains(&cgroup) {
                continue;
            }
            // One place is for the cgroup itself.
            if self.known.len() + 1 >= FILES_MAX {
                return ScanResult::TooMany;
            }
            let path = cgroup.0.join(self.name);
            // A cgroup that was removed meanwhile has nothing to read.
            let Ok(file) = TextFileSource::open(&path, self.form, &self.wanted, &[]) else { continue };
            let same = file.slots().iter().map(|slot| &slot.definition);
            if !same.eq(self.slots.iter().map(|slot| &slot.definition)) {
                continue;
            }
            if !take(Box::new(Member::new(file))) {
                return ScanResult::Some;
            }
            self.known.insert(cgroup);
        }
        ScanResult::All
    }

    /// Number of cgroups below the first one that are read with it.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

fn below(top: &Path) -> BTreeSet<(PathBuf, u64)> {
    let (mut found, mut next) = (BTreeSet::new(), vec![top.to_owned()]);
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if found.len() > FILES_MAX || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let Ok(inode) = entry.metadata().map(|metadata| metadata.ino()) else { continue };
            next.push(entry.path());
            found.insert((entry.path(), inode));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue::{self, Origin};

    use super::*;

    fn wanted() -> (Form, Vec<Wanted>) {
        let mut wanted = Vec::new();
        let mut form = Form::Keyed;
        for metric in catalogue::all() {
            for origin in metric.origins {
                if let Origin::Text { file, field } = origin
                    && file.path == "memory.oom_control"
                {
                    form = file.form;
                    let definition = catalogue::find(metric.name).unwrap();
                    wanted.push(Wanted { definition, field: *field });
                }
            }
        }
        (form, wanted)
    }

    fn write(directory: &Path, under_oom: u64, oom_kill: u64) {
        let text = format!("oom_kill_disable 0\nunder_oom {under_oom}\noom_kill {oom_kill}\n");
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("memory.oom_control"), text).unwrap();
    }

    fn read(source: &mut SummedFileSource) -> (u64, u64) {
        let mut reading = Reading::absent(2);
        source.read(&mut ReadBuffer::default(), &mut reading);
        let value = |name: &str| {
            let slot = source.slots().iter().position(|slot| slot.definition.name() == name).unwrap();
            reading.get(u32::try_from(slot).unwrap()).unwrap()
        };
        (value("memory.events.oom_kill"), value("memory.under_oom"))
    }

    #[test]
    fn sums_over_steps_and_tasks() {
        let directory = tempfile::tempdir().unwrap();
        let job = directory.path().join("job_1");
        let task = job.join("step_0/task_0");
        write(&job, 0, 1);
        write(&job.join("step_0"), 0, 2);
        let (form, wanted) = wanted();
        let (mut source, mut below) =
            SummedFileSource::open(&job, "memory.oom_control", form, wanted, &[]).unwrap();
        assert_eq!(read(&mut source), (3, 0));
        write(&task, 1, 4);
        assert_eq!(read(&mut source), (3, 0), "no scan yet");
        assert_eq!(below.scan(), ScanResult::All);
        assert_eq!((read(&mut source), below.len()), ((7, 1), 2));
        write(&task, 0, 5);
        assert_eq!(read(&mut source), (8, 0));
        below.scan();
        assert_eq!(read(&mut source), (8, 0), "each is read once");
    }

    /// Without the file the sum would be lower, as if the counter had begun anew.
    #[test]
    fn a_file_without_a_value_makes_no_lower_sum() {
        let directory = tempfile::tempdir().unwrap();
        let job = directory.path().join("job_1");
        let step = job.join("step_0");
        write(&job, 0, 1);
        write(&step, 1, 2);
        let (form, wanted) = wanted();
        let (mut source, _below) =
            SummedFileSource::open(&job, "memory.oom_control", form, wanted, &[]).unwrap();
        assert_eq!(read(&mut source), (3, 1));
        for broken in ["", "oom_kill\n", "oom_kill x\n", "oom_kill 18446744073709551616\n", "oom_kill 1"] {
            fs::write(step.join("memory.oom_control"), broken).unwrap();
            let mut reading = Reading::absent(2);
            source.read(&mut ReadBuffer::default(), &mut reading);
            let kills = source.slots().iter().position(|slot| slot.definition.name().ends_with("oom_kill"));
            assert_eq!(reading.get(u32::try_from(kills.unwrap()).unwrap()), None, "{broken:?}");
        }
        write(&step, 0, 4);
        assert_eq!(read(&mut source), (5, 0));
        for directory in [&step, &job] {
            fs::write(directory.join("memory.oom_control"), "").unwrap();
        }
        let mut reading = Reading::absent(2);
        source.read(&mut ReadBuffer::default(), &mut reading);
        assert_eq!(reading.iter().flatten().count(), 0, "a gauge is absent, too");
    }

    #[test]
    fn bounds_the_cgroups_of_one_source() {
        let directory = tempfile::tempdir().unwrap();
        let job = directory.path().join("job_1");
        write(&job, 0, 0);
        for step in 0..FILES_MAX + 10 {
            write(&job.join(format!("step_{step}")), 0, 1);
        }
        let (form, wanted) = wanted();
        let (mut source, mut below) =
            SummedFileSource::open(&job, "memory.oom_control", form, wanted, &[]).unwrap();
        assert_eq!(read(&mut source).0, FILES_MAX as u64 - 1);
        assert_eq!(
            [below.scan(), below.scan()],
            [ScanResult::TooMany, ScanResult::All],
            "it is reported once"
        );
    }
}
