//! Ended threads of a job, by taskstats.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::catalogue::Definition;

use super::custom_source::CustomSource;
use super::kernel_text;
use super::kind::{Lane, OpenRequest, Opening, SourceKind, metrics_of};
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::target::Target;
use super::taskstats::{Job, Listener, QUANTITIES, Sums, is_delay};

const KIND: &str = "taskstats";

/// Sources: the delays are apart, because they are not always available.
const ACCOUNTS: &str = "taskstats";
const DELAYS: &str = "taskstats/delays";

/// Sysctl that makes the kernel account delays, below `/proc`.
const DELAY_SWITCH: &str = "sys/kernel/task_delayacct";

#[derive(Debug, Clone, Copy)]
enum Value {
    Threads,
    Processes,
    Overruns,
    Quantity(usize),
}

const COUNTS: [(&str, Value); 3] =
    [("threads", Value::Threads), ("processes", Value::Processes), ("overruns", Value::Overruns)];

fn value_of(field: &str) -> Option<Value> {
    let count = COUNTS.iter().find(|(name, _)| *name == field).map(|(_, value)| *value);
    count.or_else(|| QUANTITIES.iter().position(|quantity| quantity.field == field).map(Value::Quantity))
}

pub(super) struct TaskstatsKind;

impl SourceKind for TaskstatsKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Fast
    }

    fn fields(&self) -> Vec<&'static str> {
        let counts = COUNTS.iter().map(|(field, _)| *field);
        counts.chain(QUANTITIES.iter().map(|quantity| quantity.field)).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let host = request.host;
        let (Target::Cgroups(cgroups), Some(exited), None) = (request.target, host.exited, host.step) else {
            return opening.unavailable_all(&request.wanted, "only for whole jobs with cgroups");
        };
        let (delays, accounts): (Vec<_>, Vec<_>) = request.wanted.iter().cloned().partition(is_of_delays);
        let delay_switch = kernel_text::text(&host.mounts.proc.join(DELAY_SWITCH));
        // Kernels before 5.14 have no such switch, and account delays.
        let has_delays = delay_switch.map_or(true, |text| text.trim() != "0");
        if !has_delays {
            let reason = "the kernel does not account delays; set the sysctl kernel.task_delayacct to 1, which \
                          applies to processes that start afterwards";
            opening.unavailable_all(&delays, reason);
        }
        for (name, wanted) in [(ACCOUNTS, accounts), (DELAYS, delays)] {
            if wanted.is_empty() || (name == DELAYS && !has_delays) {
                continue;
            }
            match exited.listener(&host.mounts.sys(), &host.mounts.proc) {
                Ok(listener) => {
                    let job = Job::new(cgroups, host.mounts);
                    let source = TaskstatsSource::new(listener, job, name == DELAYS);
                    opening.push_custom(name.to_owned(), Box::new(source));
                }
                Err(error) => opening.unavailable_all(&wanted, &error.to_string()),
            }
        }
    }
}

fn field_of(definition: &Definition) -> Option<&'static str> {
    definition.metric.field_of(KIND)
}

fn is_of_delays(definition: &Definition) -> bool {
    field_of(definition).is_some_and(is_delay)
}

#[derive(Debug)]
struct TaskstatsSource {
    listener: Arc<Listener>,
    number: u64,
    sums: Arc<Sums>,
    slots: Vec<Slot>,
    values: Vec<Value>,
}

impl TaskstatsSource {
    /// Has all delays, or everything else, wanted now or not: it stays open.
    fn new(listener: Arc<Listener>, job: Job, is_for_delays: bool) -> Self {
        let definitions = metrics_of(KIND).map(Definition::of);
        let of_kind = definitions.filter(|definition| is_of_delays(definition) == is_for_delays);
        let of_slots = of_kind.filter_map(|definition| {
            let value = field_of(&definition).and_then(value_of)?;
            Some((Slot::unlabelled(definition), value))
        });
        let (slots, values) = of_slots.unzip();
        let sums = Arc::clone(&job.sums);
        let number = listener.with_jobs(|jobs| jobs.add(job));
        Self { listener, number, sums, slots, values }
    }
}

impl CustomSource for TaskstatsSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        if self.listener.is_unreadable() {
            return Outcome::Read;
        }
        for (slot, value) in (0..).zip(&self.values) {
            let count = match value {
                Value::Threads => Some(&self.sums.threads),
                Value::Processes => self.listener.knows_processes().then_some(&self.sums.processes),
                Value::Overruns => Some(self.listener.overruns()),
                Value::Quantity(number) => self.sums.values.get(*number),
            };
            if let Some(count) = count {
                reading.set(slot, count.load(Relaxed));
            }
        }
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }
}

impl Drop for TaskstatsSource {
    fn drop(&mut self) {
        self.listener.with_jobs(|jobs| jobs.by_number.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::Command;

    use rustix::event::{PollFd, Timespec, poll};

    use super::*;
    use crate::cgroups::{JobCgroups, Mounts};

    /// Counts the end of a short process of a job on this machine, if it may.
    #[test]
    fn the_kernel_delivers_the_end_of_a_process() {
        let listener = match Listener::start(Path::new("/sys"), Path::new("/proc")) {
            Ok(listener) => listener,
            // Without the right, or in a container.
            Err(error) => return assert!(error.to_string().contains("taskstats"), "{error}"),
        };
        let directory = tempfile::tempdir().unwrap();
        let this = std::process::id();
        std::fs::write(directory.path().join("cgroup.procs"), format!("{this}\n")).unwrap();
        let cgroups = JobCgroups {
            v1: [("memory".to_owned(), directory.path().to_owned())].into(),
            ..JobCgroups::default()
        };
        let mut job = Job::new(&cgroups, &Mounts::default());
        job.processes = BTreeSet::from([this]);
        let mut source = TaskstatsSource::new(Arc::clone(&listener), job, false);
        assert!(Command::new("sh").args(["-c", ":"]).status().unwrap().success());
        let place = |field: &str| {
            let position = source.slots.iter().position(|slot| field_of(&slot.definition) == Some(field));
            u32::try_from(position.unwrap()).unwrap()
        };
        let (processes, faults) = (place("processes"), place("minor_faults"));
        let mut reading = Reading::absent(source.slots.len());
        let pause = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let none: &mut [PollFd<'_>] = &mut [];
        for _ in 0..6_000 {
            assert_eq!(source.read(&mut reading), Outcome::Read);
            if reading.get(processes).is_some_and(|count| count > 0) {
                break;
            }
            poll(none, Some(&pause)).ok();
        }
        assert!(reading.get(processes).is_some_and(|count| count > 0), "no record of the process");
        assert!(reading.get(faults).is_some_and(|count| count > 10), "a process has faults");
        drop(source);
        listener.with_jobs(|jobs| assert!(jobs.by_number.is_empty()));
    }
}
