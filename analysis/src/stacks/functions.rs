//! Time of functions, wherever they were called.

use super::stack_names::Function;
use super::tree::{Node, Tree, Weight};

/// Wherever the function was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionTime<'a> {
    pub function: &'a Function,
    pub own: Weight,
    /// Time in the function and in what it called. A sample counts once, however often the function is on its
    /// stack.
    pub total: Weight,
}

/// Those with the most time of their own come first.
pub fn functions(tree: &Tree) -> Vec<FunctionTime<'_>> {
    let mut times: Vec<FunctionTime<'_>> = tree
        .functions()
        .iter()
        .map(|function| FunctionTime { function, own: Weight::default(), total: Weight::default() })
        .collect();
    let outermost = outermost_occurrences(tree);
    for (node, is_outermost) in tree.nodes().iter().zip(outermost) {
        let Some(time) = times.get_mut(node.function) else { continue };
        time.own += node.own;
        if is_outermost {
            time.total += node.total;
        }
    }
    let key = |time: &FunctionTime<'_>| (time.own.time_us, time.total.time_us);
    times.sort_by(|one, other| key(other).cmp(&key(one)).then_with(|| one.function.cmp(other.function)));
    times
}

/// Tells for each node whether none of its callers has the same function.
///
/// Nodes are visited in depth, with the number of times that each function is on the path.
fn outermost_occurrences(tree: &Tree) -> Vec<bool> {
    enum Step {
        Enter(usize),
        Leave(usize),
    }
    let callees = tree.callees();
    let mut on_path = vec![0_usize; tree.functions().len()];
    let mut outermost = vec![false; tree.nodes().len()];
    let mut steps: Vec<Step> = tree.outermost().into_iter().map(Step::Enter).collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Enter(number) => {
                let Some(Node { function, .. }) = tree.nodes().get(number) else { continue };
                let (Some(times), Some(is_first)) = (on_path.get_mut(*function), outermost.get_mut(number))
                else {
                    continue;
                };
                *is_first = *times == 0;
                *times += 1;
                steps.push(Step::Leave(*function));
                steps.extend(callees.get(number).into_iter().flatten().copied().map(Step::Enter));
            }
            Step::Leave(function) => {
                if let Some(times) = on_path.get_mut(function) {
                    *times -= 1;
                }
            }
        }
    }
    outermost
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::stacks::tree::tests::{paths, tree};

    proptest! {
        #[test]
        fn a_stack_counts_once_in_the_total_of_each_of_its_functions(paths in paths()) {
            let tree = tree(&paths);
            let found = functions(&tree);
            let all: BTreeSet<&Function> = paths.iter().flat_map(|(path, _)| path).collect();
            prop_assert_eq!(found.iter().map(|time| time.function).collect::<BTreeSet<_>>(), all);
            for time in &found {
                let sum = |is_counted: &dyn Fn(&[Function]) -> bool| -> u64 {
                    paths.iter().filter(|(stack, _)| is_counted(stack)).map(|(_, weight)| weight.time_us).sum()
                };
                prop_assert_eq!(time.own.time_us, sum(&|stack| stack.last() == Some(time.function)));
                prop_assert_eq!(time.total.time_us, sum(&|stack| stack.contains(time.function)));
            }
            prop_assert!(found.is_sorted_by(|one, next| one.own.time_us >= next.own.time_us));
        }
    }
}
