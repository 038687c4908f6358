//! Opens the sources of a target, gives them their periods, and puts new ones in the place of old ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Identifier;
use tokio::time::Instant;

use super::tracked_target::{OpenSource, PerfOpened, TrackedTarget};
use super::{Manager, TargetKey};
use crate::lanes::{ActiveSource, Command, Group, SourceId, SourceKey};
use crate::log;
use crate::sources::{Descendants, Outcome, ReadBuffer, Reading, ScanResult, Source, SummedFileSource};
use crate::sources::{Opened, SourceFactory, Target, Unavailable};

/// How long after a change the sources of a target are opened anew at the earliest, so that a device that comes and
/// goes all the time costs little.
const REOPEN_AFTER: Duration = Duration::from_secs(2);

impl Manager {
    /// Brings the sources of a target in line with its plan. Files are opened anew where others are wanted, or where
    /// that is asked for because something came or went; else they only get other periods. perf events that are open
    /// go on counting in any case. A job's new sources are read at once: its first reading waits for no deadline, also
    /// where its cgroups come one after the other.
    pub(super) async fn open(&mut self, key: &TargetKey, followed: &mut TrackedTarget, anew: bool) {
        let (perf, files) = followed.definitions();
        let target = followed.perf_target(&self.mounts);
        if target != followed.perf.target {
            followed.perf = PerfOpened { target, ..PerfOpened::default() };
            followed
                .sources
                .iter_mut()
                .filter(|(name, _)| is_perf(name))
                .for_each(|(_, source)| source.slots.clear());
        }
        let known = &followed.perf.definitions;
        let new_perf: Vec<_> = perf.into_iter().filter(|definition| !known.contains(definition)).collect();
        let anew = anew || files != followed.files;
        let wanted_files = files.iter().filter(|definition| anew && !followed.has_lasting(definition));
        let wanted: Vec<_> = wanted_files.chain(new_perf.iter()).cloned().collect();
        let (opened, unavailable) = self.source_factory(followed).open(&followed.target, &wanted);
        self.read_ended().await;
        followed.perf.groups += opened.iter().filter(|opened| is_perf(&opened.name)).count();
        followed.perf.definitions.extend(new_perf);
        followed.files = files;
        followed.unavailable.retain(|(metric, _)| is_perf(metric) || !anew);
        followed.unavailable.extend(
            unavailable.into_iter().map(|Unavailable { definition, reason }| (definition.name(), reason)),
        );
        let (kept, before): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut followed.sources)
            .into_iter()
            .partition(|(_, source)| source.is_lasting || source.part.is_some() || !anew);
        self.regroup(followed, kept).await;
        self.replace(key, followed, opened, before, anew).await;
    }

    /// What opens sources of a target beside those that it has.
    pub(super) fn source_factory(&self, followed: &TrackedTarget) -> SourceFactory<'_> {
        SourceFactory {
            mounts: &self.mounts,
            cpus: &self.cpus,
            perf_descriptors: self.config.perf_fd_limit.min(self.capacity.spare()),
            first_perf_group: followed.perf.groups,
            step: None,
        }
    }

    /// Gives sources that stay open the periods of the plan, and closes perf groups of which nothing is wanted.
    async fn regroup(&mut self, followed: &mut TrackedTarget, kept: BTreeMap<String, OpenSource>) {
        for (name, source) in kept {
            let Ok(called) = Identifier::try_from(name.as_str()) else { continue };
            let groups = self.groups(followed, &called, &source);
            if groups.is_empty() && is_perf(&name) {
                let gone =
                    |definition: &Definition| source.slots.iter().any(|slot| slot.definition == *definition);
                followed.perf.definitions.retain(|definition| !gone(definition));
                self.command(Command::Remove(source.id)).await;
                continue;
            }
            self.command(Command::Regroup(source.id, groups)).await;
            followed.sources.insert(name, source);
        }
    }

    /// Puts what was opened in the place of what has the same name, and closes what has no successor.
    pub(super) async fn replace(
        &mut self,
        key: &TargetKey,
        followed: &mut TrackedTarget,
        opened: Vec<Opened>,
        mut before: BTreeMap<String, OpenSource>,
        anew: bool,
    ) {
        let (dormant, awake): (Vec<_>, Vec<_>) =
            opened.into_iter().partition(|opened| opened.source.slots().is_empty());
        if anew {
            followed.dormant = dormant.into_iter().map(|opened| opened.source).collect();
        }
        let (mut new, mut added) = (Vec::new(), Vec::new());
        for Opened { name, source, step: part, below } in awake {
            let Ok(called) = Identifier::try_from(name.as_str()) else { continue };
            let id = before.remove(&name).map_or_else(
                || {
                    let id = self.new_source_id();
                    new.push(id);
                    id
                },
                |source| source.id,
            );
            let (slots, is_lasting) = (source.slots().to_vec(), source.is_lasting());
            let open = OpenSource { id, slots, part, is_lasting, below };
            let groups = self.groups(followed, &called, &open);
            let source_key = SourceKey { job: followed.job.clone(), name: called };
            let active = ActiveSource::new(Arc::new(source_key), source, groups);
            let active = active.with_progress(|slot| followed.progress(slot));
            self.owners.insert(id, key.clone());
            added.push((id, Box::new(active)));
            followed.sources.insert(name, open);
        }
        let removed: Vec<SourceId> = before.into_values().map(|source| source.id).collect();
        if !removed.is_empty() || !added.is_empty() {
            self.command(Command::Exchange { removed, added }).await;
        }
        self.read_ended().await;
        if followed.job.is_some() && !new.is_empty() {
            self.command(Command::ReadNow(new)).await;
        }
    }

    fn groups(
        &mut self,
        followed: &mut TrackedTarget,
        called: &Identifier,
        source: &OpenSource,
    ) -> Vec<Group> {
        let period = |name: &str| source.period(&followed.plan, name);
        self.ids.groups(followed.job.as_ref(), called, &mut followed.series, &source.slots, period)
    }

    pub(super) fn new_source_id(&mut self) -> SourceId {
        self.free.pop_first().unwrap_or_else(|| {
            self.next_source += 1;
            SourceId(self.next_source - 1)
        })
    }

    /// What a source counts is over, as its cgroup is: should that come again, it is opened anew. The processes of a job without a
    /// cgroup do not come again, and their numbers may be others'.
    pub(super) fn end_lasting(&mut self, id: SourceId) {
        let Some(followed) = self.owners.get(&id).and_then(|key| self.followed.get_mut(key)) else { return };
        if matches!(followed.target, Target::Cgroups(_)) {
            let ended =
                followed.sources.iter_mut().filter(|(name, source)| source.id == id && !is_perf(name));
            ended.for_each(|(_, source)| source.is_lasting = false);
        }
    }

    /// Has the cgroups read that came below those of a job's sources which count for each cgroup apart. Says whether there are more
    /// to be found soon.
    pub(super) fn look_below(followed: &mut TrackedTarget, spare: usize) -> bool {
        let mut again = false;
        if spare == 0 {
            return again;
        }
        for (name, source) in &mut followed.sources {
            match source.below.as_mut().map(Descendants::scan) {
                None | Some(ScanResult::All) => {}
                Some(ScanResult::Some) => again = true,
                Some(ScanResult::TooMany) => {
                    let job = followed.job.as_ref().map_or("", |job| job.descriptor.job_id.as_str());
                    let most = SummedFileSource::CGROUPS;
                    log::warning(&format!(
                        "job {job} has more than {most} cgroups: {name} is the sum over {most} of them"
                    ));
                }
            }
        }
        again
    }

    pub(super) fn reopen_later(&mut self, id: SourceId) {
        if let Some(followed) = self.owners.get(&id).and_then(|key| self.followed.get_mut(key)) {
            followed.reopen_at.get_or_insert(Instant::now() + REOPEN_AFTER);
        }
    }

    /// Reports a source whose read hangs: in the log, and as the reason for which its metrics are unavailable.
    pub(super) fn report_hung(&mut self, id: SourceId) {
        let Some(followed) = self.owners.get(&id).and_then(|key| self.followed.get_mut(key)) else { return };
        let Some((name, source)) = followed.sources.iter().find(|(_, source)| source.id == id) else {
            return;
        };
        log::warning(&format!("a read of {name} hangs: its samples are missed until it returns"));
        let metrics: BTreeSet<String> = source.slots.iter().map(|slot| slot.definition.name()).collect();
        let reason = hung(name);
        followed.unavailable.extend(metrics.into_iter().map(|metric| (metric, reason.clone())));
    }

    /// Reports that a read that hung has returned.
    pub(super) fn report_recovered(&mut self, id: SourceId) {
        let Some(followed) = self.owners.get(&id).and_then(|key| self.followed.get_mut(key)) else { return };
        let Some((name, _)) = followed.sources.iter().find(|(_, source)| source.id == id) else { return };
        log::info(&format!("the read of {name} has returned: it is sampled again"));
        let reason = hung(name);
        followed.unavailable.retain(|(_, known)| *known != reason);
    }

    /// Reports a source whose reads fail for a reason that may pass.
    pub(super) fn report_failing(&self, id: SourceId, error: rustix::io::Errno) {
        let followed = self.owners.get(&id).and_then(|key| self.followed.get(key));
        let mut sources = followed.into_iter().flat_map(|followed| &followed.sources);
        if let Some((name, _)) = sources.find(|(_, source)| source.id == id) {
            log::warning(&format!(
                "cannot read {name}: {error}; its samples are absent until a read succeeds"
            ));
        }
    }

    pub(super) async fn reopen_due(&mut self) {
        let now = Instant::now();
        let (mut text, mut nothing) = (ReadBuffer::default(), Reading::default());
        for followed in self.followed.values_mut() {
            let woken = |source: &mut Source| source.read(&mut text, &mut nothing) == Outcome::Changed;
            if followed.dormant.iter_mut().any(woken) {
                followed.reopen_at.get_or_insert(now);
            }
        }
        let due = |followed: &TrackedTarget| followed.reopen_at.is_some_and(|at| at <= now);
        let keys: Vec<TargetKey> =
            self.followed.iter().filter(|(_, followed)| due(followed)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.reopen(&key).await;
        }
    }

    pub(super) async fn reopen(&mut self, key: &TargetKey) {
        let Some(mut followed) = self.followed.remove(key) else { return };
        followed.reopen_at = None;
        followed.probe.forget();
        self.open(key, &mut followed, true).await;
        self.tell_plan(&mut followed, None).await;
        self.followed.insert(key.clone(), followed);
        self.count();
    }
}

/// Whether a source or a metric is one of perf's.
pub(super) fn is_perf(name: &str) -> bool {
    name.starts_with("perf")
}

/// The reason for which the metrics of a source whose read hangs are unavailable.
fn hung(name: &str) -> String {
    format!("a read of {name} has not returned")
}
