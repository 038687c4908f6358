//! Targets, and the sources that were opened for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::series::{Device, Labels, Role};

use super::finder::Finder;
use super::slot::Slot;
use super::source::Source;
use crate::cgroups::{JobCgroups, Step};
use crate::counters::Counters;

#[derive(Debug, Clone)]
pub enum Target {
    /// A job with cgroups, or a step or task of one.
    Cgroups(JobCgroups),
    /// A job that is a process and its descendants.
    Processes(u32),
    Node(Arc<Counters>),
}

#[derive(Debug)]
pub struct Opened {
    /// `v1/memory.stat`, `perf/0`, `processes`, `agent`; preceded by the name of a step or task.
    pub name: String,
    pub source: Source,
    /// `None` for the whole target.
    pub step: Option<Arc<Step>>,
    /// Finds cgroups or processes that must be read with it, if it is a sum over them.
    pub below: Option<Finder>,
    pub devices: Devices,
}

/// What the kernel tells about the devices of a source's slots.
#[derive(Debug, Default)]
pub struct Devices {
    /// Grouped by the positions of the slots.
    pub roles: Vec<(usize, Role)>,
    /// Names in series of network interfaces that were renamed.
    pub renamed: BTreeMap<String, String>,
}

impl Devices {
    /// A slot with the name that its device has in series; `None` if that is its name now.
    pub(crate) fn in_series(&self, slot: &Slot) -> Option<Slot> {
        let Some(Device::Interface(now)) = Device::of(slot.definition.metric.name, &slot.labels) else {
            return None;
        };
        let first = self.renamed.get(now)?;
        let pairs = slot.labels.iter().map(|(key, value)| {
            (key.to_owned(), if key == Device::INTERFACE { first.clone() } else { value.to_owned() })
        });
        let labels = Labels::new(pairs.collect()).ok()?;
        Some(Slot { definition: slot.definition.clone(), labels })
    }
}
