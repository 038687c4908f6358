//! A simulated machine with the devices of the fixtures, and its open sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use polymeter_agent::cgroups::Mounts;
use polymeter_agent::counters::Counters;
use polymeter_agent::sources::{Opened, Source, SourceFactory, Target, Unavailable};
use polymeter_proto::catalogue;

pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Creates a machine with the devices of the fixtures, and the mounts of `mountinfo`.
pub(crate) fn machine(mountinfo: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    copy_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs"), root.path());
    fs::create_dir_all(root.path().join("proc/self")).unwrap();
    fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
    root
}

pub(crate) fn open(root: &Path, selector: &str) -> (Vec<Opened>, Vec<Unavailable>) {
    let mounts = Mounts::read(root).unwrap();
    let factory = SourceFactory::of(&mounts);
    let definitions = catalogue::select(&selector.parse().unwrap());
    factory.open(&Target::Node(Arc::new(Counters::default())), &definitions)
}

/// Names of the sources that a thread reads, each with its series.
pub(crate) fn threaded(opened: &[Opened]) -> BTreeMap<&str, BTreeSet<String>> {
    let threaded = opened.iter().filter(|opened| matches!(opened.source, Source::Threaded(_)));
    let named = threaded.map(|opened| {
        let slots = opened.source.slots().iter();
        let series = slots.map(|slot| format!("{}{{{}}}", slot.definition.name(), slot.labels));
        (opened.name.as_str(), series.collect())
    });
    named.collect()
}
