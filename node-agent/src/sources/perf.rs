//! perf events of a job: one group per CPU, one `read` per group, summed over the CPUs.
//!
//! Source: perf_event_open(2), `PERF_FORMAT_GROUP`.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use perf_event::events::Raw;
use perf_event::{Builder, Counter, ReadFormat};
use polymeter_proto::catalogue::perf::Event;
use polymeter_proto::catalogue::{self, Definition};
use polymeter_proto::series::Labels;
use rustix::io::Errno;

use super::layout::Slot;
use super::reading::Reading;
use super::text_file::Outcome;

/// Hardware counters of one group. Most CPUs have four that any event can use; a larger group would never be counted.
const HARDWARE_EVENTS: usize = 4;

/// Software events and tracepoints of one group: they need no counters, only descriptors.
const SOFTWARE_EVENTS: usize = 32;

/// Whose events are counted.
#[derive(Debug, Clone)]
pub enum PerfTarget {
    /// All processes of a cgroup of version 2, or of the `perf_event` controller of version 1.
    Cgroup(PathBuf),
    /// A process and all that it starts from now on.
    Process(u32),
}

/// Events that are counted together, so that their ratios mean something.
#[derive(Debug)]
pub struct PerfSource {
    groups: Vec<Group>,
    slots: Vec<Slot>,
    events: usize,
    buffer: Vec<u8>,
    sums: Vec<u64>,
}

/// What one `read` gives.
#[derive(Debug)]
struct Group {
    leader: Counter,
    /// Held open: an event that is closed leaves its group.
    _members: Vec<Counter>,
    /// The event's position, where this is the only one: inherited events cannot be read as groups.
    single: Option<usize>,
}

/// An event that cannot be counted here.
#[derive(Debug)]
pub struct Unavailable {
    /// Which.
    pub definition: Definition,
    /// Why, for a person to read.
    pub reason: String,
}

/// An event by the two numbers that the kernel knows it by: `type` and `config` of `perf_event_attr`.
#[derive(Debug, Clone, Copy)]
struct Config {
    kind: u32,
    config: u64,
}

/// Divides events into the groups in which they are counted: software events together, hardware events by fours.
pub fn groups(wanted: &[Definition]) -> Vec<Vec<Definition>> {
    let is_software =
        |definition: &&Definition| matches!(event(definition), Some(Event::Software(_) | Event::Tracepoint));
    let is_hardware = |definition: &&Definition| {
        matches!(event(definition), Some(Event::Hardware(_) | Event::Cache(_) | Event::Raw))
    };
    let software: Vec<_> = wanted.iter().filter(is_software).cloned().collect();
    let hardware: Vec<_> = wanted.iter().filter(is_hardware).cloned().collect();
    let chunks = software.chunks(SOFTWARE_EVENTS).chain(hardware.chunks(HARDWARE_EVENTS));
    chunks.map(<[Definition]>::to_vec).collect()
}

fn event(definition: &Definition) -> Option<Event> {
    definition.metric.origins.iter().find_map(|origin| match origin {
        catalogue::Origin::Perf(event) => Some(*event),
        catalogue::Origin::Text { .. }
        | catalogue::Origin::Processes(_)
        | catalogue::Origin::CgroupProcesses(_)
        | catalogue::Origin::Agent(_) => None,
    })
}

/// The two numbers of an event.
fn config(definition: &Definition, tracefs: &Path) -> Result<Config, String> {
    let instance = definition.instance.as_deref().unwrap_or_default();
    match event(definition) {
        Some(Event::Hardware(config)) => Ok(Config { kind: 0, config }),
        Some(Event::Software(config)) => Ok(Config { kind: 1, config }),
        Some(Event::Cache(config)) => Ok(Config { kind: 3, config }),
        Some(Event::Raw) => {
            let config =
                catalogue::perf::raw_config(instance).ok_or("a raw event is r and hexadecimal digits")?;
            Ok(Config { kind: 4, config })
        }
        Some(Event::Tracepoint) => {
            let (subsystem, name) =
                catalogue::perf::tracepoint(instance).ok_or("a tracepoint is subsystem.name")?;
            let path = tracefs.join("events").join(subsystem).join(name).join("id");
            let id = std::fs::read_to_string(&path).map_err(|error| tracefs_error(&path, &error))?;
            let id = id.trim().parse().map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(Config { kind: 2, config: id })
        }
        Some(Event::TimeEnabled | Event::TimeRunning) | None => Err("it is no event".to_owned()),
    }
}

