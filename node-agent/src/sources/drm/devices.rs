//! The GPUs of the node whose drivers may show the use by processes, and their labels.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::kernel_text;

/// The devices of all drivers of GPUs that render or compute, below `/sys`. Management controllers have none.
pub(super) const PATTERN: &str = "class/drm/renderD*";

/// The driver that shows nothing there; its library does.
const OTHER_DRIVER: &str = "nvidia";

/// Returns true if the node has such a GPU.
pub(super) fn exist(sys: &Path) -> bool {
    let is_of_other = |name: &String| {
        let driver = fs::read_link(sys.join("class/drm").join(name).join("device/driver"));
        driver.is_ok_and(|driver| driver.ends_with(OTHER_DRIVER))
    };
    names(sys).iter().any(|name| name.starts_with("renderD") && !is_of_other(name))
}

/// A GPU with a card.
#[derive(Debug)]
pub(super) struct Card {
    /// The name: `card0`.
    pub(super) name: String,
    /// The directory of the device.
    pub(super) device: PathBuf,
    /// The labels of its series: the number of the card, and the number of the chip that amdgpu states.
    pub(super) labels: Vec<(String, String)>,
}

/// Returns the GPUs with a card, in the order of their names.
pub(super) fn cards(sys: &Path) -> Vec<Card> {
    let mut cards = Vec::new();
    for name in names(sys) {
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

/// Returns the labels of each GPU by its PCI address.
pub(super) fn labels(sys: &Path) -> BTreeMap<String, Vec<(String, String)>> {
    let mut labels = BTreeMap::new();
    for card in cards(sys) {
        let address = fs::read_link(&card.device).ok();
        let address = address.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        if let Some(address) = address {
            labels.entry(address.to_owned()).or_insert(card.labels);
        }
    }
    labels
}

/// Returns the names of the cards, render devices and connectors, sorted.
fn names(sys: &Path) -> Vec<String> {
    let entries = fs::read_dir(sys.join("class/drm")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}
