//! A machine with the stand-in library of `tests/nvml`, which the C compiler builds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polymeter_proto::catalogue;
use polymeter_proto::series::Number;

use crate::cgroups::{JobCgroups, Mounts};
use crate::clock;
use crate::sources::nvidia::driver::Driver;
use crate::sources::reader_thread::{FinishedRead, ThreadedSource};
use crate::sources::{Opened, Outcome, ReadBuffer, Reading, Source, SourceFactory, Target, Unavailable};

/// Longest wait for something that must happen: a deadlock becomes a failure.
const PATIENCE_NS: u64 = 120_000_000_000;

fn library() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &BUILT.get_or_init(|| build(&[])).1
}

fn build(options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libnvidia-ml.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml/stand_in.c");
    let mut cc = Command::new("cc");
    let cc = cc.args(["-shared", "-fPIC", "-o"]).arg(&library).args(options).arg(source).status();
    assert!(cc.unwrap().success());
    (directory, library)
}

pub(super) struct Machine {
    pub(super) root: tempfile::TempDir,
    text: BTreeMap<String, String>,
}

impl Machine {
    pub(super) fn without_library() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), "").unwrap();
        fs::create_dir_all(root.path().join("usr/lib64")).unwrap();
        Self { root, text: BTreeMap::new() }
    }

    pub(super) fn new(text: &[(&str, &str)]) -> Self {
        let mut machine = Self::without_library();
        machine.set(text);
        machine.install();
        machine
    }

    /// Lists its GPUs, and those of jobs, a hundred times as often as others do.
    pub(super) fn hurried(self) -> Self {
        Driver::with_step(self.root.path(), Duration::from_millis(10));
        self
    }

    /// Machine with a library of driver 470.
    pub(super) fn with_older_driver(text: &[(&str, &str)]) -> Self {
        let mut machine = Self::without_library();
        machine.set(text);
        let (_directory, library) = build(&["-DDRIVER_470"]);
        fs::copy(library, machine.root.path().join("usr/lib64/libnvidia-ml.so.1")).unwrap();
        machine
    }

    pub(super) fn install(&self) {
        fs::copy(library(), self.root.path().join("usr/lib64/libnvidia-ml.so.1")).unwrap();
    }

    pub(super) fn has_hanging_call(&self) -> bool {
        self.root.path().join("usr/lib64/hangs").exists()
    }

    pub(super) fn forget_hanging_calls(&self) {
        fs::remove_file(self.root.path().join("usr/lib64/hangs")).unwrap();
    }

    /// Changes answers of the library; an empty text removes one.
    pub(super) fn set(&mut self, text: &[(&str, &str)]) {
        for (key, value) in text {
            self.text.insert((*key).to_owned(), (*value).to_owned());
        }
        self.text.retain(|_, value| !value.is_empty());
        let lines: String = self.text.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
        let directory = self.root.path().join("usr/lib64");
        fs::write(directory.join("new"), lines).unwrap();
        fs::rename(directory.join("new"), directory.join("nvml.txt")).unwrap();
        // Values that were just read are passed on to other readers.
        clock::sleep(Duration::from_millis(10));
    }

    pub(super) fn open(&self, selectors: &[&str]) -> Sources {
        self.open_target(&Target::Node(Arc::default()), None, selectors)
    }

    pub(super) fn add_job(&self, name: &str, pid: u32, environment: &[&str]) -> Target {
        let cgroup = self.root.path().join("cgroup").join(name);
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(cgroup.join("cgroup.procs"), format!("{pid}\n")).unwrap();
        let process = self.root.path().join("proc").join(pid.to_string());
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("environ"), environment.join("\0")).unwrap();
        Target::Cgroups(JobCgroups { v2: Some(cgroup), ..JobCgroups::default() })
    }

    pub(super) fn open_target(
        &self,
        target: &Target,
        gpu_devices: Option<&str>,
        selectors: &[&str],
    ) -> Sources {
        let mounts = Mounts::read(self.root.path()).unwrap();
        let factory = SourceFactory { gpu_devices, ..SourceFactory::of(&mounts) };
        let definitions: Vec<_> =
            selectors.iter().flat_map(|selector| catalogue::select(&selector.parse().unwrap())).collect();
        let (opened, unavailable) = factory.open(target, &definitions);
        Sources { opened, unavailable }
    }

    /// Opens sources when the driver has listed its GPUs, or has failed to.
    pub(super) fn open_when_listed(&self, selectors: &[&str]) -> Sources {
        let mut sources = self.open(selectors);
        wait_until("answer of the driver", || {
            let pending = "the NVIDIA driver has not answered yet";
            let is_pending = sources.unavailable.iter().any(|unavailable| unavailable.reason == pending);
            if is_pending {
                sources = self.open(selectors);
            }
            !is_pending
        });
        sources
    }
}

pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until_ns = clock::monotonic_ns() + PATIENCE_NS;
    while !is_so() {
        assert!(clock::monotonic_ns() < until_ns, "no {what}");
        clock::sleep(Duration::from_millis(2));
    }
}

pub(super) struct Sources {
    pub(super) opened: Vec<Opened>,
    pub(super) unavailable: Vec<Unavailable>,
}

impl Sources {
    pub(super) fn threaded(&self, name: &str) -> &ThreadedSource {
        let opened = self.opened.iter().find(|opened| opened.name == name);
        let opened = opened.unwrap_or_else(|| panic!("no {name} among {:?}", self.names()));
        let Source::Threaded(source) = &opened.source else { panic!("{opened:?}") };
        source
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.opened.iter().map(|opened| opened.name.as_str()).collect()
    }

    pub(super) fn request(&self, name: &str) {
        let source = self.threaded(name);
        let reading = Reading::absent(source.slots().len());
        assert!(source.request(reading, None, &Arc::default()).is_ok(), "a read of {name} is under way");
    }

    /// Waits for a requested read. Returns its values by their series.
    pub(super) fn finish(&self, name: &str) -> (Outcome, BTreeMap<String, f64>) {
        let source = self.threaded(name);
        let mut finished: Option<FinishedRead> = None;
        wait_until("end of the read", || {
            finished = source.take_finished();
            finished.is_some()
        });
        let FinishedRead { reading, outcome, .. } = finished.unwrap();
        let values = source.slots().iter().zip(reading.iter()).filter_map(|(slot, bits)| {
            let number: Number = slot.definition.metric.number;
            Some((format!("{}{{{}}}", slot.definition.name(), slot.labels), number.to_f64(bits?)))
        });
        (outcome, values.collect())
    }

    pub(super) fn read(&self, name: &str) -> (Outcome, BTreeMap<String, f64>) {
        self.request(name);
        self.finish(name)
    }

    pub(super) fn wait_for_change(&mut self) {
        let watch = self.opened.iter_mut().find(|opened| opened.name == "nvidia").unwrap();
        assert!(watch.source.slots().is_empty());
        let (mut buffer, mut reading) = (ReadBuffer::default(), Reading::default());
        wait_until("change", || watch.source.read(&mut buffer, &mut reading) == Outcome::Changed);
    }

    pub(super) fn reasons(&self) -> BTreeSet<&str> {
        self.unavailable.iter().map(|unavailable| unavailable.reason.as_str()).collect()
    }
}