fn tracefs_error(path: &Path, error: &io::Error) -> String {
    let advice = if error.kind() == io::ErrorKind::NotFound {
        "; mount tracefs there, or check the name with `perf list`"
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "; the agent must run as root for tracepoints"
    } else {
        ""
    };
    format!("{}: {error}{advice}", path.display())
}

/// What an error of perf_event_open means, as perf_event_open(2) explains it, and what may be done.
fn meaning(error: &io::Error) -> String {
    let meaning = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP | Errno::INVAL) => {
            "this machine does not have the event"
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            "not permitted: run as root, with CAP_PERFMON, or lower kernel.perf_event_paranoid"
        }
        Some(Errno::MFILE | Errno::NFILE) => {
            "no file descriptors left: raise LimitNOFILE or sample fewer perf events"
        }
        Some(Errno::SRCH) => "the process has ended",
        _ => "the kernel refused it",
    };
    format!("{meaning} ({error})")
}

/// Words before the values of a group: how many there are, and the two times.
const GROUP_WORDS: usize = 3;

impl PerfSource {
    /// Opens `wanted`, one group, for `target` on each of `cpus`. What cannot be counted is left out and told.
    pub fn open(
        target: &PerfTarget,
        wanted: &[Definition],
        cpus: &[usize],
        tracefs: &Path,
    ) -> (Option<Self>, Vec<Unavailable>) {
        let mut unavailable = Vec::new();
        let mut configured = Vec::new();
        for definition in wanted {
            match config(definition, tracefs) {
                Ok(config) => configured.push((definition.clone(), config)),
                Err(reason) => unavailable.push(Unavailable { definition: definition.clone(), reason }),
            }
        }
        let opener = SourceFactory { target, cgroup: None, user_only: false };
        let opener = match target {
            PerfTarget::Process(_) => Ok(opener),
            PerfTarget::Cgroup(path) => File::open(path)
                .map(|file| SourceFactory { cgroup: Some(file), ..opener })
                .map_err(|error| format!("{}: {error}", path.display())),
        };
        let opened = opener.and_then(|mut opener| {
            configured.retain(|(definition, config)| match opener.probe(*config, cpus) {
                Ok(()) => true,
                Err(error) => {
                    unavailable.push(Unavailable { definition: definition.clone(), reason: meaning(&error) });
                    false
                }
            });
            let groups = opener.open_all(&configured, cpus).map_err(|error| meaning(&error))?;
            Ok((groups, opener.user_only))
        });
        let definitions: Vec<_> = configured.into_iter().map(|(definition, _)| definition).collect();
        match opened {
            Ok((groups, user_only)) if !groups.is_empty() && !definitions.is_empty() => {
                (Some(Self::new(groups, &definitions, user_only)), unavailable)
            }
            Ok(_) => (None, unavailable),
            Err(reason) => {
                let missing = |definition| Unavailable { definition, reason: reason.clone() };
                unavailable.extend(definitions.into_iter().map(missing));
                (None, unavailable)
            }
        }
    }

    fn new(groups: Vec<Group>, definitions: &[Definition], user_only: bool) -> Self {
        // Without the right to see the kernel only what happens in user mode is counted, which is another series.
        let mode = user_only.then(|| ("mode".to_owned(), "user".to_owned()));
        let labels = |more: Option<(String, String)>| {
            Labels::new(mode.iter().cloned().chain(more).collect()).unwrap_or_default()
        };
        let slot = |definition: &Definition| Slot { definition: definition.clone(), labels: labels(None) };
        let mut slots: Vec<_> = definitions.iter().map(slot).collect();
        let is_hardware = |definition: &&Definition| {
            !matches!(event(definition), Some(Event::Software(_) | Event::Tracepoint))
        };
        // Software events are never multiplexed; hardware groups say by the times how much of the time they counted.
        if let Some(first) = definitions.iter().find(is_hardware) {
            for name in ["perf.time_enabled", "perf.time_running"] {
                let labels = labels(Some(("group".to_owned(), first.name())));
                slots.extend(
                    catalogue::find(name).map(|definition| Slot { definition, labels: labels.clone() }),
                );
            }
        }
        let words = GROUP_WORDS + definitions.len();
        Self { groups, slots, events: definitions.len(), buffer: vec![0; words * 8], sums: vec![0; words] }
    }

