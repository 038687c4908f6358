//! resctrl: Intel RDT, AMD QoS and Arm MPAM. The processor counts, for a number (RMID) that the kernel gives
//! to threads, the L3 cache that they occupy and the bytes that they move to and from memory.
//!
//! Source: `Documentation/filesystems/resctrl.rst` of Linux. A job has a monitoring group in the default
//! control group; threads in other control groups stay there. The agent mounts nothing. The calls of the
//! opening wait for a lock of the kernel at most, which is held for microseconds; the kernel asks other CPUs
//! only for readings, in the slow lane.

mod counter;
mod group;
mod operations;
mod source;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;
use rustix::io::Errno;
use tracing::info;

use super::custom_source::CustomSource;
use super::kernel_text::{self, FileError};
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::mount_table::{self, Mount, MountTable, MountWatch};
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::source::Source;
use crate::cgroups::Mounts;
use crate::clock;
use group::{GROUPS, Group, name_of};
use operations::{Kernel, Operations};
use source::{Monitored, ResctrlSource, Value, domains};
use text::{EVENTS, Event};

pub(super) use text::check;

const KIND: &str = "resctrl";

/// Time until a group is tried again that could not be created for a reason that passes.
const RETRY_NS: u64 = 30_000_000_000;

/// File of the events that the processor counts.
const FEATURES: &str = "info/L3_MON/mon_features";

pub(super) struct ResctrlKind {
    operations: &'static dyn Operations,
}

impl ResctrlKind {
    pub(super) const KERNEL: Self = Self { operations: &Kernel };
}

impl SourceKind for ResctrlKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        EVENTS.map(Event::name).into()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let host = request.host;
        let (Some(job), None) = (host.job, host.step) else {
            return opening.unavailable_all(&request.wanted, "only for whole jobs");
        };
        let Some(processes) = opening.processes(request) else { return };
        let mount = match find_mount(host.mounts) {
            Ok(mount) => mount,
            Err(reason) => {
                opening.unavailable_all(&request.wanted, &reason.to_string());
                return watch_mounts(host.mounts, opening);
            }
        };
        let wanted = counted(&mount, &request.wanted, opening);
        let features = kernel_text::text(&mount.join(FEATURES)).unwrap_or_default();
        let unknown_features = text::unknown_features(&features);
        let domains = domains(&mount);
        if domains.is_empty() {
            return opening.unavailable_all(&definitions(&wanted), "resctrl has no L3 domain");
        }
        if wanted.is_empty() {
            return;
        }
        let (slots, values) = slots(&wanted, &domains).unzip();
        let job = job.to_string();
        let proc = host.mounts.proc.clone();
        let monitored = Monitored { mount, proc, job, processes, slots, values, domains, unknown_features };
        self.open_group(monitored, &definitions(&wanted), opening);
    }
}

impl ResctrlKind {
    fn open_group(&self, mut monitored: Monitored, wanted: &[Definition], opening: &mut Opening<'_>) {
        if let Some(other) = other_control_group(&mut monitored) {
            let reason = format!(
                "the job's processes belong to the control group {other} of resctrl; only those of the default one are monitored"
            );
            return opening.unavailable_all(wanted, &reason);
        }
        let path = monitored.mount.join(GROUPS).join(name_of(&monitored.job));
        match Group::open(&path, self.operations) {
            Ok(group) => {
                let source = ResctrlSource::new(monitored, group);
                opening.push_custom(KIND.to_owned(), Box::new(source));
            }
            Err(error) => {
                opening.unavailable_all(wanted, &refusal(&monitored.mount, &path, &error));
                if passes(&error) {
                    let watch = RoomWatch::new(&monitored.mount, clock::monotonic_ns());
                    opening.push(format!("{KIND}/room"), Source::Custom(Box::new(watch)));
                }
            }
        }
    }
}

fn definitions(counted: &[(Definition, Event)]) -> Vec<Definition> {
    counted.iter().map(|(definition, _)| definition.clone()).collect()
}

/// Control group of the job's processes, if all belong to others than the default one.
fn other_control_group(monitored: &mut Monitored) -> Option<String> {
    let mut left = monitored.processes.list(&monitored.proc)?;
    let mut last = None;
    for name in control_groups(&monitored.mount) {
        let tasks = kernel_text::text(&monitored.mount.join(&name).join("tasks")).unwrap_or_default();
        let tasks = text::tasks(&tasks);
        let before = left.len();
        left.retain(|pid| !tasks.contains(pid));
        if left.len() < before {
            last = Some(name);
        }
    }
    last.filter(|_| left.is_empty())
}

fn control_groups(mount: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(mount).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = directories.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !["info", "mon_data", GROUPS].contains(&name.as_str()))
}

