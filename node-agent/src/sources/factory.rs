//! Opening the sources that give what a plan wants: each metric from the first of its origins that this machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polymeter_proto::catalogue::{self, Definition, Field, Hierarchy, Metric, Origin, TextFile};

use crate::cgroups::Step;
use crate::cgroups::{JobCgroups, Mounts};
use crate::counters::Counters;
use crate::sources::perf::{self, PerfTarget, Unavailable};
use crate::sources::{
    AgentSelfSource, Descendants, PerfSource, ProcessSumSource, ReadBuffer, Reading, Source,
    SummedFileSource, TextFileSource, Wanted,
};

/// Whose sources are opened.
#[derive(Debug, Clone)]
pub enum Target {
    /// A job with cgroups.
    Cgroups(JobCgroups),
    /// A job that is a process and its descendants.
    Processes(u32),
    /// The node and the agent itself.
    Node(Arc<Counters>),
}

/// A source that was opened, and what it is called.
#[derive(Debug)]
pub struct Opened {
    /// `v1/memory.stat`, `perf/0`, `processes`, `agent`.
    pub name: String,
    /// The source.
    pub source: Source,
    /// The part of the job that it is of; none for the whole job. Its name goes before the source's.
    pub part: Option<Arc<Step>>,
    /// What finds the cgroups that are to be read with it, where it is a sum over cgroups.
    pub below: Option<Descendants>,
}

/// Opens sources on one machine.
#[derive(Debug)]
pub struct SourceFactory<'a> {
    /// Where things are mounted.
    pub mounts: &'a Mounts,
    /// The CPUs on which perf events are opened.
    pub cpus: &'a [usize],
    /// How many descriptors perf events may take for this target.
    pub perf_descriptors: usize,
    /// The number of the first perf group that is opened, where others are open already.
    pub first_perf_group: usize,
    /// The part of a job that is opened; none for all of a target.
    pub part: Option<&'a Arc<Step>>,
}

/// A metric that has not found its file yet: the next of its origins to try, and why the others failed.
struct Candidate {
    definition: Definition,
    next_origin: usize,
    reasons: Vec<String>,
    /// A file that could be opened, and has no line of it yet.
    dormant: Option<PathBuf>,
}

