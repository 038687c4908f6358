//! GPUs of amdkfd's topology, and the labels of their series.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use polymeter_proto::series::Labels;

use super::super::devices;
use super::files::{DIRECTORY, number, render_minor};
use crate::sources::kernel_text;

/// Nodes of the topology, below `/sys`.
pub(super) const NODES: &str = "class/kfd/kfd/topology/nodes/*";

pub(super) fn gpus(sys: &Path) -> Vec<(u32, Labels)> {
    let labels = devices::labels(sys);
    let nodes = fs::read_dir(sys.join(DIRECTORY).join("topology/nodes")).into_iter().flatten().flatten();
    let mut gpus: Vec<(u32, Labels)> = nodes.filter_map(|node| gpu(sys, &node.path(), &labels)).collect();
    gpus.sort_by_key(|(id, _)| *id);
    gpus
}

/// Id and labels of the GPU of a node; `None` if it is another device.
fn gpu(sys: &Path, node: &Path, labels: &BTreeMap<String, Vec<(String, String)>>) -> Option<(u32, Labels)> {
    // A CPU has the id 0, and one that may not be used has none.
    let id: u32 = number(&node.join("gpu_id")).ok()??.try_into().ok().filter(|id| *id > 0)?;
    let properties = kernel_text::text(&node.join("properties")).unwrap_or_default();
    let minor = render_minor(&properties)?;
    let device = fs::read_link(sys.join(format!("class/drm/renderD{minor}/device"))).ok();
    let address = device.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    // A GPU without a card is named by its id.
    let pairs = address
        .and_then(|address| labels.get(address))
        .cloned()
        .unwrap_or_else(|| vec![("gpu".to_owned(), id.to_string())]);
    Some((id, Labels::escaped(pairs).unwrap_or_default()))
}
