//! The registry of source kinds, and the opening of sources.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use polymeter_proto::catalogue::{self, Definition, Metric};

use super::reader_thread::ThreadedSource;
use super::slot::Unavailable;
use super::source::{CustomSource, Source};
use super::target::{Opened, Target};
use super::{agent_self, blocking_file, filesystem, perf, process_sum, text_file_kind};
use crate::cgroups::{Mounts, Step};

/// All kinds of sources. A metric with origins of several kinds comes from the first of these that has it.
pub static KINDS: &[&dyn SourceKind] = &[
    &text_file_kind::TextFileKind,
    &blocking_file::BlockingFileKind,
    &perf::PerfKind,
    &process_sum::ProcessesKind,
    &process_sum::CgroupProcessesKind,
    &filesystem::FilesystemKind,
    &agent_self::AgentKind,
];

/// The thread on which sources are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// The sampler's real-time thread. A read must not block.
    Fast,
    /// A thread for each source. A read may block.
    Slow,
}

/// A kind of sources: the code that opens and reads them. Its metrics are those of the catalogue that name it in their origins.
pub trait SourceKind: Sync {
    /// Returns the name by which the catalogue's origins refer to it: `filesystem`.
    fn name(&self) -> &'static str;

    /// Returns the lane in which its sources are read.
    fn lane(&self) -> Lane;

    /// Returns the fields that it reads, by which the catalogue's origins address them. None for a kind whose origins have
    /// addresses of their own form.
    fn fields(&self) -> Vec<&'static str>;

    /// Opens the sources that give the wanted metrics, and states the reason for each that is unavailable. It must not block, in
    /// either lane.
    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>);
}

impl fmt::Debug for dyn SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The metrics that a kind is to open sources for.
#[derive(Debug)]
pub struct OpenRequest<'a> {
    /// The machine, and the limits that hold for the target.
    pub host: &'a SourceFactory<'a>,
    /// The target.
    pub target: &'a Target,
    /// The wanted metrics of this kind.
    pub wanted: Vec<Definition>,
}

/// The sources that kinds have opened so far.
#[derive(Debug)]
pub struct Opening<'a> {
    lane: Lane,
    step: Option<&'a Arc<Step>>,
    opened: Vec<Opened>,
    unavailable: Vec<Unavailable>,
    left: Vec<Definition>,
}

impl Opening<'_> {
    /// Adds a source of the fast lane, or one without slots that merely watches for devices.
    pub fn push(&mut self, name: String, source: Source) {
        let (name, step) = match self.step {
            None => (name, None),
            Some(step) => (format!("{}/{name}", step.name), Some(Arc::clone(step))),
        };
        self.opened.push(Opened { name, source, step, below: None });
    }

    /// As [`Opening::push`]; returns the source for more to be added to it.
    pub(super) fn push_mut(&mut self, name: String, source: Source) -> Option<&mut Opened> {
        self.push(name, source);
        self.opened.last_mut()
    }

    /// Adds a source of the kind's lane.
    pub fn push_custom(&mut self, name: String, source: Box<dyn CustomSource>) {
        match self.lane {
            Lane::Fast => self.push(name, Source::Custom(source)),
            Lane::Slow => {
                let definitions: Vec<Definition> =
                    source.slots().iter().map(|slot| slot.definition.clone()).collect();
                match ThreadedSource::start(&name, source) {
                    Ok(source) => self.push(name, Source::Threaded(source)),
                    Err(error) => self.unavailable_all(&definitions, &format!("{name}: {error}")),
                }
            }
        }
    }

    /// States the reason for which a metric is unavailable.
    pub fn unavailable(&mut self, definition: Definition, reason: String) {
        let unavailable = Unavailable { definition, reason };
        if !self.unavailable.contains(&unavailable) {
            self.unavailable.push(unavailable);
        }
    }

    /// States the same reason for several metrics.
    pub fn unavailable_all(&mut self, definitions: &[Definition], reason: &str) {
        definitions.iter().for_each(|definition| self.unavailable(definition.clone(), reason.to_owned()));
    }

    /// Leaves a metric to the next of the kinds that its origins name.
    pub fn leave(&mut self, definition: Definition) {
        self.left.push(definition);
    }
}

