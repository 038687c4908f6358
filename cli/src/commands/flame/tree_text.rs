//! A tree of functions as text. Pure.

use polymeter_analysis::stacks::{Difference, Function, Tree, Weight};
use polymeter_proto::units;

use crate::output::layout::{right_aligned, shortened};
use crate::output::printable::printable;
use crate::output::table::table_within;

/// Functions with a smaller share of the time are left out.
const SHARE_MIN: f64 = 0.005;

const LINES: usize = 200;

const COMPARED: usize = 30;

const SHARE: usize = 8;
const STEP: usize = 2;

/// Divisor: the blanks take at most a third of the line.
const BLANKS_MAX: usize = 3;

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn name(function: &Function) -> String {
    let module = if function.has_symbol() && !function.module.is_empty() {
        format!(" ({})", function.module)
    } else {
        String::new()
    };
    printable(&format!("{}{module}", function.label())).into_owned()
}

/// Each function below its caller, the one with the most time first.
pub(super) fn tree(tree: &Tree, columns: usize) -> String {
    let total = tree.total();
    let callees = tree.callees();
    let mut text = format!("{}{}  function\n", right_aligned("total", SHARE), right_aligned("self", SHARE));
    let (mut lines, mut left_out) = (0, 0);
    let mut open: Vec<(usize, usize)> =
        tree.outermost().into_iter().rev().map(|number| (number, 0)).collect();
    while let Some((number, depth)) = open.pop() {
        let Some(node) = tree.nodes().get(number) else { continue };
        if node.total.share_of(total) < SHARE_MIN || lines >= LINES {
            left_out += 1;
            continue;
        }
        let blanks = (depth * STEP).min(columns / BLANKS_MAX);
        let room = columns.saturating_sub(2 * SHARE + 2 + blanks).max(1);
        text.push_str(&format!(
            "{}{}  {:blanks$}{}\n",
            right_aligned(&percent(node.total.share_of(total)), SHARE),
            right_aligned(&percent(node.own.share_of(total)), SHARE),
            "",
            shortened(&name(tree.function(node)), room)
        ));
        lines += 1;
        open.extend(callees.get(number).into_iter().flatten().rev().map(|callee| (*callee, depth + 1)));
    }
    if left_out > 0 {
        let rest = units::counted(left_out, "branch");
        text.push_str(&format!(
            "({rest} left out: with less than {}, or behind {LINES} lines)\n",
            percent(SHARE_MIN)
        ));
    }
    text
}

/// Functions whose share changed most.
pub(super) fn changes(difference: &Difference, limit: Option<usize>) -> String {
    let total = difference.total;
    let mut functions: Vec<_> = difference.functions.iter().collect();
    let size = |change: &polymeter_analysis::stacks::FunctionChange| change.own.of_share(total).abs();
    functions.sort_by(|one, other| size(other.1).total_cmp(&size(one.1)).then_with(|| one.0.cmp(other.0)));
    let head = ["before", "after", "change", "total before", "total after", "function"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let share = |of: Weight, all: Weight| percent(of.share_of(all));
    for (function, change) in functions.into_iter().take(COMPARED) {
        rows.push(vec![
            share(change.own.before, total.before),
            share(change.own.after, total.after),
            format!("{:+.1} %", 100.0 * change.own.of_share(total)),
            share(change.total.before, total.before),
            share(change.total.after, total.after),
            name(function),
        ]);
    }
    table_within(&rows, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Tree {
        let function = |name: &str| Function { name: name.to_owned(), module: "a.out".to_owned() };
        let long = format!("std::vector<{}>", "x".repeat(100));
        let paths: Vec<(Vec<Function>, u64)> = vec![
            (vec![function("main"), function("solve")], 60),
            (vec![function("main"), function("solve"), function(&long)], 30),
            (vec![function("main"), function("e\u{1b}[31mvil\n")], 8),
            (vec![function("main"), function("")], 2),
            (vec![function("main"), function("rare")], 0),
        ];
        Tree::of_paths(paths.iter().map(|(path, samples)| {
            (path.iter().collect(), Weight { samples: *samples, time_us: samples * 10_000 })
        }))
    }

    #[test]
    fn functions_are_below_their_callers() {
        let text = tree(&sample(), 40);
        let expected = "   total    self  function\n\
            \u{20}100.0 %   0.0 %  main (a.out)\n\
            \u{20} 90.0 %  60.0 %    solve (a.out)\n\
            \u{20} 30.0 %  30.0 %      std::vector<xxxxx…\n\
            \u{20}  8.0 %   8.0 %    e\\u{1b}[31mvil\\u{a}…\n\
            \u{20}  2.0 %   2.0 %    [a.out]\n\
            (1 branch left out: with less than 0.5 %, or behind 200 lines)\n";
        assert_eq!(text, expected);
        assert!(tree(&sample(), 1).lines().all(|line| !line.contains('\u{1b}')));
    }

    #[test]
    fn the_greatest_changes_come_first() {
        let before = sample();
        let solve = Function { name: "solve".to_owned(), module: "a.out".to_owned() };
        let after = Tree::of_paths([(vec![&solve], Weight { samples: 1, time_us: 10_000 })]);
        let text = changes(&Difference::of(&before, &after), None);
        let second = text.lines().nth(1).unwrap();
        assert!(second.contains("+40.0 %") && second.contains("solve (a.out)"), "{text}");
    }
}