/// The fields that are wanted of each kernel file.
type ByFile = BTreeMap<PathBuf, (&'static TextFile, Vec<(String, String)>, Vec<Wanted>)>;

impl SourceFactory<'_> {
    /// Opens everything that `definitions` need. What cannot be had is told, once, with the reason.
    pub fn open(&self, target: &Target, definitions: &[Definition]) -> (Vec<Opened>, Vec<Unavailable>) {
        let mut unavailable = Vec::new();
        let falls_back = definitions.iter().any(may_be_of_processes) && self.falls_back_on_processes(target);
        let (by_processes, of_files): (Vec<_>, Vec<_>) =
            definitions.iter().cloned().partition(|definition| falls_back && may_be_of_processes(definition));
        let mut opened = self.open_files(target, &of_files, &mut unavailable);
        self.open_perf(target, definitions, &mut opened, &mut unavailable);
        let has = |wanted: fn(&Origin) -> bool| -> Vec<Definition> {
            definitions
                .iter()
                .filter(|definition| definition.metric.origins.iter().any(wanted))
                .cloned()
                .collect()
        };
        let of_processes = has(|origin| matches!(origin, Origin::Processes(_)));
        let of_agent = has(|origin| matches!(origin, Origin::Agent(_)));
        match target {
            Target::Processes(root) if !of_processes.is_empty() => {
                let source = ProcessSumSource::of_tree(&self.mounts.proc, *root);
                opened.push(self.opened(PROCESSES.to_owned(), Source::Processes(source)));
            }
            Target::Node(counters) if !of_agent.is_empty() => {
                let source = Source::Own(AgentSelfSource::new(Arc::clone(counters), &of_agent));
                opened.push(self.opened("agent".to_owned(), source));
            }
            Target::Cgroups(cgroups) => {
                if let Some(directory) = cgroups.of_processes().filter(|_| !by_processes.is_empty()) {
                    let source = ProcessSumSource::of_cgroup(&self.mounts.proc, directory);
                    opened.push(self.opened(PROCESSES.to_owned(), Source::Processes(source)));
                }
                let reason = "the job has a cgroup; these sums are for jobs without one".to_owned();
                unavailable.extend(
                    of_processes
                        .into_iter()
                        .map(|definition| Unavailable { definition, reason: reason.clone() }),
                );
            }
            Target::Processes(_) | Target::Node(_) => {}
        }
        (opened, unavailable)
    }

    /// Whether what the files of a job's cgroups should count is to be had of its processes alone. On version 1 the files may be
    /// there and count nothing: they are believed when any of them has counted something, and then all of them, since both
    /// beside each other would count twice.
    fn falls_back_on_processes(&self, target: &Target) -> bool {
        if !matches!(target, Target::Cgroups(_)) {
            return false;
        }
        let counts = |definition: &Definition, file: &'static TextFile, field: Field| {
            self.paths(target, file).iter().any(|(path, labels)| {
                let wanted = [Wanted { definition: definition.clone(), field }];
                let source = TextFileSource::open(path, file.form, &wanted, labels);
                source.is_ok_and(|source| file.hierarchy == Hierarchy::V2 || has_counted(source))
            })
        };
        let all = catalogue::all().map(|metric| Definition { metric, instance: None });
        !all.filter(may_be_of_processes).any(|definition| {
            definition.metric.origins.iter().any(|origin| match origin {
                Origin::Text { file, field } => counts(&definition, file, *field),
                Origin::Perf(_) | Origin::Processes(_) | Origin::CgroupProcesses(_) | Origin::Agent(_) => {
                    false
                }
            })
        })
    }

    fn opened(&self, name: String, source: Source) -> Opened {
        match self.part {
            None => Opened { name, source, part: None, below: None },
            Some(part) => {
                let name = format!("{}/{name}", part.name);
                Opened { name, source, part: Some(Arc::clone(part)), below: None }
            }
        }
    }

    fn open_files(
        &self,
        target: &Target,
        definitions: &[Definition],
        unavailable: &mut Vec<Unavailable>,
    ) -> Vec<Opened> {
        let mut opened: BTreeMap<PathBuf, TextFileSource> = BTreeMap::new();
        let mut wanted: ByFile = BTreeMap::new();
        let has_file = |definition: &&Definition| {
            definition.metric.origins.iter().any(|origin| matches!(origin, Origin::Text { .. }))
        };
        let candidate = |definition: &Definition| Candidate {
            definition: definition.clone(),
            next_origin: 0,
            reasons: Vec::new(),
            dormant: None,
        };
        let mut candidates: Vec<Candidate> = definitions.iter().filter(has_file).map(candidate).collect();
        // Each round tries one more origin of what is still missing; nothing in the catalogue has more than a few.
        while !candidates.is_empty() {
            let mut failures: BTreeMap<PathBuf, String> = BTreeMap::new();
            let mut tried: Vec<(Candidate, Vec<PathBuf>)> = Vec::new();
            for mut candidate in candidates.drain(..) {
                match self.next_text_origin(target, &mut candidate) {
                    Some((file, field)) => {
                        let paths = self.paths(target, file);
                        for (path, labels) in &paths {
                            let (_, _, fields) = wanted
                                .entry(path.clone())
                                .or_insert_with(|| (file, labels.clone(), Vec::new()));
                            fields.push(Wanted { definition: candidate.definition.clone(), field });
                            opened.remove(path);
                        }
                        tried.push((candidate, paths.into_iter().map(|(path, _)| path).collect()));
                    }
                    None if candidate.dormant.is_some() => {}
                    None => unavailable
                        .push(Unavailable { reason: reason(&candidate), definition: candidate.definition }),
                }
            }
            for (path, (file, labels, fields)) in &wanted {
                if !opened.contains_key(path) {
                    match TextFileSource::open(path, file.form, fields, labels) {
                        Ok(source) => drop(opened.insert(path.clone(), source)),
                        Err(error) => drop(failures.insert(path.clone(), error.to_string())),
                    }
                }
            }
            wanted.retain(|path, _| opened.contains_key(path));
            for (mut candidate, paths) in tried {
                let found = paths
                    .iter()
                    .any(|path| opened.get(path).is_some_and(|source| gives(source, &candidate.definition)));
                if !found {
                    let told = paths.first().and_then(|path| failures.get(path).cloned());
                    let missing =
                        paths.first().map(|path| format!("{}: this kernel does not give it", path.display()));
                    candidate.reasons.extend(told.or(missing));
                    let dormant = paths
                        .into_iter()
                        .find(|path| opened.get(path).is_some_and(|source| source.slots().is_empty()));
                    candidate.dormant = candidate.dormant.or(dormant);
                    candidates.push(candidate);
                }
            }
        }
        let named = |(path, source): (PathBuf, TextFileSource)| match wanted.get(&path) {
            None => self.opened(String::new(), Source::File(source)),
            Some((file, labels, _)) => self.opened_file(file, &path, labels, source),
        };
        opened.into_iter().map(named).collect()
    }

    /// A file under its name; where each cgroup counts for itself, with all below it.
    fn opened_file(
        &self,
        file: &'static TextFile,
        path: &Path,
        labels: &[(String, String)],
        source: TextFileSource,
    ) -> Opened {
        let name = source_name(file, path);
        let top = path.parent().filter(|_| file.counts_apart);
        match top.map(|top| SummedFileSource::open(top, file.path, file.form, all_of(file), labels)) {
            Some(Ok((summed, below))) => {
                Opened { below: Some(below), ..self.opened(name, Source::Summed(summed)) }
            }
            // Its cgroup went meanwhile, which the file itself will say.
            Some(Err(_)) | None => self.opened(name, Source::File(source)),
        }
    }

    /// The next origin of a candidate that is a file of this target.
    fn next_text_origin(
        &self,
        target: &Target,
        candidate: &mut Candidate,
    ) -> Option<(&'static TextFile, Field)> {
        while let Some(origin) = candidate.definition.metric.origins.get(candidate.next_origin) {
            candidate.next_origin += 1;
            if let Origin::Text { file, field } = origin
                && !self.paths(target, file).is_empty()
            {
                return Some((file, *field));
            }
        }
        None
    }

    /// Where a file of the catalogue is for a target, with the labels that the part and its path give.
    fn paths(&self, target: &Target, file: &TextFile) -> Vec<(PathBuf, Vec<(String, String)>)> {
        let directory = match (target, file.hierarchy) {
            (Target::Node(_), Hierarchy::Proc) => Some(self.mounts.proc.as_path()),
            (Target::Cgroups(cgroups), hierarchy) => cgroups.directory(hierarchy),
            (Target::Node(_) | Target::Processes(_), _) => None,
        };
        let Some(directory) = directory else { return Vec::new() };
        let of_part = self.part.map(|part| part.labels.clone()).unwrap_or_default();
        let (Some(label), Some((before, behind))) = (file.path_label, file.path.split_once('*')) else {
            return vec![(directory.join(file.path), of_part)];
        };
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let matching = entries.filter_map(|entry| {
            let name = entry.file_name();
            let star = name.to_str()?.strip_prefix(before)?.strip_suffix(behind)?;
            // `hugetlb.2MB.rsvd.current` is another file.
            let labels = || of_part.iter().cloned().chain([(label.to_owned(), star.to_owned())]).collect();
            (!star.contains('.')).then(|| (entry.path(), labels()))
        });
        matching.collect()
    }

    fn open_perf(
        &self,
        target: &Target,
        definitions: &[Definition],
        opened: &mut Vec<Opened>,
        unavailable: &mut Vec<Unavailable>,
    ) {
        let target = match target {
            Target::Cgroups(cgroups) => {
                cgroups.perf_directory(self.mounts).map(|path| PerfTarget::Cgroup(path.to_owned()))
            }
            Target::Processes(root) => Some(PerfTarget::Process(*root)),
            Target::Node(_) => return,
        };
        let mut descriptors = 0;
        for (number, group) in perf::groups(definitions).into_iter().enumerate() {
            let refuse = |reason: &str| {
                group
                    .iter()
                    .map(|definition| Unavailable {
                        definition: definition.clone(),
                        reason: reason.to_owned(),
                    })
                    .collect::<Vec<_>>()
            };
            let Some(target) = &target else {
                unavailable.extend(refuse(
                    "the job has no cgroup of version 2 nor of the perf_event controller, which perf follows",
                ));
                continue;
            };
            let needed =
                group.len() * if matches!(target, PerfTarget::Process(_)) { 1 } else { self.cpus.len() };
            if descriptors + needed > self.perf_descriptors {
                unavailable.extend(refuse("the job's budget of perf descriptors is used up; raise perf_fd_limit, or LimitNOFILE where that is less, or sample fewer events"));
                continue;
            }
            let (source, missing) = PerfSource::open(target, &group, self.cpus, &self.mounts.tracefs);
            unavailable.extend(missing);
            if let Some(source) = source {
                descriptors += source.descriptors();
                let name = format!("perf/{}", self.first_perf_group + number);
                opened.push(self.opened(name, Source::Perf(source)));
            }
        }
    }
}

