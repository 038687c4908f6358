//! Data of the flame graph of a page: `page/assets/shared/flame.js` draws it.

use std::collections::HashMap;

use polymeter_service::safe_text::printable;
use serde_json::{Value, json};

use super::difference::Difference;
use super::tree::Tree;

/// Functions that take less than this share of the time are not drawn: less than a tenth of a pixel of a
/// screen.
const SHARE_MIN: f64 = 1e-5;

/// Functions of a graph, each about 40 bytes of the page.
const NODES_MAX: usize = 50_000;

/// Returns the names of functions and modules, and the nodes of a tree: for each the position of its caller
/// or -1, of its function, and the times of itself and in all, in microseconds. With a difference the nodes
/// are those of its tree, and have the times in all of both trees as well.
pub fn page_data(tree: &Tree, difference: Option<&Difference>) -> Value {
    let tree = difference.map_or(tree, |difference| &difference.tree);
    let least_us = tree.total().share_us(SHARE_MIN);
    let mut kept: Vec<usize> = (0..tree.nodes().len())
        .filter(|number| tree.nodes().get(*number).is_some_and(|node| node.total.time_us > least_us))
        .collect();
    if kept.len() > NODES_MAX {
        // A caller has at least the time of what it calls, and precedes it.
        kept.sort_by_key(|number| {
            std::cmp::Reverse(tree.nodes().get(*number).map(|node| node.total.time_us))
        });
        kept.truncate(NODES_MAX);
        kept.sort_unstable();
    }
    let mut positions = vec![None; tree.nodes().len()];
    let (mut functions, mut function_positions) = (Vec::new(), HashMap::new());
    let mut nodes = Vec::with_capacity(kept.len());
    for number in kept {
        let Some(node) = tree.nodes().get(number) else { continue };
        let parent = node.parent.map(|parent| positions.get(parent).copied().flatten());
        let parent: i64 = match parent {
            None => -1,
            Some(Some(position)) => position,
            // Its caller has the same time, and was left out.
            Some(None) => continue,
        };
        if let Some(position) = positions.get_mut(number) {
            *position = i64::try_from(nodes.len()).ok();
        }
        let new = functions.len();
        let function = *function_positions.entry(node.function).or_insert(new);
        if function == new {
            let function = tree.function(node);
            functions.push(json!([printable(&function.label()), printable(&function.module)]));
        }
        let change = difference.and_then(|difference| difference.changes.get(number));
        nodes.push(match change {
            None => json!([parent, function, node.own.time_us, node.total.time_us]),
            Some(change) => json!([
                parent,
                function,
                node.own.time_us,
                node.total.time_us,
                change.before.time_us,
                change.after.time_us
            ]),
        });
    }
    let totals = difference.map(|of| [of.total.before.time_us, of.total.after.time_us]);
    json!({"functions": functions, "nodes": nodes, "total_us": tree.total().time_us, "compared_us": totals})
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stacks::tree::tests::{paths, tree};

    proptest! {
        #[test]
        fn each_node_follows_its_caller(paths in paths()) {
            let tree = tree(&paths);
            let data = page_data(&tree, None);
            let nodes = data["nodes"].as_array().unwrap();
            for (position, node) in nodes.iter().enumerate() {
                let parent = node[0].as_i64().unwrap();
                prop_assert!(parent < i64::try_from(position).unwrap());
            }
            let with_time = tree.nodes().iter().filter(|node| node.total.time_us > 0).count();
            prop_assert_eq!(nodes.len(), with_time);
            let own: u64 = nodes.iter().map(|node| node[2].as_u64().unwrap()).sum();
            prop_assert_eq!(own, tree.total().time_us);
            let compared = page_data(&tree, Some(&Difference::of(&tree, &tree)));
            prop_assert_eq!(&compared["compared_us"][0], &data["total_us"]);
            prop_assert_eq!(compared["nodes"].as_array().unwrap().len(), nodes.len());
        }
    }
}
