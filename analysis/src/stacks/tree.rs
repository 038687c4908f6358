//! A tree of functions, merged from stacks.

use std::collections::HashMap;
use std::ops::AddAssign;

use polymeter_proto::units;

use super::stack_names::{Function, Stacks};

/// Samples, and the time that they stand for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    pub samples: u64,
    pub time_us: u64,
}

impl Weight {
    pub fn share_of(self, all: Self) -> f64 {
        if all.time_us == 0 { 0.0 } else { units::to_f64(self.time_us) / units::to_f64(all.time_us) }
    }

    pub(super) fn share_us(self, share: f64) -> u64 {
        units::whole(units::to_f64(self.time_us) * share)
    }

    pub fn seconds(self) -> f64 {
        units::to_f64(self.time_us) / 1e6
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.time_us = self.time_us.saturating_add(other.time_us);
    }
}

/// Function with the functions that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Place in [`Tree::functions`].
    pub function: usize,
    /// Place of the caller in [`Tree::nodes`], which is smaller; none for an outermost function.
    pub parent: Option<usize>,
    pub own: Weight,
    /// Time in the function and in what it called.
    pub total: Weight,
}

#[derive(Debug, Clone, Default)]
pub struct Tree {
    functions: Vec<Function>,
    nodes: Vec<Node>,
    by_function: HashMap<Function, usize>,
    children: HashMap<(Option<usize>, usize), usize>,
}

impl Tree {
    /// Merges stacks by their ids. A stack that is not known is a function without symbol.
    pub fn of(stacks: &Stacks, weights: impl IntoIterator<Item = (i64, Weight)>) -> Self {
        let unknown = Function::default();
        let paths = weights
            .into_iter()
            .map(|(stack_id, weight)| (stacks.path(stack_id).unwrap_or_else(|| vec![&unknown]), weight));
        Self::of_paths(paths)
    }

