//! perf events: one group per CPU, one `read` per group, summed over the CPUs.
//!
//! Source: perf_event_open(2), `PERF_FORMAT_GROUP`.

mod events;
mod families;
mod followed;
mod open;
mod values;

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use polymeter_proto::catalogue::Definition;
use rustix::io::Errno;

use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::{Slot, Unavailable};
use events::config;
use open::{Group, Opener};
use values::{GROUP_WORDS, slots};

pub(crate) use events::{groups, meaning};
pub(crate) use followed::FollowedSource;
pub use followed::ProcessFollower;
pub use open::PerfTarget;

/// Events that are counted together, so that their ratios are meaningful.
#[derive(Debug)]
pub struct PerfSource {
    groups: Vec<Group>,
    slots: Vec<Slot>,
    events: usize,
    buffer: Vec<u8>,
    sums: Vec<u64>,
}

impl PerfSource {
    /// Opens `wanted`, one group, for `target` on each of `cpus`. Their series have `target_labels`. Events that cannot be counted are left out and returned with the
    /// reasons.
    pub fn open(
        target: &PerfTarget,
        wanted: &[Definition],
        cpus: &[usize],
        tracefs: &Path,
        target_labels: &[(String, String)],
    ) -> (Option<Self>, Vec<Unavailable>) {
        let mut unavailable = Vec::new();
        let mut configured = Vec::new();
        for definition in wanted {
            match config(definition, tracefs) {
                Ok(config) => configured.push((definition.clone(), config)),
                Err(reason) => unavailable.push(Unavailable { definition: definition.clone(), reason }),
            }
        }
        let opener = Opener { target, cgroup: None, user_only: false };
        let opener = match target {
            PerfTarget::Process(_) => Ok(opener),
            PerfTarget::Cgroup(path) => File::open(path)
                .map(|file| Opener { cgroup: Some(file), ..opener })
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
                (Some(Self::new(groups, &definitions, user_only, target_labels)), unavailable)
            }
            Ok(_) => (None, unavailable),
            Err(reason) => {
                let missing = |definition| Unavailable { definition, reason: reason.clone() };
                unavailable.extend(definitions.into_iter().map(missing));
                (None, unavailable)
            }
        }
    }

    fn new(
        groups: Vec<Group>,
        definitions: &[Definition],
        user_only: bool,
        target_labels: &[(String, String)],
    ) -> Self {
        let slots = slots(definitions, user_only, target_labels);
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
                Ok(0) => return Outcome::Fault(Errno::IO),
                Ok(_) => {}
                Err(errno) => return Outcome::of_error(errno),
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

    /// Returns the meaning of each value of a reading.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Returns the number of descriptors that it holds open.
    pub fn descriptors(&self) -> usize {
        self.groups.iter().map(|group| 1 + group._members.len()).sum()
    }
}
