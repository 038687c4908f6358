//! Kind of devices outside the nodes.

use std::sync::Arc;

use polymeter_proto::catalogue::{self, DEVICE_KIND, Definition};

use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outside::{Device, DeviceSource, DevicesWatch};
use super::source::Source;
use super::target::Target;

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

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let (Target::Node(_), Some(devices)) = (request.target, request.host.outside) else {
            opening.unavailable_all(&request.wanted, "the configuration names no [[device]]");
            return;
        };
        let changes = devices.changes();
        let mut left: Vec<Definition> = request.wanted.clone();
        for device in devices.iter() {
            let prefix = format!("{}.", device.settings.word);
            let is_of_device = |definition: &Definition| {
                definition.instance.as_ref().is_none_or(|instance| instance.starts_with(&prefix))
            };
            if request.wanted.iter().any(is_of_device) {
                open_device(device, opening, &mut left);
            }
        }
        left.retain(|definition| !definition.is_family());
        opening.unavailable_all(&left, "no [[device]] of the configuration has it");
        opening.push(DEVICE_KIND.to_owned(), Source::Custom(Box::new(DevicesWatch::new(changes))));
    }
}

/// Opens the source of a device. Takes what is wanted of it from `left`.
fn open_device(device: &Arc<Device>, opening: &mut Opening<'_>, left: &mut Vec<Definition>) {
    let known = device.known();
    let name = format!("{DEVICE_KIND}/{}", device.settings.name);
    opening.push_custom(name, Box::new(DeviceSource::new(device, known.clone())));
    for metric in &device.settings.metrics {
        let name = device.settings.metric_name(metric);
        left.retain(|definition| definition.name() != name);
        if known.slots.iter().any(|slot| slot.definition.name() == name) {
            continue;
        }
        if let Some(definition) = catalogue::find(&name) {
            let reason = known.missing.as_deref().unwrap_or("the device lacks it");
            opening.unavailable(definition, format!("{}: {reason}", device.settings.name));
        }
    }
}