    /// Reads all groups and sums them. Does not allocate.
    pub fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        self.sums.fill(0);
        for group in &self.groups {
            #[expect(unsafe_code, reason = "the crate lends the descriptor as a bare number only")]
            // SAFETY: `group.leader` owns the descriptor and outlives this borrow.
            let leader = unsafe { BorrowedFd::borrow_raw(group.leader.as_raw_fd()) };
            match rustix::io::read(leader, &mut self.buffer) {
                // End of file: the group is in an error state.
                Ok(0) => return Outcome::Failed(Errno::IO),
                Ok(_) => {}
                Err(errno) => return Outcome::Failed(errno),
            }
            let mut words = self.buffer.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
            let mut add = |place: usize, word: Option<u64>| {
                if let (Some(sum), Some(word)) = (self.sums.get_mut(place), word) {
                    *sum = sum.wrapping_add(word);
                }
            };
            if let Some(event) = group.single {
                // Value, time enabled, time running; all events of a process share the times.
                add(GROUP_WORDS + event, words.next());
                if event == 0 {
                    add(1, words.next());
                    add(2, words.next());
                }
            } else {
                (0..GROUP_WORDS + self.events).for_each(|place| add(place, words.next()));
            }
        }
        for (slot, sum) in
            (0..).zip(self.sums.iter().skip(GROUP_WORDS).chain(self.sums.iter().skip(1).take(2)))
        {
            reading.set(slot, *sum);
        }
        Outcome::Read
    }

    /// What the values of a reading are.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// How many descriptors it holds open.
    pub fn descriptors(&self) -> usize {
        self.groups.iter().map(|group| 1 + group._members.len()).sum()
    }
}

/// Opens events for one target.
struct SourceFactory<'a> {
    target: &'a PerfTarget,
    cgroup: Option<File>,
    /// Whether the kernel may be seen only from outside: kernel.perf_event_paranoid is 2 or more for this user.
    user_only: bool,
}

impl SourceFactory<'_> {
    /// Whether an event can be opened at all; finds out as well whether the kernel may be counted.
    fn probe(&mut self, config: Config, cpus: &[usize]) -> io::Result<()> {
        let cpu = cpus.first().copied();
        match self.open_one(config, cpu, None) {
            Err(error) if error.raw_os_error() == Some(libc::EACCES) && !self.user_only => {
                self.user_only = true;
                self.open_one(config, cpu, None).map(drop)
            }
            opened => opened.map(drop),
        }
    }

    fn open_all(&self, events: &[(Definition, Config)], cpus: &[usize]) -> io::Result<Vec<Group>> {
        if matches!(self.target, PerfTarget::Process(_)) {
            let single = |(position, (_, config)): (usize, &(Definition, Config))| {
                let leader = self.open_one(*config, None, None)?;
                Ok(Group { leader, _members: Vec::new(), single: Some(position) })
            };
            return events.iter().enumerate().map(single).collect();
        }
        let mut groups = Vec::new();
        for cpu in cpus {
            match self.open_group(events, *cpu) {
                Ok(Some(group)) => groups.push(group),
                Ok(None) => {}
                // A CPU that is offline has no events and counts nothing.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(groups)
    }

    fn open_group(&self, events: &[(Definition, Config)], cpu: usize) -> io::Result<Option<Group>> {
        let Some(((_, first), rest)) = events.split_first() else { return Ok(None) };
        let mut group =
            Group { leader: self.open_one(*first, Some(cpu), None)?, _members: Vec::new(), single: None };
        for (_, config) in rest {
            let member = self.open_one(*config, Some(cpu), Some(&mut group.leader))?;
            group._members.push(member);
        }
        Ok(Some(group))
    }

    fn open_one(
        &self,
        config: Config,
        cpu: Option<usize>,
        leader: Option<&mut Counter>,
    ) -> io::Result<Counter> {
        let mut builder = Builder::new(Raw::new(config.config));
        builder.attrs_mut().type_ = config.kind;
        let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        match (&self.cgroup, self.target) {
            (Some(cgroup), _) => {
                builder.observe_cgroup(cgroup);
                // Set directly, because the builder would ask for the events' ids too, which double what is read.
                builder.attrs_mut().read_format = (ReadFormat::GROUP | times).bits();
            }
            (None, PerfTarget::Process(pid)) => {
                builder.observe_pid(i32::try_from(*pid).unwrap_or(-1)).inherit(true);
                builder.attrs_mut().read_format = times.bits();
            }
            (None, PerfTarget::Cgroup(_)) => return Err(io::ErrorKind::NotFound.into()),
        }
        match cpu.filter(|_| self.cgroup.is_some()) {
            Some(cpu) => builder.one_cpu(cpu),
            None => builder.any_cpu(),
        };
        builder.exclude_kernel(self.user_only).enabled(true);
        match leader {
            None => builder.build(),
            Some(leader) => builder.build_with_group(leader),
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.definition.name(), self.reason)
    }
}