/// Wanted metrics that the processor counts, with their events. The others become unavailable.
fn counted(mount: &Path, wanted: &[Definition], opening: &mut Opening<'_>) -> Vec<(Definition, Event)> {
    let features = match kernel_text::text(&mount.join(FEATURES)) {
        Ok(features) => features,
        Err(_) => {
            opening
                .unavailable_all(wanted, "resctrl of this processor cannot monitor: it has no info/L3_MON");
            return Vec::new();
        }
    };
    let mut counted = Vec::new();
    for definition in wanted {
        let field = definition.metric.field_of(KIND);
        match EVENTS.into_iter().find(|event| Some(event.name()) == field) {
            Some(event) if text::has_feature(&features, event) => counted.push((definition.clone(), event)),
            Some(_) | None => {
                let features = features.split_ascii_whitespace().collect::<Vec<_>>().join(", ");
                let reason = format!("the processor does not count it; info/L3_MON/mon_features: {features}");
                opening.unavailable(definition.clone(), reason);
            }
        }
    }
    counted
}

fn slots<'a>(
    wanted: &'a [(Definition, Event)],
    domains: &'a BTreeSet<u32>,
) -> impl Iterator<Item = (Slot, Value)> + 'a {
    wanted.iter().flat_map(move |(definition, event)| {
        domains.iter().map(move |domain| {
            let labels = Labels::escaped(vec![("domain".to_owned(), domain.to_string())]).unwrap_or_default();
            (Slot { definition: definition.clone(), labels }, (*domain, *event))
        })
    })
}

#[derive(Debug, thiserror::Error)]
enum NoMount {
    #[error(transparent)]
    Table(#[from] FileError),
    #[error("resctrl is not mounted; mount it with `mount -t resctrl resctrl /sys/fs/resctrl`")]
    NotMounted,
    #[error("the processor or the kernel has no resctrl (Intel RDT, AMD QoS, Arm MPAM)")]
    NotSupported,
}

fn find_mount(mounts: &Mounts) -> Result<PathBuf, NoMount> {
    let path = mounts.proc.join("self/mountinfo");
    let table = kernel_text::text(&path).map_err(FileError::of(&path))?;
    if let Some(mount) = of_resctrl(mount_table::parse(&table)).last() {
        return Ok(mounts.root.join(mount.point.trim_start_matches('/')));
    }
    let is_supported = mounts.sys().join("fs/resctrl").exists();
    Err(if is_supported { NoMount::NotMounted } else { NoMount::NotSupported })
}

fn of_resctrl(mounts: Vec<Mount>) -> Vec<Mount> {
    mounts.into_iter().filter(|mount| mount.fs_type == KIND).collect()
}

fn watch_mounts(mounts: &Mounts, opening: &mut Opening<'_>) {
    if let Ok(table) = MountTable::open(&mounts.proc.join("self/mountinfo")) {
        let watch = MountWatch::new(table, of_resctrl);
        opening.push(format!("{KIND}/mounts"), Source::Custom(Box::new(watch)));
    }
}

fn refusal(mount: &Path, path: &Path, error: &io::Error) -> String {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match errno {
        Some(Errno::NOSPC) => {
            let limit = kernel_text::text(&mount.join("info/L3_MON/num_rmids")).unwrap_or_default();
            format!(
                "all {} RMIDs of the processor are in use (info/L3_MON/num_rmids); sample fewer jobs, or remove monitoring groups",
                limit.trim()
            )
        }
        Some(Errno::BUSY) => {
            "the RMIDs that ended jobs had are not free yet (info/L3_MON/num_rmids)".to_owned()
        }
        Some(Errno::AGAIN) => format!("the monitoring group {name} belongs to another agent"),
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            format!("cannot create the monitoring group {name}: {error}; run the agent as root")
        }
        Some(_) | None => format!("cannot create the monitoring group {name}: {error}"),
    }
}

fn passes(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOSPC | Errno::BUSY | Errno::AGAIN))
}

/// Reports when a group can be tried again, because another one was removed, or some time has passed: a
/// source without slots.
#[derive(Debug)]
struct RoomWatch {
    groups: PathBuf,
    count: usize,
    until_ns: u64,
}

impl RoomWatch {
    fn new(mount: &Path, now_ns: u64) -> Self {
        let groups = mount.join(GROUPS);
        Self { count: count(&groups), groups, until_ns: now_ns.saturating_add(RETRY_NS) }
    }

    fn look(&self, now_ns: u64) -> Outcome {
        let is_due = now_ns >= self.until_ns || count(&self.groups) < self.count;
        if is_due { Outcome::Changed } else { Outcome::Read }
    }
}

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

impl CustomSource for RoomWatch {
    fn read(&mut self, _reading: &mut Reading) -> Outcome {
        self.look(clock::monotonic_ns())
    }
}

/// Removes the monitoring groups of jobs that an agent which was killed has left behind.
pub(crate) fn remove_left_behind(mounts: &Mounts) {
    let Ok(mount) = find_mount(mounts) else { return };
    let removed = group::remove_left_behind(&mount, &Kernel);
    if removed > 0 {
        info!("removed {removed} monitoring groups of resctrl that an earlier agent left behind");
    }
}

#[cfg(test)]
mod tests;
