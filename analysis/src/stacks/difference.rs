//! Difference of two trees: of two times, processes, nodes or jobs.

use std::collections::BTreeMap;

use super::functions::functions;
use super::stack_names::Function;
use super::tree::{Tree, Weight};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    pub before: Weight,
    pub after: Weight,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FunctionChange {
    pub own: Change,
    /// Change with what the function called.
    pub total: Change,
}

#[derive(Debug)]
pub struct Difference {
    /// Stacks of both trees, with the sums of their samples.
    pub tree: Tree,
    /// Samples of each node of the tree, in the function and in what it called.
    pub changes: Vec<Change>,
    pub total: Change,
    pub functions: BTreeMap<Function, FunctionChange>,
}

impl Difference {
    pub fn of(before: &Tree, after: &Tree) -> Self {
        let mut tree = Tree::default();
        let (of_before, of_after) = (tree.merge(before), tree.merge(after));
        tree.add_up();
        let mut changes = vec![Change::default(); tree.nodes().len()];
        for (number, node) in of_before.into_iter().zip(before.nodes()) {
            changes.get_mut(number).into_iter().for_each(|change| change.before += node.total);
        }
        for (number, node) in of_after.into_iter().zip(after.nodes()) {
            changes.get_mut(number).into_iter().for_each(|change| change.after += node.total);
        }
        let mut by_function: BTreeMap<Function, FunctionChange> = BTreeMap::new();
        for time in functions(before) {
            let change = by_function.entry(time.function.clone()).or_default();
            (change.own.before, change.total.before) = (time.own, time.total);
        }
        for time in functions(after) {
            let change = by_function.entry(time.function.clone()).or_default();
            (change.own.after, change.total.after) = (time.own, time.total);
        }
        let total = Change { before: before.total(), after: after.total() };
        Self { tree, changes, total, functions: by_function }
    }
}

impl Change {
    /// Change of the share of all samples, from -1 to 1. `total` are the samples of both trees.
    pub fn of_share(self, total: Self) -> f64 {
        self.after.share_of(total.after) - self.before.share_of(total.before)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stacks::tree::tests::{paths, tree};

    proptest! {
        #[test]
        fn each_path_and_function_has_its_time_in_both_trees(one in paths(), other in paths()) {
            let (before, after) = (tree(&one), tree(&other));
            let difference = Difference::of(&before, &after);
            for (number, change) in difference.changes.iter().enumerate() {
                let path: Vec<Function> = difference.tree.path(number).into_iter().cloned().collect();
                let sum = |paths: &[(Vec<Function>, Weight)]| -> u64 {
                    let of_path = paths.iter().filter(|(stack, _)| stack.starts_with(&path));
                    of_path.map(|(_, weight)| weight.time_us).sum()
                };
                prop_assert_eq!((change.before.time_us, change.after.time_us), (sum(&one), sum(&other)));
            }
            for (function, change) in &difference.functions {
                let own = |paths: &[(Vec<Function>, Weight)]| -> u64 {
                    let of_one = paths.iter().filter(|(stack, _)| stack.last() == Some(function));
                    of_one.map(|(_, weight)| weight.time_us).sum()
                };
                prop_assert_eq!((change.own.before.time_us, change.own.after.time_us), (own(&one), own(&other)));
            }
            let same = Difference::of(&before, &before);
            prop_assert!(same.changes.iter().all(|change| change.of_share(same.total) == 0.0));
        }
    }
}