/// Opens sources on one machine.
#[derive(Debug)]
pub struct SourceFactory<'a> {
    /// The mount points of cgroups and kernel file systems.
    pub mounts: &'a Mounts,
    /// The CPUs on which perf events are opened.
    pub cpus: &'a [usize],
    /// The number of descriptors that perf events may take for this target.
    pub perf_descriptors: usize,
    /// The number of the first perf group that is opened, where others are open already.
    pub first_perf_group: usize,
    /// The step or task that is opened; none for a whole target.
    pub step: Option<&'a Arc<Step>>,
}

impl SourceFactory<'_> {
    /// Opens everything that `definitions` need. Each metric that is unavailable comes with the reason.
    pub fn open(&self, target: &Target, definitions: &[Definition]) -> (Vec<Opened>, Vec<Unavailable>) {
        let mut opening = Opening {
            lane: Lane::Fast,
            step: self.step,
            opened: Vec::new(),
            unavailable: Vec::new(),
            left: Vec::new(),
        };
        for kind in KINDS {
            let is_wanted = |definition: &&Definition| {
                let first = definition.metric.origins.first().map(|origin| origin.kind());
                definition.metric.is_of_kind(kind.name())
                    && (first == Some(kind.name()) || opening.left.contains(definition))
            };
            let wanted: Vec<Definition> = definitions.iter().filter(is_wanted).cloned().collect();
            if !wanted.is_empty() {
                opening.lane = kind.lane();
                kind.open(&OpenRequest { host: self, target, wanted }, &mut opening);
            }
        }
        (opening.opened, opening.unavailable)
    }
}

/// Returns the metrics of a kind.
pub fn metrics_of(kind: &str) -> impl Iterator<Item = &'static Metric> {
    catalogue::all().filter(move |metric| metric.is_of_kind(kind))
}

/// Returns the CPUs that are online: `0-3,8`.
///
/// # Errors
/// If the kernel does not list them.
pub fn online_cpus(root: &Path) -> std::io::Result<Vec<usize>> {
    let path = root.join("sys/devices/system/cpu/online");
    let text = std::fs::read_to_string(&path)?;
    let range = |range: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = text.trim().split(',').map(range).collect();
    let malformed =
        || std::io::Error::other(format!("{}: `{}` is not a list of CPUs", path.display(), text.trim()));
    Ok(ranges.ok_or_else(malformed)?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use polymeter_proto::catalogue::{BLOCKING_FILE_KIND, Origin, PERF_KIND, TEXT_FILE_KIND};

    use super::*;

    #[test]
    fn every_origin_of_the_catalogue_has_a_kind_and_a_field() {
        for metric in catalogue::all() {
            for origin in metric.origins {
                let kind = KINDS.iter().find(|kind| kind.name() == origin.kind());
                let kind = kind.unwrap_or_else(|| panic!("{}: no kind `{}`", metric.name, origin.kind()));
                if let Origin::Source(field) = origin {
                    assert!(kind.fields().contains(&field.field), "{}: {field:?}", metric.name);
                }
            }
        }
    }

    #[test]
    fn every_kind_has_a_name_of_its_own_and_metrics_for_all_its_fields() {
        let names: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), KINDS.len());
        for kind in KINDS {
            let origins = || metrics_of(kind.name()).flat_map(|metric| metric.origins);
            assert!(origins().count() > 0, "{kind:?} has no metrics");
            for field in kind.fields() {
                assert!(
                    origins().any(|origin| origin.field_of(kind.name()) == Some(field)),
                    "{kind:?} {field}"
                );
            }
        }
        assert!([TEXT_FILE_KIND, BLOCKING_FILE_KIND, PERF_KIND].iter().all(|name| names.contains(name)));
    }

    #[test]
    fn origins_are_in_the_order_of_the_kinds() {
        let position = |kind: &str| KINDS.iter().position(|known| known.name() == kind);
        for metric in catalogue::all() {
            assert!(metric.origins.is_sorted_by_key(|origin| position(origin.kind())), "{}", metric.name);
        }
    }
}
