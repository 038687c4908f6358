//! Source kinds, and the opening of sources.

use std::collections::BTreeSet;
use std::path::Path;

use polymeter_proto::catalogue::{Definition, Hierarchy};
use polymeter_proto::series::Processors;

use super::cpu_list;
use super::devices;
use super::kernel_text;
use super::kind::{OpenRequest, Opening, SourceFactory, SourceKind};
use super::slot::Unavailable;
use super::target::{Opened, Target};
use super::text_file_kind::{any_file_with_alternative, watch_files};

/// All kinds of sources. A metric with origins of several kinds comes from the first one that has it.
pub static KINDS: &[&dyn SourceKind] = &[
    &super::text_file_kind::TextFileKind,
    &super::blocking_file::BlockingFileKind,
    &super::perf_kind::PerfKind,
    &super::stacks::StacksKind::BY_FRAME_POINTERS,
    &super::stacks::StacksKind::BY_TABLES,
    &super::stacks::StacksKind::WAITS,
    &super::process_kinds::ProcessesKind,
    &super::process_kinds::CgroupProcessesKind,
    &super::process_kinds::ProcessIoKind,
    &super::job_cpus::JobCpusKind,
    &super::resctrl::ResctrlKind::KERNEL,
    &super::ebpf::EbpfKind,
    &super::busiest::BusiestKind,
    &super::taskstats_kind::TaskstatsKind,
    &super::filesystem::FilesystemKind,
    &super::rapl::RaplKind,
    &super::ipmi::IpmiKind,
    &super::lustre::LustreKind,
    &super::lustre::LustreJobsKind,
    &super::nfs::NfsKind,
    &super::gpfs::GpfsKind,
    &super::beegfs::BeegfsKind,
    &super::nvidia::NvidiaKind,
    &super::nvidia::NvidiaJobKind,
    &super::drm::DrmKind,
    &super::drm::KfdKind,
    &super::drm::AmdgpuKind,
    &super::outside_kind::OutsideKind,
    &super::agent_self::AgentKind,
];

impl SourceFactory<'_> {
    /// True if version 2 has files for metrics that other kinds have, too. They may appear after the others,
    /// and count all of the cgroup from its beginning.
    pub(crate) fn has_files_with_alternative(&self, target: &Target) -> bool {
        let request = OpenRequest { host: self, target, wanted: Vec::new() };
        any_file_with_alternative(&request, |file, _| file.hierarchy == Hierarchy::V2)
    }

    /// Watches for the files of metrics for which other kinds stand in.
    pub(crate) fn watches(&self, target: &Target, definitions: Vec<Definition>) -> Vec<Opened> {
        let mut opening = Opening::new(self.step);
        watch_files(&OpenRequest { host: self, target, wanted: definitions }, &mut opening);
        opening.finish().0
    }

    pub fn open(&self, target: &Target, definitions: &[Definition]) -> (Vec<Opened>, Vec<Unavailable>) {
        let mut opening = Opening::new(self.step);
        for kind in KINDS {
            let wanted = definitions.iter().filter(|definition| {
                let first = definition.metric.origins.first().map(|origin| origin.kind());
                definition.metric.is_of_kind(kind.name())
                    && (first == Some(kind.name()) || opening.has_left(definition))
            });
            let wanted: Vec<Definition> = wanted.cloned().collect();
            if !wanted.is_empty() {
                opening.open(*kind, &OpenRequest { host: self, target, wanted });
            }
        }
        let (mut opened, unavailable) = opening.finish();
        let sys = self.mounts.sys();
        for Opened { source, devices, .. } in &mut opened {
            *devices = devices::of_slots(&sys, source.slots(), self.interface_names);
        }
        (opened, unavailable)
    }
}

pub fn online_cpus(root: &Path) -> std::io::Result<Vec<usize>> {
    let path = root.join("sys/devices/system/cpu/online");
    let text = kernel_text::text(&path)?;
    cpu_list::parse(text.trim()).ok_or_else(|| {
        std::io::Error::other(format!("{}: `{}` is not a list of CPUs", path.display(), text.trim()))
    })
}

/// Processors of the node, whose online CPUs are `cpus`. The number of cores is unknown if the kernel does
/// not say which core a CPU belongs to.
pub fn processors(root: &Path, cpus: &[usize]) -> Processors {
    let cores: Option<BTreeSet<Vec<usize>>> = cpus.iter().map(|cpu| cpus_of_core(root, *cpu)).collect();
    let count = |count: usize| u32::try_from(count).ok().filter(|count| *count > 0);
    Processors { cpus: count(cpus.len()), cores: cores.and_then(|cores| count(cores.len())), roofs: None }
}

/// CPUs of the core of a CPU, itself included.
fn cpus_of_core(root: &Path, cpu: usize) -> Option<Vec<usize>> {
    let topology = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
    // The second is its name in kernels before 5.3.
    let texts =
        ["core_cpus_list", "thread_siblings_list"].map(|file| kernel_text::text(&topology.join(file)));
    let siblings = texts.into_iter().flatten().find_map(|text| cpu_list::parse(text.trim()))?;
    siblings.contains(&cpu).then_some(siblings)
}

#[cfg(test)]
mod tests {

    use polymeter_proto::catalogue::{self, BLOCKING_FILE_KIND, Origin, PERF_KIND, TEXT_FILE_KIND};

    use super::*;
    use crate::sources::kind::metrics_of;

    /// Counts CPUs and cores where each CPU states its siblings in `file`.
    fn count(file: &str, siblings: &[&str]) -> (u32, Option<u32>) {
        let root = tempfile::tempdir().unwrap();
        for (cpu, text) in siblings.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            let topology = root.path().join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join(file), format!("{text}\n")).unwrap();
        }
        let cpus: Vec<usize> = (0..siblings.len()).collect();
        let found = processors(root.path(), &cpus);
        (found.cpus.unwrap(), found.cores)
    }

    #[test]
    fn cores_are_counted_by_the_threads_that_share_them() {
        assert_eq!(count("core_cpus_list", &["0,2", "1,3", "0,2", "1,3"]), (4, Some(2)));
        assert_eq!(count("thread_siblings_list", &["0-1", "0-1", "2", "3"]), (4, Some(3)), "hybrid");
        assert_eq!(count("core_cpus_list", &["0", "1"]), (2, Some(2)));
        for unknown in [["0-1", ""], ["0-1", "x"], ["0", "0"]] {
            assert_eq!(count("core_cpus_list", &unknown), (2, None), "{unknown:?}");
        }
        assert_eq!(processors(Path::new("/nowhere"), &[]), Processors::default());
    }

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
        for metric in catalogue::all() {
            let kinds = metric.origins.iter().map(|origin| origin.kind());
            let positions = kinds.map(|kind| KINDS.iter().position(|known| known.name() == kind));
            assert!(positions.is_sorted(), "{}", metric.name);
        }
    }
}
