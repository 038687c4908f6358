//! GPUs of the node whose drivers may show the use by processes, and their labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::devices::names;
use crate::sources::gpu_list::numbers_of;
use crate::sources::kernel_text;

/// Devices of all drivers of GPUs that render or compute, below `/sys`. Management controllers have none.
pub(super) const PATTERN: &str = "class/drm/renderD*";

/// Driver that shows nothing there; its library does.
const OTHER_DRIVER: &str = "nvidia";

const FIRST_RENDER_MINOR: u32 = 128;

fn is_of_other_driver(sys: &Path, name: &str) -> bool {
    let driver = fs::read_link(sys.join("class/drm").join(name).join("device/driver"));
    driver.is_ok_and(|driver| driver.ends_with(OTHER_DRIVER))
}

pub(super) fn exist(sys: &Path) -> bool {
    names(&sys.join("class/drm"))
        .iter()
        .any(|name| name.starts_with("renderD") && !is_of_other_driver(sys, name))
}

/// PCI addresses of the GPUs in a scheduler's list, such as `0,2-3` or `GPU-c0b0fd34e1b21f4d`. A number is a
/// minor number, or a place in the order of the minor numbers of render devices. If the node has GPUs of the
/// other driver, too, a place may mean one of those, and names none.
pub(super) fn named(sys: &Path, list: &str) -> BTreeSet<String> {
    let mut minors: Vec<u32> = names(&sys.join("class/drm"))
        .iter()
        .filter_map(|name| name.strip_prefix("renderD")?.parse().ok())
        .collect();
    minors.sort_unstable();
    let is_of_other = |minor: &u32| is_of_other_driver(sys, &format!("renderD{minor}"));
    let have_places = !minors.iter().any(is_of_other);
    let by_uuid = labels(sys);
    let mut named = BTreeSet::new();
    for item in list.split(',').map(str::trim) {
        if let Some(uuid) = item.strip_prefix("GPU-") {
            let is_named =
                |(key, value): &(String, String)| key == "uuid" && value.eq_ignore_ascii_case(uuid);
            let of_uuid = by_uuid.iter().filter(|(_, labels)| labels.iter().any(is_named));
            named.extend(of_uuid.map(|(address, _)| address.clone()));
        }
        let Some(numbers) = numbers_of(item) else { continue };
        for (place, minor) in (0..FIRST_RENDER_MINOR).zip(&minors) {
            let is_named = numbers.contains(minor) || have_places && numbers.contains(&place);
            if is_named && !is_of_other(minor) {
                named.extend(address(&sys.join(format!("class/drm/renderD{minor}/device"))));
            }
        }
    }
    named
}

fn address(device: &Path) -> Option<String> {
    Some(fs::read_link(device).ok()?.file_name()?.to_str()?.to_owned())
}

#[derive(Debug)]
pub(super) struct Card {
    /// `card0`.
    pub(super) name: String,
    pub(super) device: PathBuf,
    /// Labels of its series: the number of the card, and the number of the chip that amdgpu states.
    pub(super) labels: Vec<(String, String)>,
}

pub(super) fn cards(sys: &Path) -> Vec<Card> {
    let mut cards = Vec::new();
    for name in names(&sys.join("class/drm")) {
        // `card0-DP-1` is a connector.
        let number = name.strip_prefix("card");
        let Some(number) = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())) else {
            continue;
        };
        let device = sys.join("class/drm").join(&name).join("device");
        let mut labels = vec![("gpu".to_owned(), number.to_owned())];
        let uuid = kernel_text::text(&device.join("unique_id")).unwrap_or_default();
        let uuid = Some(uuid.trim().to_owned()).filter(|uuid| !uuid.is_empty());
        labels.extend(uuid.map(|uuid| ("uuid".to_owned(), uuid)));
        cards.push(Card { name, device, labels });
    }
    cards
}

pub(super) fn labels(sys: &Path) -> BTreeMap<String, Vec<(String, String)>> {
    let mut labels = BTreeMap::new();
    for card in cards(sys) {
        if let Some(address) = address(&card.device) {
            labels.entry(address).or_insert(card.labels);
        }
    }
    labels
}
