//! Targets, and the sources that were opened for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::series::{Device, Labels, Role};

use super::finder::Finder;
use super::slot::Slot;
use super::source::Source;
use crate::cgroups::{JobCgroups, Step};
use crate::counters::Counters;

/// An object whose sources are opened.
#[derive(Debug, Clone)]
pub enum Target {
    /// A job with cgroups, or a step or task of one.
    Cgroups(JobCgroups),
    /// A job that is a process and its descendants.
    Processes(u32),
    /// The node and the agent itself.
    Node(Arc<Counters>),
}

/// An open source with its name.
#[derive(Debug)]
pub struct Opened {
    /// The name: `v1/memory.stat`, `perf/0`, `processes`, `agent`. That of a step or task is preceded by the
    /// step's name.
    pub name: String,
    pub source: Source,
    /// The step or task of the source; none for the whole target.
    pub step: Option<Arc<Step>>,
    /// The finder of cgroups or processes that must be read with it, if it is a sum over them.
    pub below: Option<Finder>,
    /// The devices that its slots are of.
    pub devices: Devices,
}

/// What the kernel tells about the devices that the slots of a source are of.
#[derive(Debug, Default)]
pub struct Devices {
    /// Their roles, by the positions of the slots.
    pub roles: Vec<(usize, Role)>,
    /// The names in series of the network interfaces that have other names now.
    pub renamed: BTreeMap<String, String>,
}

impl Devices {
    /// Returns a slot with the name that its device has in series; none if that is its name now.
    pub(crate) fn in_series(&self, slot: &Slot) -> Option<Slot> {
        let Some(Device::Interface(now)) = Device::of(slot.definition.metric.name, &slot.labels) else {
            return None;
        };
        let first = self.renamed.get(now)?;
        let name = |(key, value): &(String, String)| {
            (key.clone(), if key == Device::INTERFACE { first.clone() } else { value.clone() })
        };
        let labels = Labels::new(slot.labels.pairs().iter().map(name).collect()).ok()?;
        Some(Slot { definition: slot.definition.clone(), labels })
    }
}
