//! Kind of devices outside the nodes.

use std::sync::Arc;

use polymeter_proto::catalogue::{self, DEVICE_KIND, Definition};
use polymeter_proto::series::Identifier;

use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outside::{Device, DeviceSource, OutsideDevices};
use super::slot::{Unavailable, runs};
use super::target::{Opened, Target};

pub(super) struct OutsideKind;

impl SourceKind for OutsideKind {
    fn name(&self) -> &'static str {
        DEVICE_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        vec!["value"]
    }

    /// Opens the devices of single metrics for a trial. [`OutsideDevices::open`] opens those that are
    /// sampled.
    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let (Target::Node(_), Some(devices)) = (request.target, request.host.outside) else {
            opening.unavailable_all(&request.wanted, "the configuration names no [[device]]");
            return;
        };
        let lacking: Vec<Definition> = devices.lacking(&request.wanted).cloned().collect();
        opening.unavailable_all(&lacking, OutsideDevices::LACKING);
        for device in devices.iter() {
            let prefix = format!("{}.", device.settings.word);
            let instances = || request.wanted.iter().filter_map(|definition| definition.instance.as_ref());
            if instances().any(|instance| instance.starts_with(&prefix)) {
                open_device(device, opening);
            }
        }
    }
}

impl OutsideDevices {
    /// Why a metric has no source that no device has.
    pub(crate) const LACKING: &str = "no [[device]] of the configuration has it";

    /// Name of the source of a device.
    pub(crate) fn source_name(device: &Identifier) -> String {
        format!("{DEVICE_KIND}/{device}")
    }

    /// Opens the source of a device, and says what it lacks. Returns neither for one that was removed.
    pub(crate) fn open(&self, device: &Identifier) -> (Vec<Opened>, Vec<Unavailable>) {
        let mut opening = Opening::of_slow_lane();
        if let Some(device) = self.get(device) {
            open_device(device, &mut opening);
        }
        opening.finish()
    }
}

fn open_device(device: &Arc<Device>, opening: &mut Opening<'_>) {
    let known = device.known();
    let name = OutsideDevices::source_name(&device.settings.name);
    opening.push_custom(name, Box::new(DeviceSource::new(device, known.clone())));
    let has = |name: &str| runs(&known.slots).any(|run| run.definition.name() == name);
    for metric in &device.settings.metrics {
        let name = device.settings.metric_name(metric);
        if has(&name) {
            continue;
        }
        if let Some(definition) = catalogue::find(&name) {
            let reason = known.missing.as_deref().unwrap_or("the device lacks it");
            opening.unavailable(definition, format!("{}: {reason}", device.settings.name));
        }
    }
}
