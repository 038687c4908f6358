//! perf events: one group per CPU, one `read` per group, summed over the CPUs or with a series for each.
//!
//! Source: perf_event_open(2), `PERF_FORMAT_GROUP`.

mod cpu_model;
mod event_config;
mod event_scale;
mod event_table;
mod events;
mod families;
mod followed;
mod fork_log;
mod forks;
mod named;
mod open;
mod released;
mod units;
mod values;

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};

use polymeter_proto::catalogue::Definition;
use rustix::io::Errno;

use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::{Slot, Unavailable};
use event_config::Config;
use events::config;
use open::{Group, Opener};
use values::{GROUP_WORDS, add, set, slots};

pub(crate) use cpu_model::machine;
pub use event_config::EventPlaces;
pub(crate) use events::{HARDWARE_EVENTS, groups, meaning};
pub(crate) use followed::FollowedSource;
pub use followed::ProcessFollower;
pub(super) use forks::check;
pub(super) use named::check as check_format;
pub use open::PerfTarget;
pub(crate) use released::{RELEASED, ReleasedEvents};
pub(crate) use units::{by_pmu, open as open_units};

/// Events that are counted together, so that their ratios are meaningful.
#[derive(Debug)]
pub struct PerfSource {
    groups: Vec<Group>,
    slots: Vec<Slot>,
    configs: Vec<Config>,
    /// Slots of each CPU, if each has series of its own.
    slots_per_cpu: Option<usize>,
    buffer: Vec<u8>,
    /// Sums over all CPUs, or the values of one.
    sums: Vec<u64>,
}

impl PerfSource {
    /// Opens `wanted`, one group, for `target` on each of `cpus`. Their series have `target_labels`. Events
    /// that cannot be counted are left out and returned with the reasons.
    pub fn open(
        target: &PerfTarget,
        wanted: &[Definition],
        cpus: &[usize],
        places: &EventPlaces,
        target_labels: &[(String, String)],
    ) -> (Option<Self>, Vec<Unavailable>) {
        let mut unavailable = Vec::new();
        let mut configured = Vec::new();
        for definition in wanted {
            match config(definition, places) {
                Ok(config) => configured.push((config.measured(definition), config)),
                Err(error) => unavailable.push(Unavailable::for_good(definition.clone(), error.to_string())),
            }
        }
        let opener = Opener { target, cgroup: None, user_only: false };
        let opener = match target {
            PerfTarget::Process(_) | PerfTarget::Node => Ok(opener),
            PerfTarget::Cgroup(path) => File::open(path)
                .map(|file| Opener { cgroup: Some(file), ..opener })
                .map_err(|error| format!("{}: {error}", path.display())),
        };
        let opened = opener.and_then(|mut opener| {
            configured.retain(|(definition, config): &(Definition, Config)| {
                match opener.probe(*config, cpus) {
                    Ok(()) => true,
                    Err(error) => {
                        unavailable.push(Unavailable::for_good(definition.clone(), meaning(&error)));
                        false
                    }
                }
            });
            let groups = opener.open_all(&configured, cpus).map_err(|error| meaning(&error))?;
            Ok((groups, opener.user_only))
        });
        match opened {
            Ok((groups, user_only)) if !groups.is_empty() && !configured.is_empty() => {
                (Some(Self::new(groups, configured, user_only, target_labels)), unavailable)
            }
            Ok(_) => (None, unavailable),
            Err(reason) => {
                let missing = |(definition, _)| Unavailable::for_good(definition, reason.clone());
                unavailable.extend(configured.into_iter().map(missing));
                (None, unavailable)
            }
        }
    }

    fn new(
        groups: Vec<Group>,
        events: Vec<(Definition, Config)>,
        user_only: bool,
        target_labels: &[(String, String)],
    ) -> Self {
        let (definitions, configs): (Vec<Definition>, Vec<Config>) = events.into_iter().unzip();
        let is_per_cpu = definitions.iter().any(|definition| definition.metric.is_per_cpu);
        let cpus = groups.iter().filter(|_| is_per_cpu).filter_map(|group| group.cpu);
        let by_cpu = cpus.map(|cpu| {
            let cpu = ("cpu".to_owned(), cpu.to_string());
            let labels: Vec<_> = target_labels.iter().cloned().chain([cpu]).collect();
            slots(&definitions, user_only, &labels)
        });
        let by_cpu: Vec<Vec<Slot>> = by_cpu.collect();
        let slots_per_cpu = by_cpu.first().map(Vec::len);
        let slots = match slots_per_cpu {
            Some(_) => by_cpu.into_iter().flatten().collect(),
            None => slots(&definitions, user_only, target_labels),
        };
        let words = GROUP_WORDS + configs.len();
        Self { groups, slots, configs, slots_per_cpu, buffer: vec![0; words * 8], sums: vec![0; words] }
    }

