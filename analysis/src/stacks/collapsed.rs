//! Collapsed stacks, a line each, as flamegraph.pl and speedscope read them.

use polymeter_service::safe_text::printable;

use super::stack_names::Function;
use super::tree::Tree;

/// Writes a line for each stack with samples: its functions from the outermost to the innermost, separated by
/// semicolons, and its time in microseconds.
pub fn collapsed(tree: &Tree) -> String {
    let mut lines = Vec::new();
    for (number, node) in tree.nodes().iter().enumerate().filter(|(_, node)| node.own.time_us > 0) {
        lines.push(format!("{} {}\n", folded(&tree.path(number)), node.own.time_us));
    }
    lines.sort_unstable();
    lines.concat()
}

/// Names of the functions of a stack from the outermost to the innermost, separated by semicolons.
pub fn folded(path: &[&Function]) -> String {
    path.iter().map(|function| frame(function)).collect::<Vec<_>>().join(";")
}

/// Name of a function without the characters that end it in a line.
fn frame(function: &Function) -> String {
    printable(&function.label()).replace(';', ":")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::stacks::tree::tests::{paths, tree, weight};

    #[test]
    fn names_do_not_end_a_frame_or_a_line() {
        let function = |name: &str| Function { name: name.to_owned(), module: "m".to_owned() };
        let path = vec![function("a;b 1"), function("c\nmain 99"), function("")];
        assert_eq!(collapsed(&tree(&[(path, weight(7))])), "a:b 1;c\\u{a}main 99;[m] 7\n");
    }

    proptest! {
        #[test]
        fn lines_have_the_time_of_their_stacks(paths in paths()) {
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for (path, weight) in &paths {
                let labels: Vec<String> = path.iter().map(Function::label).collect();
                *expected.entry(labels.join(";")).or_default() += weight.time_us;
            }
            expected.retain(|_, time_us| *time_us > 0);
            let text = collapsed(&tree(&paths));
            let found = text.lines().map(|line| line.rsplit_once(' ').unwrap());
            let found: BTreeMap<String, u64> =
                found.map(|(path, time_us)| (path.to_owned(), time_us.parse().unwrap())).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
