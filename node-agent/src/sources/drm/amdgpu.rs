//! Energy and throttling of AMD's GPUs, from the binary file `gpu_metrics` of amdgpu. A read asks the
//! firmware.

use std::fs::File;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;
use rustix::io::{Errno, pread};

use super::amdgpu_table::{self, REASONS, Table};
use super::devices;
use crate::sources::custom_source::CustomSource;
use crate::sources::kind::{Lane, OpenRequest, Opening, SourceKind};
use crate::sources::outcome::Outcome;
use crate::sources::path_pattern::PatternWatch;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use crate::sources::source::Source;
use crate::sources::target::Target;

const KIND: &str = "amdgpu";

/// Files, below `/sys`.
const PATTERN: &str = "class/drm/card*/device/gpu_metrics";

/// Largest table, in bytes: the kernel shows a page at most.
const TABLE_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Energy,
    /// True if one of these bits is set.
    Throttled(u64),
}

pub(in crate::sources) struct AmdgpuKind;

impl SourceKind for AmdgpuKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        vec!["energy", "throttled"]
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if !matches!(request.target, Target::Node(_)) {
            return;
        }
        let sys = request.host.mounts.sys();
        let cards = devices::cards(&sys).into_iter().filter(|card| card.device.join("gpu_metrics").exists());
        let mut is_any = false;
        for card in cards {
            let slots = slots(&request.wanted, &card.labels);
            if !slots.is_empty() {
                is_any = true;
                let source = AmdgpuSource::new(&card.device.join("gpu_metrics"), slots);
                opening.push_custom(format!("{KIND}/{}", card.name), Box::new(source));
            }
        }
        if !is_any {
            opening.unavailable_all(&request.wanted, "this node has no GPU of amdgpu with `gpu_metrics`");
        }
        let watch = PatternWatch::new(&sys, [PATTERN].into());
        opening.push(KIND.to_owned(), Source::Custom(Box::new(watch)));
    }
}

fn slots(wanted: &[Definition], labels: &[(String, String)]) -> Vec<(Slot, Quantity)> {
    let mut slots = Vec::new();
    for definition in wanted {
        let quantities = match definition.metric.field_of(KIND) {
            Some("energy") => vec![(None, Quantity::Energy)],
            Some("throttled") => {
                REASONS.iter().map(|(reason, bits)| (Some(*reason), Quantity::Throttled(*bits))).collect()
            }
            Some(_) | None => Vec::new(),
        };
        for (reason, quantity) in quantities {
            let reason = reason.map(|reason| ("reason".to_owned(), reason.to_owned()));
            let labels = Labels::escaped(labels.iter().cloned().chain(reason).collect()).unwrap_or_default();
            slots.push((Slot { definition: definition.clone(), labels }, quantity));
        }
    }
    slots
}

#[derive(Debug)]
struct AmdgpuSource {
    path: PathBuf,
    /// Opened at the first read, because opening may block, too.
    file: Option<File>,
    slots: Vec<Slot>,
    quantities: Vec<Quantity>,
}

impl AmdgpuSource {
    fn new(path: &Path, slots: Vec<(Slot, Quantity)>) -> Self {
        let (slots, quantities) = slots.into_iter().unzip();
        Self { path: path.to_owned(), file: None, slots, quantities }
    }

    fn read_table(&mut self) -> Result<Table, Errno> {
        if self.file.is_none() {
            let errno =
                |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
            self.file = Some(File::open(&self.path).map_err(errno)?);
        }
        let Some(file) = &self.file else { return Err(Errno::IO) };
        let mut bytes = vec![0; TABLE_BYTES];
        let len = pread(file, &mut bytes, 0)?;
        Ok(amdgpu_table::parse(bytes.get(..len).unwrap_or_default()))
    }
}

impl CustomSource for AmdgpuSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let table = match self.read_table() {
            Ok(table) => table,
            Err(errno) => {
                self.file = None;
                return Outcome::of_error(errno);
            }
        };
        for (slot, quantity) in (0..).zip(&self.quantities) {
            let bits = match quantity {
                Quantity::Energy => table.energy.map(f64::to_bits),
                Quantity::Throttled(mask) => table.throttled.map(|bits| u64::from(bits & mask != 0)),
            };
            match bits {
                Some(bits) => reading.set(slot, bits),
                // The revision of this GPU does not have it.
                None => reading.set_lacking(slot),
            }
        }
        Outcome::Read
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use polymeter_proto::catalogue;

    use super::super::amdgpu_table::tests::table;
    use super::*;
    use crate::cgroups::Mounts;
    use crate::counters::Counters;
    use crate::sources::kind::SourceFactory;

    #[test]
    fn each_gpu_of_amdgpu_is_a_source() {
        let root = tempfile::tempdir().unwrap();
        let drm = root.path().join("sys/class/drm");
        for (card, unique_id) in [(0, "c0b0fd34e1b21f4d\n"), (1, "")] {
            let device = drm.join(format!("card{card}/device"));
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("unique_id"), unique_id).unwrap();
            fs::write(device.join("gpu_metrics"), table(4, 288, &[(24, 1 << 17)])).unwrap();
        }
        fs::create_dir_all(drm.join("card2/device")).unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), "").unwrap();
        let mounts = Mounts::read(root.path()).unwrap();
        let wanted = catalogue::select(&"node.gpu.amd.*".parse().unwrap());
        let open = || SourceFactory::of(&mounts).open(&Target::Node(Arc::new(Counters::default())), &wanted);
        let (opened, unavailable) = open();
        assert_eq!(unavailable, []);
        let names: Vec<&str> = opened.iter().map(|opened| opened.name.as_str()).collect();
        assert_eq!(names, ["amdgpu/card0", "amdgpu/card1", "amdgpu"]);
        let labels: Vec<String> =
            opened[0].source.slots().iter().map(|slot| slot.labels.to_string()).collect();
        assert_eq!(labels[0], "gpu=0,uuid=c0b0fd34e1b21f4d");
        assert_eq!(labels[4], "gpu=0,reason=other,uuid=c0b0fd34e1b21f4d");
        fs::remove_dir_all(drm).unwrap();
        assert_eq!((open().0.len(), open().1.len()), (1, 2));
    }

    /// Outcome, values, and number of lacking ones.
    fn read(path: &Path, wanted: &[Definition]) -> (Outcome, Vec<Option<u64>>, usize) {
        let mut source = AmdgpuSource::new(path, slots(wanted, &[]));
        let mut reading = Reading::absent(source.slots.len());
        let outcome = source.read(&mut reading);
        let lacking = (0..5).filter(|slot| reading.is_lacking(*slot)).count();
        (outcome, reading.iter().collect(), lacking)
    }

    #[test]
    fn quantities_that_a_revision_does_not_have_are_lacking() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gpu_metrics");
        let wanted = catalogue::select(&"node.gpu.amd.*".parse().unwrap());
        assert_eq!(read(&path, &wanted).0, Outcome::Gone);
        fs::write(&path, table(3, 120, &[(24, 1 << 16), (112, 1 << 36)])).unwrap();
        let energy = Some(1.0_f64.to_bits());
        assert_eq!(
            read(&path, &wanted),
            (Outcome::Read, vec![energy, Some(0), Some(0), Some(1), Some(0)], 0)
        );
        fs::write(&path, table(5, 352, &[(88, 1 << 16)])).unwrap();
        assert_eq!(read(&path, &wanted), (Outcome::Read, vec![energy, None, None, None, None], 4));
        fs::write(&path, "x").unwrap();
        assert_eq!(read(&path, &wanted).2, 5);
    }
}