    /// Reads all groups, and sums them unless each CPU has series. Does not allocate.
    pub fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        self.sums.fill(0);
        for (number, group) in self.groups.iter().enumerate() {
            #[expect(unsafe_code, reason = "the crate lends the descriptor as a bare number only")]
            // SAFETY: `group.leader` owns the descriptor and outlives this borrow.
            let leader = unsafe { BorrowedFd::borrow_raw(group.leader.as_raw_fd()) };
            match rustix::io::read(leader, &mut self.buffer) {
                // End of file: the group is in an error state.
                Ok(0) => return Outcome::Fault(Errno::IO),
                Ok(_) => {}
                Err(errno) => return Outcome::of_error(errno),
            }
            let words = self.buffer.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
            if let Some(event) = group.single {
                // Value, time enabled, time running; all events of a process share the times.
                let places = [GROUP_WORDS + event, 1, 2];
                let places = if event == 0 { &places[..] } else { &places[..1] };
                places.iter().zip(words).for_each(|(place, word)| add(&mut self.sums, *place, word));
            } else {
                let words = words.take(GROUP_WORDS + self.configs.len());
                words.enumerate().for_each(|(place, word)| add(&mut self.sums, place, word));
            }
            if let Some(slots) = self.slots_per_cpu {
                set(&self.sums, &self.configs, number * slots..(number + 1) * slots, reading);
                self.sums.fill(0);
            }
        }
        if self.slots_per_cpu.is_none() {
            set(&self.sums, &self.configs, 0..self.slots.len(), reading);
        }
        Outcome::Read
    }

    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub fn descriptors(&self) -> usize {
        self.groups.iter().map(|group| 1 + group._members.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use polymeter_proto::catalogue;

    use super::*;

    /// Opens events of all processes of this machine; `None` without the right to do so.
    fn open(names: &[&str], cpus: &[usize]) -> Option<PerfSource> {
        let wanted: Vec<Definition> = names.iter().filter_map(|name| catalogue::find(name)).collect();
        assert_eq!(wanted.len(), names.len());
        let roots = ["/sys/fs/cgroup/perf_event", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        roots.into_iter().find_map(|root| {
            let target = PerfTarget::Cgroup(root.into());
            PerfSource::open(&target, &wanted, cpus, &EventPlaces::below(Path::new("/")), &[]).0
        })
    }

    #[test]
    fn each_cpu_has_series_that_add_up_to_the_sum() {
        let cpus = crate::sources::online_cpus(Path::new("/")).unwrap();
        let names = ["perf_per_cpu.page_faults", "perf_per_cpu.context_switches"];
        let Some(each) = open(&names, &cpus) else { return };
        assert_eq!((each.slots.len(), each.slots_per_cpu), (2 * cpus.len(), Some(2)));
        assert_eq!(each.descriptors(), 2 * cpus.len());
        let labels: Vec<String> = each.slots.iter().map(|slot| slot.labels.to_string()).collect();
        let expected: Vec<String> =
            cpus.iter().flat_map(|cpu| [format!("cpu={cpu}"), format!("cpu={cpu}")]).collect();
        assert_eq!(labels, expected);
        // The events of the sum are open for longer at both ends.
        let mut sum = open(&["perf.page_faults"], &cpus).unwrap();
        let mut each = open(&names, &cpus).unwrap();
        std::fs::read("/proc/self/maps").unwrap();
        let mut reading = Reading::absent(each.slots.len());
        assert_eq!(each.read(&mut reading), Outcome::Read);
        assert!(reading.whole().is_some());
        let faults: u64 = reading.iter().step_by(2).flatten().sum();
        let mut reading = Reading::absent(1);
        assert_eq!(sum.read(&mut reading), Outcome::Read);
        assert!(Some(faults) <= reading.get(0), "{faults} of {:?}", reading.get(0));
    }
}