/// What sums over a job's processes are called as a source.
const PROCESSES: &str = "processes";

/// Whether a metric of a job with cgroups may be summed over its processes.
fn may_be_of_processes(definition: &Definition) -> bool {
    definition.metric.origins.iter().any(|origin| matches!(origin, Origin::CgroupProcesses(_)))
}

/// All that the catalogue has of a file.
fn all_of(file: &'static TextFile) -> Vec<Wanted> {
    let of_metric = |metric: &'static Metric| {
        metric.origins.iter().filter_map(move |origin| match origin {
            Origin::Text { file: of, field } if std::ptr::eq(*of, file) => {
                Some(Wanted { definition: Definition { metric, instance: None }, field: *field })
            }
            Origin::Text { .. }
            | Origin::Perf(_)
            | Origin::Processes(_)
            | Origin::CgroupProcesses(_)
            | Origin::Agent(_) => None,
        })
    };
    catalogue::all().flat_map(of_metric).collect()
}

/// Whether any value of a file is more than 0.
fn has_counted(mut source: TextFileSource) -> bool {
    let mut reading = Reading::absent(source.slots().len());
    source.read(&mut ReadBuffer::default(), &mut reading);
    reading.iter().flatten().any(|value| value > 0)
}

/// What people call a file as a source: `v1/memory.stat`, `v2/cpu.stat`, `proc/net/dev`.
fn source_name(file: &TextFile, path: &Path) -> String {
    let name = if file.path_label.is_some() {
        path.file_name().and_then(|name| name.to_str())
    } else {
        Some(file.path)
    };
    let hierarchy = match file.hierarchy {
        Hierarchy::V1(_) => "v1",
        Hierarchy::V2 => "v2",
        Hierarchy::Proc => "proc",
    };
    format!("{hierarchy}/{}", name.unwrap_or(file.path))
}

fn gives(source: &TextFileSource, definition: &Definition) -> bool {
    source.slots().iter().any(|slot| {
        slot.definition.metric == definition.metric
            && (definition.is_family() || slot.definition.instance == definition.instance)
    })
}

fn reason(candidate: &Candidate) -> String {
    if candidate.reasons.is_empty() {
        "the job has no cgroup of the controller that gives it".to_owned()
    } else {
        candidate.reasons.join("; ")
    }
}

/// The CPUs that are online: `0-3,8`.
///
/// # Errors
/// When the kernel does not say.
pub fn online_cpus(root: &Path) -> std::io::Result<Vec<usize>> {
    let path = root.join("sys/devices/system/cpu/online");
    let text = std::fs::read_to_string(&path)?;
    let range = |range: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = text.trim().split(',').map(range).collect();
    let malformed =
        || std::io::Error::other(format!("{}: `{}` is no list of CPUs", path.display(), text.trim()));
    Ok(ranges.ok_or_else(malformed)?.into_iter().flatten().collect())
}