    /// Merges stacks, each as its functions from the outermost to the innermost.
    pub fn of_paths<'a>(paths: impl IntoIterator<Item = (Vec<&'a Function>, Weight)>) -> Self {
        let mut tree = Self::default();
        for (path, weight) in paths {
            tree.add(&path, weight);
        }
        tree.add_up();
        tree
    }

    fn add(&mut self, path: &[&Function], weight: Weight) {
        let mut innermost = None;
        for function in path {
            innermost = Some(self.callee(innermost, function));
        }
        if let Some(node) = innermost.and_then(|node| self.nodes.get_mut(node)) {
            node.own += weight;
        }
    }

    /// Place of the node of a function that a node calls. It is added if it is missing.
    fn callee(&mut self, parent: Option<usize>, function: &Function) -> usize {
        let function = self.number_of(function);
        let new = self.nodes.len();
        let node = *self.children.entry((parent, function)).or_insert(new);
        if node == new {
            self.nodes.push(Node { function, parent, own: Weight::default(), total: Weight::default() });
        }
        node
    }

    /// Adds the stacks of another tree, without the totals. Returns the places of its nodes in this one.
    pub(super) fn merge(&mut self, other: &Self) -> Vec<usize> {
        let mut numbers: Vec<usize> = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            let parent = node.parent.and_then(|parent| numbers.get(parent).copied());
            let number = self.callee(parent, other.function(node));
            self.nodes.get_mut(number).into_iter().for_each(|merged| merged.own += node.own);
            numbers.push(number);
        }
        numbers
    }

    fn number_of(&mut self, function: &Function) -> usize {
        if let Some(number) = self.by_function.get(function) {
            return *number;
        }
        let number = self.functions.len();
        self.functions.push(function.clone());
        self.by_function.insert(function.clone(), number);
        number
    }

    /// Computes the totals from the samples in the functions themselves.
    pub(super) fn add_up(&mut self) {
        for node in &mut self.nodes {
            node.total = node.own;
        }
        // A caller precedes what it calls.
        for number in (0..self.nodes.len()).rev() {
            let Some(Node { parent: Some(parent), total, .. }) = self.nodes.get(number).copied() else {
                continue;
            };
            if let Some(parent) = self.nodes.get_mut(parent) {
                parent.total += total;
            }
        }
    }

    /// Each node comes after its caller.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    pub fn function(&self, node: &Node) -> &Function {
        static UNKNOWN: Function = Function { name: String::new(), module: String::new() };
        self.functions.get(node.function).unwrap_or(&UNKNOWN)
    }

    pub fn total(&self) -> Weight {
        let mut sum = Weight::default();
        self.nodes.iter().for_each(|node| sum += node.own);
        sum
    }

    /// Sum over the stacks whose innermost function has no symbol.
    pub fn without_symbol(&self) -> Weight {
        let mut sum = Weight::default();
        let without = self.nodes.iter().filter(|node| !self.function(node).has_symbol());
        without.for_each(|node| sum += node.own);
        sum
    }

    /// Places of the nodes that each node calls, the one with the most time first.
    pub fn callees(&self) -> Vec<Vec<usize>> {
        let mut callees = vec![Vec::new(); self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate() {
            if let Some(of_parent) = node.parent.and_then(|parent| callees.get_mut(parent)) {
                of_parent.push(number);
            }
        }
        callees.iter_mut().for_each(|of_one| self.sort_by_time(of_one));
        callees
    }

    /// Places of the nodes without a caller, the one with the most time first.
    pub fn outermost(&self) -> Vec<usize> {
        let mut outermost: Vec<usize> = (0..self.nodes.len())
            .filter(|number| self.nodes.get(*number).is_some_and(|node| node.parent.is_none()))
            .collect();
        self.sort_by_time(&mut outermost);
        outermost
    }

    fn sort_by_time(&self, numbers: &mut [usize]) {
        let key = |number: &usize| {
            self.nodes.get(*number).map(|node| (std::cmp::Reverse(node.total.time_us), self.function(node)))
        };
        numbers.sort_by(|one, other| key(one).cmp(&key(other)));
    }

    /// Functions of a node from the outermost to its own.
    pub fn path(&self, node: usize) -> Vec<&Function> {
        let mut path = Vec::new();
        let mut next = Some(node);
        while let Some(node) = next.and_then(|number| self.nodes.get(number)) {
            path.push(self.function(node));
            next = node.parent;
        }
        path.reverse();
        path
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::stacks) fn weight(time_us: u64) -> Weight {
        Weight { samples: 1, time_us }
    }

    /// Stacks of few functions, so that they share beginnings and recur; an empty name has no symbol.
    pub(in crate::stacks) fn paths() -> impl Strategy<Value = Vec<(Vec<Function>, Weight)>> {
        let function = prop_oneof![Just(""), Just("f"), Just("g"), Just("h")];
        let function =
            function.prop_map(|name: &str| Function { name: name.to_owned(), module: "m".to_owned() });
        let path = prop::collection::vec(function, 1..7);
        prop::collection::vec((path, (0_u64..100).prop_map(weight)), 0..40)
    }

    pub(in crate::stacks) fn tree(paths: &[(Vec<Function>, Weight)]) -> Tree {
        Tree::of_paths(paths.iter().map(|(path, weight)| (path.iter().collect(), *weight)))
    }

    proptest! {
        #[test]
        fn a_node_has_the_time_of_the_stacks_that_begin_with_its_path(paths in paths()) {
            let tree = tree(&paths);
            for (number, node) in tree.nodes().iter().enumerate() {
                let path: Vec<Function> = tree.path(number).into_iter().cloned().collect();
                let sum = |is_counted: &dyn Fn(&[Function]) -> bool| -> u64 {
                    paths.iter().filter(|(stack, _)| is_counted(stack)).map(|(_, weight)| weight.time_us).sum()
                };
                prop_assert_eq!(node.total.time_us, sum(&|stack| stack.starts_with(&path)));
                prop_assert_eq!(node.own.time_us, sum(&|stack| stack == path.as_slice()));
            }
            let all: u64 = paths.iter().map(|(_, weight)| weight.time_us).sum();
            prop_assert_eq!((tree.total().samples, tree.total().time_us), (paths.len() as u64, all));
            let without = paths.iter().filter(|(stack, _)| stack.last().unwrap().name.is_empty());
            prop_assert_eq!(tree.without_symbol().samples, without.count() as u64);
            let roots: u64 = tree.outermost().iter().map(|root| tree.nodes()[*root].total.time_us).sum();
            prop_assert_eq!(roots, all);
        }
    }
}
